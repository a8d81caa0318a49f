// SPDX-License-Identifier: GPL-2.0
/*
 * The echo server, and the proxy that carries redirected connections on.
 */
#include "load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#ifndef SO_ORIGINAL_DST
#define SO_ORIGINAL_DST 80
#endif

static int listener(const struct options *o)
{
	struct sockaddr_storage ss;
	int fd = option_socket(o), off = 0;
	socklen_t len;

	address(&ss, &len, o->addr, o->port);
	if (ss.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (o->fastopen) {
		int n = 100;

		setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &n, sizeof(n));
	}
	if (bind(fd, (void *)&ss, len) || listen(fd, 4096))
		die("listen on %s %u: %s", o->addr, o->port, strerror(errno));
	printf("serving\n");
	fflush(stdout);
	return fd;
}

/* What a connection still owes its client. */
struct peer {
	unsigned char *buf;
	uint32_t have, sent;
};

static struct peer peers[1 << 17];

static void drop(int fd)
{
	free(peers[fd].buf);
	memset(&peers[fd], 0, sizeof(peers[fd]));
	close(fd);
}

/* Echoes whole messages, so that the tenant can be checked before. */
static void readable(int fd, unsigned int tenant)
{
	struct peer *p = &peers[fd];
	const struct header *h;
	long n;

	if (!p->buf)
		p->buf = malloc(LOAD_MAX);
	for (;;) {
		h = (void *)p->buf;
		n = recv(fd, p->buf + p->have, LOAD_MAX - p->have, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			drop(fd);
			return;
		}
		p->have += n;
		if (p->have < sizeof(*h))
			continue;
		if (h->magic != LOAD_MAGIC || h->tenant != tenant || h->len > LOAD_MAX)
			die("WRONG BYTES: server of tenant %u got tenant %u magic %x", tenant,
			    h->tenant, h->magic);
		if (p->have < h->len)
			continue;
		if (p->have > h->len || !message_good(p->buf, &(struct header){ h->magic, h->tenant,
						       h->conn, h->round, h->len }))
			die("WRONG BYTES: server of tenant %u, connection %u", tenant, h->conn);
		for (p->sent = 0; p->sent < p->have; p->sent += n) {
			n = send(fd, p->buf + p->sent, p->have - p->sent, 0);
			if (n <= 0) {
				drop(fd);
				return;
			}
		}
		p->have = 0;
	}
	if (!p->have) {
		/* Ten thousand idle connections must not hold a buffer each. */
		free(p->buf);
		p->buf = NULL;
	}
}

int serve(const struct options *o)
{
	int l = listener(o), ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = l };

	fcntl(l, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev);
	for (;;) {
		struct epoll_event got[64];
		int n = epoll_wait(ep, got, 64, -1);

		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd, c;

			if (fd != l) {
				readable(fd, o->tenant);
				continue;
			}
			while ((c = accept(l, NULL, NULL)) >= 0) {
				ev.data.fd = c;
				epoll_ctl(ep, EPOLL_CTL_ADD, c, &ev);
			}
		}
	}
}

static void carry(int from, int to)
{
	char buf[16384];
	long n, r;

	while ((n = recv(from, buf, sizeof(buf), 0)) > 0) {
		for (long done = 0; done < n; done += r) {
			r = send(to, buf + done, n - done, 0);
			if (r <= 0)
				return;
		}
	}
	shutdown(to, SHUT_WR);
}

int proxy(const struct options *o)
{
	int l = listener(o), c;

	while ((c = accept(l, NULL, NULL)) >= 0) {
		struct sockaddr_storage ss;
		socklen_t len = sizeof(struct sockaddr_in);
		int up;

		if (fork()) {
			close(c);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
			continue;
		}
		close(l);
		memset(&ss, 0, sizeof(ss));
		if (getsockopt(c, SOL_IP, SO_ORIGINAL_DST, &ss, &len))
			die("SO_ORIGINAL_DST: %s", strerror(errno));
		up = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(up, (void *)&ss, len))
			die("the proxy cannot connect: %s", strerror(errno));
		if (!fork()) {
			carry(up, c);
			_exit(0);
		}
		carry(c, up);
		wait(NULL);
		_exit(0);
	}
	return 2;
}
