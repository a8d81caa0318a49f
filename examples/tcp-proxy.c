// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * tcp-proxy [--mode copy|pipe|sosplice] --listen ADDRESS:PORT --to ADDRESS:PORT
 *
 * Forwards each connection made to --listen to --to, both ways, until both ends have
 * said that they are done. One thread, epoll. The modes differ in who carries the bytes:
 *
 *	copy		read(2) and write(2), 64 KiB at a time
 *	pipe		splice(2) into a pipe and out of it
 *	sosplice	the kernel, by SO_SPLICE; where the kernel does not offer it,
 *			copies, and says so once (the default)
 *
 * An end of stream is passed on as such (a half-close), a reset as a reset. A
 * receiver that does not read is sent no more: at most one buffer waits here in each
 * direction.
 *
 * Prints "listening ADDRESS:PORT", and when it is told to end (SIGTERM, SIGINT) how many
 * connections it had and what it forwarded on those that have ended: bytes by SO_SPLICE,
 * and otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "socksplice.h"

#define BUFFER	(64 * 1024)
#define PIPE	(1024 * 1024)

enum mode { COPY, PIPES, SOSPLICE };

static const char * const mode_names[] = { "copy", "pipe", "sosplice" };

struct session;

/* One connection of a session. */
struct end {
	struct session *session;
	int fd;
	uint32_t watched;	/* EPOLLIN, EPOLLOUT; 0: epoll does not know it */
};

/* One direction: from end[i] to the other one. */
struct flow {
	char *buf;		/* copy: made when first needed */
	int pipe[2];		/* pipe mode */
	size_t off, len;	/* what waits for the sink */
	bool spliced;
	bool eof;		/* the source has sent its last byte */
	bool done;		/* and the sink has been told */
};

struct session {
	struct end end[2];	/* the client's, the server's */
	struct flow flow[2];
	bool connecting;	/* to the server */
	bool dead;		/* closed; freed when no event can mention it */
	struct session *next;	/* of the dead */
};

static enum mode mode = SOSPLICE;
static struct sockaddr_storage target;
static socklen_t target_len;
static struct end listener;	/* without a session */
static int epfd;
static struct session *dead;
static unsigned long long connections, spliced_bytes, other_bytes;
static volatile sig_atomic_t stop;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "tcp-proxy: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

/*
 * What epoll should tell of @end. Nobody is left in it with nothing to wait for: it would
 * report a hang-up there again and again. False when epoll has no room for another one: it
 * takes memory, and a user has so many (/proc/sys/fs/epoll/max_user_watches).
 */
static bool watch(struct end *end, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = end };
	int op = !events ? EPOLL_CTL_DEL : end->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	static bool said;

	if (end->watched == events)
		return true;
	if (epoll_ctl(epfd, op, end->fd, &ev)) {
		if (errno != ENOSPC && errno != ENOMEM)
			die("epoll_ctl: %s", strerror(errno));
		if (!said)
			fprintf(stderr, "tcp-proxy: epoll_ctl: %s\n", strerror(errno));
		said = true;
		return false;
	}
	end->watched = events;
	return true;
}

/* Ends the session. With @reset the two ends get a RST, as far as they are still there. */
static void session_close(struct session *s, bool reset)
{
	const struct linger linger = { .l_onoff = 1 };
	int i;

	for (i = 0; i < 2; i++) {
		struct flow *f = &s->flow[i];

		if (f->spliced) {
			int64_t moved = socksplice_moved(s->end[i].fd);

			spliced_bytes += moved > 0 ? moved : 0;
		}
		free(f->buf);
		if (f->pipe[0] >= 0) {
			close(f->pipe[0]);
			close(f->pipe[1]);
		}
	}
	for (i = 0; i < 2; i++) {
		if (s->end[i].fd < 0)
			continue;
		if (reset)
			setsockopt(s->end[i].fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		close(s->end[i].fd);	/* epoll forgets it, too */
	}
	s->dead = true;
	s->next = dead;
	dead = s;
	watch(&listener, EPOLLIN);	/* there are descriptors again */
}

/*
 * One read and what follows from it. A flow reads again when it has passed on all it had,
 * so that one buffer is enough and its source feels a sink that is slow.
 * False when the connection is broken.
 */
static bool flow_read(struct flow *f, int from)
{
	ssize_t n;

	if (mode == PIPES) {
		n = splice(from, NULL, f->pipe[1], NULL, PIPE, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
	} else {
		if (!f->buf) {
			f->buf = malloc(BUFFER);
			if (!f->buf)
				return false;
		}
		n = read(from, f->buf, BUFFER);
	}
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!n)
		f->eof = true;
	f->off = 0;
	f->len = n;
	return true;
}

static bool flow_write(struct flow *f, int to)
{
	while (f->len) {
		ssize_t n;

		if (mode == PIPES)
			n = splice(f->pipe[0], NULL, to, NULL, f->len,
				   SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
		else
			n = send(to, f->buf + f->off, f->len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		f->off += n;
		f->len -= n;
		other_bytes += n;
	}
	return true;
}

/* Does what can be done in one direction. False when the connection is broken. */
static bool flow_run(struct session *s, int i, bool readable)
{
	struct flow *f = &s->flow[i];
	int from = s->end[i].fd, to = s->end[!i].fd;

	if (f->done)
		return true;
	if (readable && !f->len && !f->eof && !flow_read(f, from))
		return false;
	if (f->len && !flow_write(f, to))
		return false;
	if (f->eof && !f->len) {
		/* a splice sends no end of stream either */
		shutdown(to, SHUT_WR);
		f->done = true;
	}
	return true;
}

/* False when epoll has no room. */
static bool session_watch(struct session *s)
{
	int i;

	for (i = 0; i < 2; i++) {
		const struct flow *in = &s->flow[i], *out = &s->flow[!i];

		/* a source that is spliced is readable once that is over */
		if (!watch(&s->end[i], (!in->eof && !in->len ? EPOLLIN : 0) |
				       (out->len ? EPOLLOUT : 0)))
			return false;
	}
	return true;
}

/*
 * Has the kernel carry one direction. Where it does not, the flow is as any other. So is
 * it after a splice has ended: what that left is read, an end of stream or an error.
 */
static void flow_splice(struct session *s, int i)
{
	const struct splice arg = { .sp_fd = s->end[!i].fd };
	static bool said;

	if (!socksplice_splice(s->end[i].fd, &arg)) {
		s->flow[i].spliced = true;
	} else if (!said) {
		said = true;
		fprintf(stderr, "tcp-proxy: SO_SPLICE: %s%s: copying\n", strerror(errno),
			errno == ENOPROTOOPT ?
			" (module not loaded, or off: socksplice feature set so-splice on)" : "");
	}
}

static void session_start(struct session *s)
{
	int i, err;
	socklen_t len = sizeof(err);

	if (getsockopt(s->end[1].fd, SOL_SOCKET, SO_ERROR, &err, &len) || err) {
		session_close(s, true);
		return;
	}
	s->connecting = false;
	for (i = 0; i < 2; i++) {
		if (mode == SOSPLICE)
			flow_splice(s, i);
		if (mode == PIPES) {
			if (pipe2(s->flow[i].pipe, O_NONBLOCK | O_CLOEXEC)) {
				session_close(s, true);
				return;
			}
			/* the more, the better; if not, then not */
			fcntl(s->flow[i].pipe[1], F_SETPIPE_SZ, PIPE);
		}
	}
	if (!session_watch(s))
		session_close(s, true);
}

static void session_event(struct session *s, int i, uint32_t events)
{
	const uint32_t hup = EPOLLHUP | EPOLLERR;

	if (s->connecting) {
		session_start(s);
		return;
	}
	/* what is behind a hang-up is told by the read or the write */
	if (!flow_run(s, i, events & (EPOLLIN | hup)) || !flow_run(s, !i, false))
		session_close(s, true);
	else if (s->flow[0].done && s->flow[1].done)
		session_close(s, false);
	else if (!session_watch(s))
		session_close(s, true);
}

static void session_open(int client)
{
	struct session *s = calloc(1, sizeof(*s));
	int one = 1, i, server;

	server = s ? socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
	if (server < 0) {
		fprintf(stderr, "tcp-proxy: a client is turned away: %s\n", strerror(errno));
		free(s);
		close(client);
		return;
	}
	for (i = 0; i < 2; i++) {
		s->end[i] = (struct end){ .session = s, .fd = i ? server : client };
		s->flow[i].pipe[0] = -1;
		setsockopt(s->end[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	connections++;
	s->connecting = true;
	if ((connect(server, (void *)&target, target_len) && errno != EINPROGRESS) ||
	    !watch(&s->end[1], EPOLLOUT))
		session_close(s, true);
}

static void accept_some(void)
{
	int i, fd;

	for (i = 0; i < 64; i++) {
		fd = accept4(listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			session_open(fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			watch(&listener, 0);	/* until a session ends, or for a while */
			return;
		} else if (errno == EAGAIN) {
			return;
		}
	}
}

static void on_signal(int sig)
{
	stop = sig;
}

static socklen_t address(char *text, struct sockaddr_storage *ss, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags }, *found;
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
	char host[64], port[16];
	struct sockaddr_storage ss;
	socklen_t len = address(text, &ss, AI_PASSIVE);
	int one = 1;

	listener.fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener.fd < 0 || bind(listener.fd, (void *)&ss, len) ||
	    listen(listener.fd, 4096) || getsockname(listener.fd, (void *)&ss, &len))
		die("cannot listen: %s", strerror(errno));
	getnameinfo((void *)&ss, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	printf(ss.ss_family == AF_INET6 ? "listening [%s]:%s\n" : "listening %s:%s\n", host, port);
	fflush(stdout);
}

static void serve(void)
{
	struct epoll_event ev[256];
	sigset_t none;
	int i, n;

	sigemptyset(&none);
	watch(&listener, EPOLLIN);
	while (!stop) {
		n = epoll_pwait(epfd, ev, 256, listener.watched ? -1 : 100, &none);
		if (n < 0 && errno != EINTR)
			die("epoll_wait: %s", strerror(errno));
		if (!n)
			watch(&listener, EPOLLIN);	/* there may be none that ends */
		for (i = 0; i < n; i++) {
			struct end *end = ev[i].data.ptr;

			if (end == &listener)
				accept_some();
			else if (!end->session->dead)
				session_event(end->session, end == &end->session->end[1],
					      ev[i].events);
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
		{ "mode", required_argument, NULL, 'm' },
		{ "listen", required_argument, NULL, 'l' },
		{ "to", required_argument, NULL, 't' },
		{ }
	};
	struct sigaction sa = { .sa_handler = on_signal };
	char *where = NULL, *to = NULL;
	struct rlimit files;
	sigset_t ends;
	int c, i;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			for (i = 0; i < 3 && strcmp(optarg, mode_names[i]); i++)
				;
			if (i == 3)
				die("no such mode: %s (copy, pipe, sosplice)", optarg);
			mode = i;
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
		fprintf(stderr, "usage: tcp-proxy [--mode copy|pipe|sosplice] --listen ADDRESS:PORT"
			" --to ADDRESS:PORT\n");
		return 2;
	}
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);	/* splice(2) knows no MSG_NOSIGNAL */
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
	printf("%s: %llu connections, %llu bytes spliced, %llu otherwise\n", mode_names[mode],
	       connections, spliced_bytes, other_bytes);
	return 0;
}
