// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * udp-relay [--copy] [--idle SECONDS] --listen ADDRESS:PORT --to ADDRESS:PORT
 *
 * Forwards the datagrams that clients send to --listen to --to, and the answers back, as a
 * relay for DNS or QUIC does. One thread, epoll. Each client has a session: a socket that is
 * connected to the client, and one that is connected to the server. The kernel forwards between
 * the two, by SO_SPLICE. Where it does not offer that, or with --copy, the relay copies, and says
 * why once. A session ends when nothing has gone either way for --idle seconds (30).
 *
 * The client's socket has the address of --listen, too, by SO_REUSEPORT. UDP gives a connected
 * socket the datagrams of its peer. What other clients send between its bind(2) and its connect(2)
 * may be in its queue: those are found by their address, and go to their own sessions.
 *
 * Prints "listening ADDRESS:PORT". When it is told to end (SIGTERM, SIGINT) it prints how many
 * sessions it had, and the bytes that it forwarded by SO_SPLICE, and otherwise.
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "socksplice.h"

#define LARGEST	65535	/* of all datagrams */
#define SLOTS	4096	/* of the table of sessions */

struct session;

struct end {
	struct session *session;	/* NULL: the listener */
	int fd;
};

struct session {
	struct end end[2];		/* the client's, the server's */
	struct sockaddr_storage client;
	uint64_t copied;		/* bytes */
	uint64_t spliced[2];		/* bytes of the splices of each end that are over */
	uint64_t last_total;		/* bytes, at the last look for idle sessions */
	time_t last;			/* when there were more than before */
	bool dead;			/* closed; freed when no event can mention it */
	struct session *next;		/* in its slot, or of the dead */
};

static bool copy_only;
static time_t idle = 30;
static struct sockaddr_storage target, here;
static socklen_t target_len, here_len;
static struct end listener;
static struct session *slots[SLOTS], *dead;
static int epfd;
static unsigned long long sessions, spliced_bytes, copied_bytes;
static char buf[LARGEST];
static volatile sig_atomic_t stop;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "udp-relay: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Address and port: all that makes two clients different. */
static size_t key(const struct sockaddr_storage *a, unsigned char *to)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;

	if (a->ss_family == AF_INET) {
		memcpy(to, &v4->sin_port, 2);
		memcpy(to + 2, &v4->sin_addr, 4);
		return 6;
	}
	memcpy(to, &v6->sin6_port, 2);
	memcpy(to + 2, &v6->sin6_addr, 16);
	memcpy(to + 18, &v6->sin6_scope_id, 4);
	return 22;
}

static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	unsigned char x[22], y[22];
	size_t n = key(a, x);

	return key(b, y) == n && !memcmp(x, y, n);
}

static struct session **slot(const struct sockaddr_storage *client)
{
	unsigned char k[22];
	size_t n = key(client, k), i;
	uint32_t hash = 2166136261u;

	for (i = 0; i < n; i++)
		hash = (hash ^ k[i]) * 16777619u;
	return &slots[hash % SLOTS];
}

static uint64_t moved(int fd)
{
	int64_t n = copy_only ? 0 : socksplice_moved(fd);

	return n > 0 ? n : 0;
}

static uint64_t session_spliced(const struct session *s)
{
	return s->spliced[0] + moved(s->end[0].fd) + s->spliced[1] + moved(s->end[1].fd);
}

static void session_close(struct session *s)
{
	struct session **p = slot(&s->client);
	int i;

	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	for (i = 0; i < 2; i++)		/* first, so that the counts are final */
		socksplice_unsplice(s->end[i].fd);
	spliced_bytes += session_spliced(s);
	copied_bytes += s->copied;
	for (i = 0; i < 2; i++)
		close(s->end[i].fd);	/* epoll forgets it, too */
	s->dead = true;
	s->next = dead;
	dead = s;
}

/* Has the kernel forward what comes to end @i. Where it does not, epoll tells of each datagram. */
static void session_splice(struct session *s, int i)
{
	const struct splice arg = { .sp_fd = s->end[!i].fd };
	const uint64_t before = moved(s->end[i].fd);
	static bool said;

	if (copy_only)
		return;
	if (!socksplice_splice(s->end[i].fd, &arg)) {
		s->spliced[i] += before;	/* this splice counts from 0 */
	} else if (errno != EBUSY && !said) {	/* EBUSY: there is one already */
		said = true;
		fprintf(stderr, "udp-relay: SO_SPLICE: %s%s: copying\n", strerror(errno),
			errno == ENOPROTOOPT ?
			" (module not loaded, or off: socksplice feature set so-splice on)" : "");
	}
}

/* Sends @n bytes of buf. A datagram that cannot be sent is lost, as on any way of UDP. */
static void pass_on(struct session *s, int to, ssize_t n)
{
	if (send(s->end[to].fd, buf, n, MSG_DONTWAIT) == n)
		s->copied += n;
}

static void arrived(const struct sockaddr_storage *from, ssize_t n);

/* Copies what end @i has received. An error, such as a server that is not there, is passed over. */
static void session_copy(struct session *s, int i)
{
	struct sockaddr_storage from;
	int errors = 0;
	ssize_t n;

	do {
		socklen_t len = sizeof(from);

		n = recvfrom(s->end[i].fd, buf, sizeof(buf), MSG_DONTWAIT, (void *)&from, &len);
		if (n >= 0 && !i && !same(&from, &s->client))
			arrived(&from, n);
		else if (n >= 0)
			pass_on(s, !i, n);
	} while (n >= 0 || (errno != EAGAIN && errors++ < 16));
}

/* Something has come to end @i that is not spliced, or its splice has ended. */
static void session_event(struct session *s, int i)
{
	session_copy(s, i);
	session_splice(s, i);
}

static int connected(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
		     socklen_t len)
{
	int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	if (fd >= 0 && !(from && (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
				  bind(fd, (void *)from, len))) &&
	    !connect(fd, (void *)to, len))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static struct session *session_open(const struct sockaddr_storage *client)
{
	struct session *s = calloc(1, sizeof(*s)), **p = slot(client);
	struct epoll_event ev = { .events = EPOLLIN };
	int i;

	if (!s)
		return NULL;
	s->client = *client;
	s->last = now();
	s->end[0] = (struct end){ .session = s, .fd = connected(&here, client, here_len) };
	s->end[1] = (struct end){ .session = s, .fd = connected(NULL, &target, target_len) };
	for (i = 0; i < 2; i++) {
		ev.data.ptr = &s->end[i];
		if (s->end[i].fd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, s->end[i].fd, &ev)) {
			fprintf(stderr, "udp-relay: a client is turned away: %s\n",
				strerror(errno));
			for (i = 0; i < 2; i++)
				if (s->end[i].fd >= 0)
					close(s->end[i].fd);
			free(s);
			return NULL;
		}
	}
	s->next = *p;
	*p = s;
	sessions++;
	return s;
}

/* A client's datagram of @n bytes is in buf. */
static void arrived(const struct sockaddr_storage *from, ssize_t n)
{
	struct session *s = *slot(from);

	while (s && !same(&s->client, from))
		s = s->next;
	if (s) {
		pass_on(s, 1, n);
		return;
	}
	s = session_open(from);
	if (!s)
		return;
	pass_on(s, 1, n);
	session_event(s, 0);
	session_event(s, 1);
}

static void serve_listener(void)
{
	struct sockaddr_storage from;
	ssize_t n;

	do {
		socklen_t len = sizeof(from);

		n = recvfrom(listener.fd, buf, sizeof(buf), MSG_DONTWAIT, (void *)&from, &len);
		if (n >= 0)
			arrived(&from, n);
	} while (n >= 0);
}

static void close_idle(void)
{
	const time_t t = now();
	int i;

	for (i = 0; i < SLOTS; i++) {
		struct session *s, *next;

		for (s = slots[i]; s; s = next) {
			const uint64_t total = session_spliced(s) + s->copied;

			next = s->next;
			if (total != s->last_total) {
				s->last_total = total;
				s->last = t;
			} else if (t - s->last >= idle) {
				session_close(s);
			}
		}
	}
}

static void on_signal(int sig)
{
	stop = sig;
}

static socklen_t address(char *text, struct sockaddr_storage *ss, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = flags }, *found;
	char *port = strrchr(text, ':'), *host = text;
	socklen_t len;
	int err;

	if (!port)
		die("%s is not ADDRESS:PORT", text);
	*port++ = 0;
	if (*host == '[') {
		host++;
		host[strcspn(host, "]")] = 0;
	}
	err = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (err)
		die("%s port %s: %s", host, port, gai_strerror(err));
	len = found->ai_addrlen;
	memcpy(ss, found->ai_addr, len);
	freeaddrinfo(found);
	return len;
}

static void listen_at(char *text)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &listener };
	char host[64], port[16];
	int one = 1;

	here_len = address(text, &here, AI_PASSIVE);
	listener.fd = socket(here.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener.fd < 0 ||
	    setsockopt(listener.fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
	    bind(listener.fd, (void *)&here, here_len) ||
	    getsockname(listener.fd, (void *)&here, &here_len) ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, listener.fd, &ev))
		die("cannot listen: %s", strerror(errno));
	getnameinfo((void *)&here, here_len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	printf(here.ss_family == AF_INET6 ? "listening [%s]:%s\n" : "listening %s:%s\n", host,
	       port);
	fflush(stdout);
}

static void serve(void)
{
	struct epoll_event ev[256];
	time_t looked = now();
	sigset_t none;
	int i, n;

	sigemptyset(&none);
	while (!stop) {
		n = epoll_pwait(epfd, ev, 256, 1000, &none);
		if (n < 0 && errno != EINTR)
			die("epoll_wait: %s", strerror(errno));
		for (i = 0; i < n; i++) {
			struct end *end = ev[i].data.ptr;

			if (end == &listener)
				serve_listener();
			else if (!end->session->dead)
				session_event(end->session, end == &end->session->end[1]);
		}
		if (now() != looked) {
			close_idle();
			looked = now();
		}
		while (dead) {
			struct session *s = dead;

			dead = s->next;
			free(s);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "copy", no_argument, NULL, 'c' },
		{ "idle", required_argument, NULL, 'i' },
		{ "listen", required_argument, NULL, 'l' },
		{ "to", required_argument, NULL, 't' },
		{ }
	};
	struct sigaction sa = { .sa_handler = on_signal };
	char *where = NULL, *to = NULL, *rest;
	sigset_t ends;
	int c, i;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'c':
			copy_only = true;
			break;
		case 'i':
			idle = strtol(optarg, &rest, 10);
			if (*rest || rest == optarg || idle < 1)
				die("--idle %s is not a number of seconds from 1 on", optarg);
			break;
		case 'l':
			where = optarg;
			break;
		case 't':
			to = optarg;
			break;
		default:
			return 2;
		}
	}
	if (!where || !to || optind < argc) {
		fprintf(stderr, "usage: udp-relay [--copy] [--idle SECONDS] --listen ADDRESS:PORT"
			" --to ADDRESS:PORT\n");
		return 2;
	}
	/* those that end it come while it waits, and at no other time */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);

	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0)
		die("epoll_create1: %s", strerror(errno));
	target_len = address(to, &target, 0);
	listen_at(where);
	serve();
	for (i = 0; i < SLOTS; i++)
		while (slots[i])
			session_close(slots[i]);
	printf("%llu sessions, %llu bytes spliced, %llu otherwise\n", sessions, spliced_bytes,
	       copied_bytes);
	return 0;
}
