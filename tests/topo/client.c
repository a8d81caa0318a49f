// SPDX-License-Identifier: GPL-2.0
/*
 * The clients: ordinary ones, and those that try to deceive the matching.
 */
#include "load.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <linux/tcp.h>
#include <sys/wait.h>

static int client_connect(const struct options *o, unsigned int bind_port, int *err)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int fd = option_socket(o), on = 1;

	if (bind_port) {
		const char *any = strchr(o->addr, ':') ? "::" : "0.0.0.0";

		address(&ss, &len, any, bind_port);
		if (bind(fd, (void *)&ss, len))
			die("bind %u: %s", bind_port, strerror(errno));
	}
	if (o->fastopen)
		setsockopt(fd, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &on, sizeof(on));
	address(&ss, &len, o->addr, o->port);
	if (connect(fd, (void *)&ss, len)) {
		*err = errno;
		close(fd);
		return -1;
	}
	return fd;
}

static int must_connect(const struct options *o, unsigned int bind_port)
{
	int err, fd = client_connect(o, bind_port, &err);

	if (fd < 0)
		die("connect to %s %u: %s", o->addr, o->port, strerror(err));
	return fd;
}

/* Says @what and waits for a line, or the end of input. True if it is "again". */
static bool hold_on(const char *what)
{
	char line[16];

	printf("%s\n", what);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) && !strcmp(line, "again\n");
}

int run(const struct options *o)
{
	int *fd = calloc(o->conns, sizeof(*fd));
	unsigned int c, r;
	time_t end;

	for (c = 0; c < o->conns; c++)
		fd[c] = must_connect(o, o->bind ? o->bind + c : 0);
	if (o->wait)
		hold_on("connected");
	do {
		end = time(NULL) + o->seconds;
		for (r = 0; o->timed ? time(NULL) < end : r < o->rounds; r++) {
			for (c = 0; c < o->conns; c++) {
				if (message_exchange(fd[c], o->tenant, c, r, o->size))
					die("connection %u, round %u: %s", c, r, strerror(errno));
			}
		}
	} while (o->hold && hold_on("holding"));
	printf("done %u connections, %u rounds\n", o->conns, r);
	return 0;
}

static void reset(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static uint32_t next(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

/* One connection that ends in one of the ways that connections end. */
static void churn_one(const struct options *o, uint32_t *seed, unsigned int conn)
{
	unsigned int rounds = next(seed) % 5, err;
	static char junk[40000];
	int fd = client_connect(o, 0, (int *)&err);

	if (fd < 0)
		die("churn: connect: %s", strerror(err));
	for (unsigned int r = 0; r < rounds; r++) {
		if (message_exchange(fd, o->tenant, conn, r, 1 + next(seed) % 5000))
			die("churn: %s", strerror(errno));
	}
	switch (next(seed) % 6) {
	case 0:
		reset(fd);
		return;
	case 1:
		shutdown(fd, SHUT_WR);
		break;
	case 2: {
		/* An unfinished message, then away. */
		struct header h = { LOAD_MAGIC, o->tenant, conn, 9, sizeof(junk) };

		message_make(junk, &h);
		send(fd, junk, 1 + next(seed) % (sizeof(junk) - 1), MSG_DONTWAIT);
		if (next(seed) % 2) {
			reset(fd);
			return;
		}
		break;
	}
	case 3: {
		/* A whole message whose echo nobody reads: closing resets. */
		struct header h = { LOAD_MAGIC, o->tenant, conn, 9, 3000 };

		message_make(junk, &h);
		send(fd, junk, 3000, 0);
		break;
	}
	case 4: {
		struct sockaddr un = { .sa_family = AF_UNSPEC };

		connect(fd, &un, sizeof(un));
		break;
	}
	default:
		break;
	}
	close(fd);
}

int churn(const struct options *o)
{
	int status, bad = 0;

	for (unsigned int w = 0; w < o->workers; w++) {
		if (!fork()) {
			uint32_t seed = (o->seed + w * 7919) | 1;
			time_t end = time(NULL) + o->seconds;
			unsigned int n = 0;

			while (time(NULL) < end)
				churn_one(o, &seed, w * 1000000 + n++);
			printf("churned %u\n", n);
			exit(0);
		}
	}
	while (wait(&status) > 0)
		bad |= status;
	return bad != 0;
}

/* The same source port for each connection, so that two tenants that do this at
 * once have equal tuples at nearly the same moment.
 */
int storm(const struct options *o)
{
	unsigned int refused = 0;
	int err = 0;

	for (unsigned int r = 0; r < o->rounds; r++) {
		int fd = client_connect(o, o->bind, &err);

		if (fd < 0) {
			refused++;
			continue;
		}
		for (unsigned int m = 0; m < 4; m++) {
			if (message_exchange(fd, o->tenant, r, m, o->size))
				die("storm: round %u: %s", r, strerror(errno));
		}
		reset(fd);
	}
	printf("stormed %u, refused %u%s%s\n", o->rounds, refused, refused ? ", the last: " : "",
	       refused ? strerror(err) : "");
	return refused > o->rounds / 2;
}

static void both_ways(int a, int b, unsigned int tenant)
{
	struct header h = { LOAD_MAGIC, tenant, 0, 0, 2000 };
	char out[2000], in[2000];

	for (int i = 0; i < 20; i++) {
		int from = i % 2 ? b : a, to = i % 2 ? a : b;

		h.round = i;
		message_make(out, &h);
		if (send(from, out, sizeof(out), 0) != sizeof(out))
			die("send: %s", strerror(errno));
		if (recv(to, in, sizeof(in), MSG_WAITALL) != sizeof(in))
			die("recv: %s", strerror(errno));
		if (!message_good(in, &h))
			die("WRONG BYTES");
	}
}

/* Two sockets that connect to each other. Where packets take a while, the SYNs
 * cross; elsewhere one of them meets no listener, and it is tried again.
 */
int simultaneous(const struct options *o)
{
	for (unsigned int t = 0; t < 200; t++) {
		struct sockaddr_storage sa, sb;
		struct pollfd p[2];
		socklen_t len, elen = sizeof(int);
		int a = tcp_socket(o->addr, SOCK_NONBLOCK), b = tcp_socket(o->addr, SOCK_NONBLOCK);
		int ea = 0, eb = 0;

		address(&sa, &len, o->addr, o->port);
		address(&sb, &len, o->addr, o->bind);
		if (bind(a, (void *)&sa, len) || bind(b, (void *)&sb, len))
			die("bind: %s", strerror(errno));
		connect(a, (void *)&sb, len);
		connect(b, (void *)&sa, len);
		p[0] = (struct pollfd){ a, POLLOUT, 0 };
		p[1] = (struct pollfd){ b, POLLOUT, 0 };
		poll(&p[0], 1, 10000);
		poll(&p[1], 1, 10000);
		getsockopt(a, SOL_SOCKET, SO_ERROR, &ea, &elen);
		getsockopt(b, SOL_SOCKET, SO_ERROR, &eb, &elen);
		if (!ea && !eb) {
			fcntl(a, F_SETFL, 0);
			fcntl(b, F_SETFL, 0);
			both_ways(a, b, o->tenant);
			if (o->hold)
				hold_on("opened at once");
			return 0;
		}
		reset(a);
		reset(b);
	}
	die("no simultaneous open in 200 tries");
}

static void repair_end(int fd, const struct options *o, bool mirror, uint32_t mine, uint32_t theirs)
{
	struct sockaddr_storage self, peer;
	socklen_t len;
	int on = 1, q;

	address(&self, &len, o->addr, mirror ? o->bind : o->port);
	address(&peer, &len, o->addr, mirror ? o->port : o->bind);
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)))
		die("TCP_REPAIR: %s", strerror(errno));
	if (bind(fd, (void *)&self, len))
		die("bind: %s", strerror(errno));
	q = TCP_SEND_QUEUE;
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &q, sizeof(q)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &mine, sizeof(mine)))
		die("send queue: %s", strerror(errno));
	q = TCP_RECV_QUEUE;
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &q, sizeof(q)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &theirs, sizeof(theirs)))
		die("receive queue: %s", strerror(errno));
	if (connect(fd, (void *)&peer, len))
		die("connect in repair: %s", strerror(errno));
}

/* A connection that never shook hands: both ends put together by TCP_REPAIR. */
int forge(const struct options *o)
{
	int a = tcp_socket(o->addr, 0), b = tcp_socket(o->addr, 0), off = -1;

	repair_end(a, o, false, 1000000, 2000000);
	repair_end(b, o, true, 2000000, 1000000);
	setsockopt(a, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
	setsockopt(b, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
	both_ways(a, b, o->tenant);
	if (o->hold)
		hold_on("forged");
	return 0;
}
