// SPDX-License-Identifier: GPL-2.0
/*
 * shutdown(2), each way, with data in flight and with sleepers.
 */
#include "behave.h"

static void write_side(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(send(k.a, "last", 4, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	say_poll("after FIN, unread", poll_now(k.b));
	SAY_BUF(recv(k.b, b, 2, 0), b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, 0));
	SAY(recv(k.b, b, 64, 0));
	SAY(recv(k.b, b, 64, MSG_DONTWAIT));
	/* The other way stays open. */
	SAY(send(k.b, "still", 5, 0));
	SAY_BUF(recv(k.a, b, 64, 0), b);
	SAY(shutdown(k.a, SHUT_WR));
	say_poll("shut side", poll_now(k.a));
	conn_end(&k);
}

static void read_side(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(send(k.a, "before", 6, 0));
	arrive(k.b, 6);
	SAY(shutdown(k.b, SHUT_RD));
	say_poll("shut, data queued", poll_now(k.b));
	SAY_BUF(recv(k.b, b, 3, 0), b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, 0));
	say_poll("shut, empty", poll_now(k.b));
	/* Linux goes on accepting what comes. */
	SAY(send(k.a, "after", 5, 0));
	arrive(k.b, 5);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, 0));
	SAY(send(k.b, "back", 4, 0));
	SAY_BUF(recv(k.a, b, 64, 0), b);
	conn_end(&k);
}

static void both_sides(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.a, "abc", 3, 0));
	SAY(shutdown(k.a, SHUT_RDWR));
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.a, b, 64, 0));
	arrive_fin(k.b);
	say_poll("peer", poll_now(k.b));
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, 0));
	SAY(shutdown(k.b, SHUT_RDWR));
	arrive_err(k.a);
	say_poll("first", poll_now(k.a));
	say_poll("second", poll_now(k.b));
	SAY(shutdown(k.b, 77));
	conn_end(&k);
}

/* Nobody can read what is sent to a socket shut both ways: TCP answers it with
 * a reset.
 */
static void sending_to_a_shut_peer(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_proof(&k);
	SAY(shutdown(k.b, SHUT_RDWR));
	arrive_fin(k.a);
	SAY(send(k.a, "x", 1, 0));
	arrive_err(k.a);
	say_poll("sender", poll_now(k.a));
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.b, b, 16, 0));
	close(k.a);
	close(k.b);
}

static void wakes_own_reader(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.b, b, 16, 0));
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	SAY(shutdown(k.b, SHUT_RD));
	SAY(call_end(&c));
	conn_end(&k);
}

static void wakes_peers_reader_and_poller(void)
{
	struct pollfd p = { .events = POLLRDHUP };
	struct conn k;
	struct call c, d;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.b, b, 16, 0));
	p.fd = k.b;
	CALL_RECV(&c, k.b, b, 16, 0);
	CALL_POLL(&d, &p);
	call_blocked(&c);
	call_blocked(&d);
	SAY(shutdown(k.a, SHUT_WR));
	SAY(call_end(&c));
	SAY(call_end(&d));
	say_poll("poll", p.revents);
	conn_end(&k);
}

static void wakes_own_writer(void)
{
	size_t len = 64 * MIB;
	struct conn k;
	struct call c;
	uint64_t in = 0;
	char *buf = filled(len);
	long r;

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	CALL_SEND(&c, k.a, buf, len, 0);
	call_blocked(&c);
	SAY(shutdown(k.a, SHUT_WR));
	r = call_end(&c);
	say("partly sent %d", r > 0 && r < (long)len);
	say("all of it came %d", recv_pattern(k.b, len, &in) == r);
	conn_end(&k);
}

/* The reader shut its own sending side first; the writer's FIN then brings
 * TIME_WAIT, and the reader's data must survive that.
 */
static void half_close_then_drain(size_t len, bool writer_closes)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	char b[8];

	conn_start_with(&k, prep_big_buffers);
	SAY(shutdown(k.b, SHUT_WR));
	arrive_fin(k.a);
	SAY(recv(k.a, b, 8, 0));
	for (size_t n = 0; n < len; n += 20 * KIB)
		send_pattern(k.a, 20 * KIB, &out, 0);
	conn_proof(&k);
	if (writer_closes)
		SAY(close(k.a));
	else
		SAY(shutdown(k.a, SHUT_WR));
	arrive_err(k.b);
	say_poll("reader", poll_now(k.b));
	say("received %ld of %llu", recv_pattern(k.b, len, &in), (unsigned long long)out);
	SAY(recv(k.b, b, 8, 0));
	SAY(recv(k.b, b, 8, 0));
	close(k.b);
}

static void half_close_then_drain_ring(void)
{
	half_close_then_drain(40 * KIB, true);
	half_close_then_drain(40 * KIB, false);
}

static void half_close_then_drain_spilled(void)
{
	half_close_then_drain(200 * KIB, true);
	half_close_then_drain(200 * KIB, false);
}

static void drained_by_sleeping_reader(void)
{
	struct stream r = { .mode = STREAM_RECV };
	struct stream s = { .mode = STREAM_SEND | STREAM_BIG, .len = 4 * MIB };
	struct conn k;

	conn_start(&k);
	r.fd = k.b;
	s.fd = k.a;
	where("stream, then FIN");
	stream_start(&r);
	stream_start(&s);
	stream_end(&s);
	conn_proof(&k);
	SAY(close(k.a));
	stream_end(&r);
	say("sent %ld received %ld damaged %d err %d", s.done, r.done, r.damaged, r.err);
}

static void both_ways_then_both_shut(void)
{
	struct stream s[4] = {
		{ .mode = STREAM_SEND, .len = MIB }, { .mode = STREAM_RECV },
		{ .mode = STREAM_SEND, .len = MIB }, { .mode = STREAM_RECV },
	};
	struct conn k;

	conn_start(&k);
	s[0].fd = s[3].fd = k.a;
	s[1].fd = s[2].fd = k.b;
	where("streams both ways");
	for (int i = 0; i < 4; i++)
		stream_start(&s[i]);
	stream_end(&s[0]);
	shutdown(k.a, SHUT_WR);
	stream_end(&s[2]);
	conn_proof(&k);
	shutdown(k.b, SHUT_WR);
	stream_end(&s[1]);
	stream_end(&s[3]);
	for (int i = 0; i < 4; i++)
		say("stream %d: %ld damaged %d err %d", i, s[i].done, s[i].damaged, s[i].err);
	conn_end(&k);
}

const struct bcase shut_cases[] = {
	CASE(write_side), CASE(read_side), CASE(both_sides),
	CASE(sending_to_a_shut_peer), CASE(wakes_own_reader),
	CASE(wakes_peers_reader_and_poller), CASE(wakes_own_writer),
	CASE(half_close_then_drain_ring), CASE(half_close_then_drain_spilled),
	CASE(drained_by_sleeping_reader), CASE(both_ways_then_both_shut),
	{ }
};
