// SPDX-License-Identifier: GPL-2.0
/*
 * Edge-triggered epoll: each arrival is an edge. New space is an edge for a sender that
 * has met EAGAIN.
 */
#include "behave.h"

#include <sys/epoll.h>

static int ep_add(int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events | EPOLLET, .data.fd = fd };
	int ep = MUST(epoll_create1(0));

	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	return ep;
}

static void edge(int ep, int timeout)
{
	struct epoll_event ev = { };

	where("epoll_wait(%d)", timeout);
	if (say_ret("epoll_wait", epoll_wait(ep, &ev, 1, timeout)) > 0)
		say_poll("event", ev.events);
}

static void every_arrival_is_an_edge(void)
{
	struct conn k;
	char b[64];
	int ep;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN);
	edge(ep, 0);
	for (int i = 1; i <= 4; i++) {
		SAY(send(k.a, "x", 1, 0));
		arrive(k.b, i);
		edge(ep, -1);
		edge(ep, 0);
	}
	SAY(recv(k.b, b, 2, 0));
	edge(ep, 0);
	SAY(send(k.a, "y", 1, 0));
	arrive(k.b, 3);
	edge(ep, -1);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, MSG_DONTWAIT));
	SAY(send(k.a, "z", 1, 0));
	edge(ep, -1);
	conn_end(&k);
}

static void in_and_out(void)
{
	struct conn k;
	char b[8];
	int ep;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	edge(ep, 0);
	edge(ep, 0);
	SAY(send(k.a, "x", 1, 0));
	arrive(k.b, 1);
	edge(ep, -1);
	SAY(recv(k.b, b, 8, 0));
	edge(ep, 0);
	SAY(shutdown(k.a, SHUT_WR));
	edge(ep, -1);
	conn_end(&k);
}

static void space_is_an_edge(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	int ep;

	conn_start(&k);
	ep = ep_add(k.a, EPOLLOUT);
	edge(ep, 0);
	for (int i = 0; i < 3; i++) {
		send_until_eagain(k.a, &out, 64 * MIB);
		recv_pattern(k.b, out - in, &in);
		edge(ep, -1);
		say("sent %ld", send_pattern(k.a, 100, &out, MSG_DONTWAIT));
	}
	conn_end(&k);
}

/* New room in the ring is no edge for a sender that was never refused. TCP would not have
 * reported it either.
 */
static void room_in_the_ring_is_none(void)
{
	static char b[100 * KIB];
	uint64_t in = 0;
	struct conn k;
	struct call c;
	int ep;

	fill(b, sizeof(b), 0);
	conn_start_with(&k, prep_big_buffers);
	ep = ep_add(k.a, EPOLLIN | EPOLLOUT);
	edge(ep, 0);
	for (int i = 0; i < 5; i++) {
		CALL_SEND(&c, k.a, b, sizeof(b), 0);
		in = 0;
		say("read %ld", recv_pattern(k.b, sizeof(b), &in));
		SAY(call_end(&c));
		edge(ep, 0);
	}
	conn_end(&k);
}

static void fin_is_an_edge(void)
{
	struct conn k;
	char b[8];
	int ep;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN | EPOLLRDHUP);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	edge(ep, -1);
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	edge(ep, -1);
	SAY_BUF(recv(k.b, b, 8, 0), b);
	SAY(recv(k.b, b, 8, 0));
	conn_end(&k);
}

/* Ring bytes and TCP bytes together reach SO_RCVLOWAT: one edge. Then comes a FIN, which TCP
 * acknowledges 40 ms later: one edge. There is no edge below the mark, nor during those 40 ms.
 * Bytes sent with MSG_ZEROCOPY go over TCP.
 */
static void edges_with_a_mark(void)
{
	uint64_t out = 0, in = 0;
	int low = 100, ep;
	struct conn k;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	ep = ep_add(k.b, EPOLLIN | EPOLLOUT);
	edge(ep, 0);
	for (int i = 0; i < 2; i++) {
		say("%ld", send_pattern(k.a, 60, &out, 0));
		arrive(k.b, 60);
		edge(ep, 0);
		say("%ld", send_pattern(k.a, 60, &out, MSG_ZEROCOPY));
		edge(ep, -1);
		edge(ep, 100);
		say("%ld", recv_pattern(k.b, 120, &in));
	}
	say("%ld", send_pattern(k.a, 60, &out, 0));
	arrive(k.b, 60);
	edge(ep, 0);
	SAY(shutdown(k.a, SHUT_WR));
	/* arrive_state() takes the socket's lock, under which TCP wakes the poller twice. */
	arrive_state(k.b, 8 /* CLOSE_WAIT */);
	edge(ep, -1);
	edge(ep, 100);
	say("%ld", recv_pattern(k.b, 60, &in));
	conn_end(&k);
}

/* The first bytes have caused an edge when SO_RCVLOWAT is raised. TCP_CORK still holds back the
 * bytes that reach the mark. No task polls in between.
 */
static void mark_raised_after_an_edge(void)
{
	uint64_t out = 0, in = 0;
	int low = 1000, ep;
	struct conn k;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN);
	say("%ld", send_pattern(k.a, 900, &out, 0));
	arrive(k.b, 900);
	edge(ep, -1);
	say("%ld", send_pattern(k.a, 200, &out, MSG_ZEROCOPY | MSG_MORE));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	edge(ep, -1);
	say("%ld", recv_pattern(k.b, 1100, &in));
	conn_end(&k);
}

/* Setting SO_RCVLOWAT causes an edge if enough bytes are unread, whether the mark is lowered
 * or raised. That holds for bytes that were below the old mark. It also holds for bytes that
 * have had their edge.
 */
static void mark_is_an_edge(void)
{
	static const int marks[] = { 600, 500, 400, 1000, 501, 1 };
	uint64_t out = 0, in = 0;
	int low = 1000, ep;
	struct conn k;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN | EPOLLOUT);
	edge(ep, 0);
	for (int i = 0; i < 2; i++) {
		if (!i)
			SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
		say("%ld", send_pattern(k.a, 500, &out, 0));
		arrive(k.b, 500);
		edge(ep, 0);
		for (unsigned int j = 0; j < sizeof(marks) / sizeof(*marks); j++) {
			SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &marks[j], sizeof(*marks)));
			edge(ep, 0);
			edge(ep, 0);
		}
		say("%ld", recv_pattern(k.b, 500, &in));
	}
	conn_end(&k);
}

static void reset_is_an_edge(void)
{
	struct conn k;
	char b[8];
	int ep;

	conn_start(&k);
	ep = ep_add(k.b, EPOLLIN | EPOLLRDHUP);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	edge(ep, -1);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	arrive_err(k.b);
	edge(ep, -1);
	SAY_BUF(recv(k.b, b, 8, 0), b);
	SAY(recv(k.b, b, 8, 0));
	SAY(recv(k.b, b, 8, 0));
}

/* An event loop like those of servers. */
struct looper {
	int fd, ep;
	uint64_t in, out, rng;
	uint64_t owed;		/* bytes of a reply not yet sent */
	bool damaged;
	uint64_t goal;		/* bytes to receive */
	bool starts;
};

static void looper_send(struct looper *l)
{
	static const size_t max = 64 * KIB;

	while (l->owed) {
		long r = send_pattern(l->fd, l->owed < max ? l->owed : max, &l->out,
				      MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r <= 0)
			return;
		l->owed -= r;
	}
}

static void looper_recv(struct looper *l)
{
	char b[20000];
	long r;

	while ((r = recv(l->fd, b, sizeof(b), MSG_DONTWAIT)) > 0) {
		if (!is_pattern(b, r, l->in))
			l->damaged = true;
		l->in += r;
		l->owed += r;
	}
}

static void *looper_run(void *arg)
{
	struct looper *l = arg;
	struct epoll_event ev;

	if (l->starts)
		l->owed = l->goal / 16;
	looper_send(l);
	while (l->in < l->goal && !l->damaged) {
		if (epoll_wait(l->ep, &ev, 1, -1) < 1)
			break;
		looper_recv(l);
		if (l->out + l->owed > l->goal)
			l->owed = l->goal - l->out;
		looper_send(l);
	}
	while (l->out < l->goal && !l->damaged) {
		l->owed = l->goal - l->out;
		looper_send(l);
		if (l->owed)
			epoll_wait(l->ep, &ev, 1, -1);
	}
	return NULL;
}

/* Two edge-triggered loops echo each other's bytes. If one edge is lost, they hang. */
static void event_loops(void)
{
	struct looper l[2] = { { .goal = 8 * MIB, .starts = true }, { .goal = 8 * MIB } };
	pthread_t t[2];
	struct conn k;

	conn_start(&k);
	for (int i = 0; i < 2; i++) {
		l[i].fd = i ? k.b : k.a;
		l[i].ep = ep_add(l[i].fd, EPOLLIN | EPOLLOUT);
	}
	where("two event loops");
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, looper_run, &l[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++)
		say("loop %d: in %llu out %llu damaged %d", i, (unsigned long long)l[i].in,
		    (unsigned long long)l[i].out, l[i].damaged);
	conn_end(&k);
}

const struct bcase edge_cases[] = {
	CASE(every_arrival_is_an_edge), CASE(in_and_out), CASE(space_is_an_edge),
	CASE(room_in_the_ring_is_none), CASE(fin_is_an_edge), CASE_PAIR(edges_with_a_mark),
	CASE(mark_raised_after_an_edge), CASE_PAIR(mark_is_an_edge),
	CASE(reset_is_an_edge), CASE(event_loops),
	{ }
};
