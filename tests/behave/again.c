// SPDX-License-Identifier: GPL-2.0
/*
 * A thread sends, or receives, or two do both, without end while another connects their socket
 * anew, again and again. Whatever instant the two meet at, each call belongs to
 * one connection: one that slept must not go on in the next.
 */
#include "behave.h"

#define LIVES	40
#define CELLS	(192 * KIB / sizeof(struct cell))

struct cell {
	uint32_t whole, n;	/* the message or the connection; counted within */
};

struct again {
	int fd, listener;	/* the socket that is connected anew; its peers' */
	bool stop;		/* atomic */
	int alive[2];		/* pipe: a byte once a connection has carried enough */
	bool twice;		/* two threads disconnect at a time */
	pthread_barrier_t both;	/* they begin, and have ended */
	bool torn;		/* what belongs together came apart */
};

/* The peer's side: that there was a ring, and that it is time for the next. */
static void alive(struct again *g, int peer)
{
	struct conn k;

	conn_adopt(&k, g->fd, peer);
	conn_proof(&k);
	MUST(write(g->alive[1], "", 1));
}

static bool stopped(struct again *g)
{
	return __atomic_load_n(&g->stop, __ATOMIC_RELAXED);
}

static void expected_error(const char *what)
{
	if (errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN)
		fail("%s: %s", what, strerror(errno));
}

static void disconnect(struct again *g)
{
	struct sockaddr un = { .sa_family = AF_UNSPEC };

	if (g->twice)
		pthread_barrier_wait(&g->both);
	MUST(connect(g->fd, &un, sizeof(un)));
	if (g->twice)
		pthread_barrier_wait(&g->both);
}

static void *disconnect_too(void *arg)
{
	for (int life = 1; life <= LIVES; life++)
		disconnect(arg);
	return NULL;
}

/* Runs @use on the socket and @peer on the other side of its connections. */
static void again(void *(*use)(void *), void *(*peer)(void *), bool twice)
{
	struct sockaddr_storage ss;
	pthread_t user, peers, second;
	struct again g = { .twice = twice };
	socklen_t len;
	char b;

	signal(SIGPIPE, SIG_IGN);
	g.listener = listener_open(NULL, 8);
	ss = listener_addr(g.listener, &len);
	g.fd = side_socket(false, 0);
	MUST(connect(g.fd, (void *)&ss, len));
	MUST(pipe(g.alive));
	pthread_barrier_init(&g.both, NULL, 2);
	if (twice)
		pthread_create(&second, NULL, disconnect_too, &g);
	pthread_create(&peers, NULL, peer, &g);
	pthread_create(&user, NULL, use, &g);
	for (int life = 1; life <= LIVES; life++) {
		where("life %d", life);
		MUST(read(g.alive[0], &b, 1));
		if (life == LIVES)
			__atomic_store_n(&g.stop, true, __ATOMIC_RELAXED);
		disconnect(&g);
		if (life < LIVES)
			MUST(connect(g.fd, (void *)&ss, len));
	}
	pthread_join(user, NULL);
	pthread_join(peers, NULL);
	if (twice)
		pthread_join(second, NULL);
	say("torn %d", g.torn);
	close(g.fd);
	close(g.listener);
	close(g.alive[0]);
	close(g.alive[1]);
}

/* --- sending: a connection begins with some message's first cell --- */

static void *send_messages(void *arg)
{
	static struct cell m[CELLS];
	struct again *g = arg;

	for (uint32_t whole = 0; !stopped(g); whole++) {
		for (uint32_t n = 0; n < CELLS; n++)
			m[n] = (struct cell){ whole, n };
		if (send(g->fd, m, sizeof(m), 0) < 0)
			expected_error("send");
	}
	return NULL;
}

static void receive_messages(struct again *g, int fd)
{
	struct cell buf[2048], next = {};
	size_t have = 0, seen = 0, cells;
	ssize_t n;

	while ((n = recv(fd, (char *)buf + have, sizeof(buf) - have, 0)) > 0) {
		have += n;
		cells = have / sizeof(*buf);
		for (size_t i = 0; i < cells; i++) {
			if (buf[i].n != next.n || (next.n && buf[i].whole != next.whole))
				g->torn = true;
			next = (struct cell){ buf[i].whole, (buf[i].n + 1) % CELLS };
		}
		if (seen < 2 * CELLS && seen + cells >= 2 * CELLS)
			alive(g, fd);
		seen += cells;
		have -= cells * sizeof(*buf);
		memmove(buf, buf + cells, have);
	}
	close(fd);
}

static void *receive_each(void *arg)
{
	struct again *g = arg;

	for (int life = 0; life < LIVES; life++)
		receive_messages(g, MUST(accept(g->listener, NULL, NULL)));
	return NULL;
}

static void reconnect_while_sending(void)
{
	again(send_messages, receive_each, false);
}

/* --- receiving: what a call returns is of one connection, from its first cell on --- */

static void *receive_calls(void *arg)
{
	static struct cell buf[CELLS];
	struct again *g = arg;
	struct cell next = {};
	ssize_t n;

	while (!stopped(g)) {
		n = recv(g->fd, buf, sizeof(buf), MSG_WAITALL);
		if (n < 0)
			expected_error("recv");
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(*buf); i++) {
			bool first = i == 0 && buf[i].n == 0 && buf[i].whole >= next.whole;

			if (!first && (buf[i].n != next.n || buf[i].whole != next.whole))
				g->torn = true;
			next = (struct cell){ buf[i].whole, buf[i].n + 1 };
		}
	}
	return NULL;
}

/* From here on a pair carries what @fd sends by TCP: then its reader drops the lock for each part
 * of a read.
 */
static void go_by_tcp(int fd)
{
	uint64_t rate = 100ull << 30;	/* bytes a second */

	MUST(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)));
}

/* Sends cells until the connection ends. The first @by_ring of them may go by ring. */
static void send_cells(struct again *g, int fd, uint32_t life, uint32_t by_ring, bool tells)
{
	struct cell m[1000];
	uint32_t n = 0;

	for (;;) {
		if (n == by_ring)
			go_by_tcp(fd);
		for (size_t i = 0; i < ARRAY_SIZE(m); i++)
			m[i] = (struct cell){ life, n++ };
		if (send(fd, m, sizeof(m), 0) != sizeof(m))
			break;
		if (tells && n == 100 * ARRAY_SIZE(m))
			alive(g, fd);
	}
	close(fd);
}

static void *send_each(void *arg)
{
	struct again *g = arg;

	for (int life = 0; life < LIVES; life++)
		send_cells(g, MUST(accept(g->listener, NULL, NULL)), life,
			   life % 2 ? 60000 : UINT32_MAX, true);
	return NULL;
}

static void reconnect_while_receiving(void)
{
	again(receive_calls, send_each, false);
}

/* --- both: the disconnect waits for a reader, and no message is cut and another begun then --- */

static void *receive_and_send(void *arg)
{
	struct again *g = arg;
	pthread_t receiver;

	pthread_create(&receiver, NULL, receive_calls, g);
	send_messages(g);
	pthread_join(receiver, NULL);
	return NULL;
}

struct peer {
	struct again *g;
	int fd, life;
};

static void *send_to(void *arg)
{
	struct peer *p = arg;

	send_cells(p->g, p->fd, p->life, 0, false);
	return NULL;
}

static void *both_each(void *arg)
{
	struct again *g = arg;
	pthread_t sender;

	for (int life = 0; life < LIVES; life++) {
		int fd = MUST(accept(g->listener, NULL, NULL));
		struct peer p = { g, MUST(dup(fd)), life };

		pthread_create(&sender, NULL, send_to, &p);
		receive_messages(g, fd);
		pthread_join(sender, NULL);
	}
	return NULL;
}

static void reconnect_while_both(void)
{
	again(receive_and_send, both_each, false);
}

static void reconnect_twice(void)
{
	again(receive_and_send, both_each, true);
}

const struct bcase again_cases[] = {
	CASE_ONCE(reconnect_while_sending), CASE_ONCE(reconnect_while_receiving),
	CASE_ONCE(reconnect_while_both), CASE_ONCE(reconnect_twice),
	{ }
};
