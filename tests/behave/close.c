// SPDX-License-Identifier: GPL-2.0
/*
 * How connections end: close with and without unread data, SO_LINGER, resets and
 * disconnect. Also keepalive and TCP_USER_TIMEOUT, which must not end a live one.
 */
#include "behave.h"

#include <time.h>

static void peer_drains_after_close(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	char b[8];

	conn_start(&k);
	send_pattern(k.a, 40 * KIB, &out, 0);
	conn_proof(&k);
	SAY(close(k.a));
	arrive_fin(k.b);
	say_poll("closed", poll_now(k.b));
	say("received %ld", recv_pattern(k.b, 40 * KIB, &in));
	SAY(recv(k.b, b, 8, 0));
	close(k.b);
}

static void spilled_then_closed(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	char b[8];

	conn_start_with(&k, prep_big_buffers);
	for (int i = 0; i < 20; i++)
		send_pattern(k.a, 15 * KIB, &out, 0);
	conn_proof(&k);
	SAY(close(k.a));
	say("received %ld", recv_pattern(k.b, 300 * KIB, &in));
	SAY(recv(k.b, b, 8, 0));
	SAY(recv(k.b, b, 8, MSG_DONTWAIT));
	close(k.b);
}

/* Closing over unread data resets the peer (RFC 2525, 2.17). */
static void unread_data_resets(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.a, "never read", 10, 0));
	arrive(k.b, 10);
	conn_proof(&k);
	SAY(close(k.b));
	arrive_err(k.a);
	say_poll("reset", poll_now(k.a));
	SAY(recv(k.a, b, 16, 0));
	SAY(recv(k.a, b, 16, 0));
	SAY(send(k.a, "x", 1, 0));
	close(k.a);
}

static void unread_data_resets_writer_first(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.a, "never read", 10, 0));
	arrive(k.b, 10);
	conn_proof(&k);
	SAY(close(k.b));
	arrive_err(k.a);
	SAY(send(k.a, "x", 1, 0));
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.a, b, 16, 0));
	close(k.a);
}

/* The peer still has unread data when the reset arrives. */
static void unread_on_both_sides(void)
{
	struct conn k;
	char b[32];

	conn_start(&k);
	SAY(send(k.a, "never read", 10, 0));
	SAY(send(k.b, "read after the reset", 20, 0));
	arrive(k.b, 10);
	arrive(k.a, 20);
	conn_proof(&k);
	SAY(close(k.b));
	arrive_err(k.a);
	say_poll("reset", poll_now(k.a));
	SAY_BUF(recv(k.a, b, 7, 0), b);
	SAY_BUF(recv(k.a, b, 32, 0), b);
	SAY(recv(k.a, b, 32, 0));
	SAY(recv(k.a, b, 32, 0));
	close(k.a);
}

/* One byte is left unread; then all bytes are only peeked at. Each close resets. */
static void partly_read_resets(void)
{
	for (int peek = 0; peek < 2; peek++) {
		struct conn k;
		char b[16];

		conn_start(&k);
		SAY(send(k.a, "abc", 3, 0));
		arrive(k.b, 3);
		SAY_BUF(recv(k.b, b, peek ? 3 : 2, peek ? MSG_PEEK : 0), b);
		conn_proof(&k);
		SAY(close(k.b));
		arrive_err(k.a);
		SAY(recv(k.a, b, 16, 0));
		close(k.a);
	}
}

static void linger_zero(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "readable", 8, 0));
	arrive(k.b, 8);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	arrive_err(k.b);
	say_poll("reset", poll_now(k.b));
	SAY_BUF(recv(k.b, b, 3, 0), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(recv(k.b, b, 16, 0));
	SAY(recv(k.b, b, 16, 0));
	close(k.b);
}

static void linger_positive(void)
{
	struct linger l = { .l_onoff = 1, .l_linger = 20 };
	struct timespec t0, t1;
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	SAY(send(k.a, "later", 5, 0));
	conn_proof(&k);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	SAY(close(k.a));
	clock_gettime(CLOCK_MONOTONIC, &t1);
	say("did not wait for the reader %d", t1.tv_sec - t0.tv_sec < 15);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(recv(k.b, b, 16, 0));
	close(k.b);
}

static void so_error_after_reset(void)
{
	struct conn k;
	socklen_t len = sizeof(int);
	int err = -1;
	char b[8];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 8, 0), b);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	arrive_err(k.b);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_ERROR, &err, &len));
	say("SO_ERROR %s", strerrorname_np(err));
	SAY(getsockopt(k.b, SOL_SOCKET, SO_ERROR, &err, &len));
	say("SO_ERROR %d", err);
	SAY(recv(k.b, b, 8, 0));
	close(k.b);
}

static void reset_wakes_reader(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	SAY(call_end(&c));
	SAY(recv(k.b, b, 16, 0));
	close(k.b);
}

static void reset_wakes_poller(void)
{
	struct pollfd p = { .events = POLLIN };
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	p.fd = k.b;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	SAY(recv(k.b, b, 16, 0));
	close(k.b);
}

/* b resets while a sleeps in a send of @len bytes. */
static void reset_under_writer(struct conn *k, struct call *c, size_t len)
{
	long r;

	call_blocked(c);
	conn_proof(k);
	reset_on_close(k->b);
	SAY(close(k->b));
	r = call_end(c);
	say("partly sent %d", r > 0 && r < (long)len);
	arrive_err(k->a);
}

static void reset_wakes_writer(void)
{
	size_t len = 64 * MIB;
	struct conn k;
	struct call c;
	char *buf = filled(len);

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	CALL_SEND(&c, k.a, buf, len, 0);
	reset_under_writer(&k, &c, len);
	SAY(send(k.a, "x", 1, 0));
	SAY(send(k.a, "x", 1, 0));
	close(k.a);
}

static void prep_small_buffers(int fd, bool listener)
{
	int size = 16 * KIB;

	(void)listener;
	MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
}

/* A reset after the peer's FIN reports EPIPE. A writer that the reset has cut short returns
 * its count, and SO_ERROR keeps the error.
 */
static void reset_after_fin_wakes_writer(void)
{
	size_t len = 4 * MIB;
	socklen_t olen = sizeof(int);
	uint64_t out = 0;
	struct conn k;
	struct call c;
	char *buf = malloc(len);
	int err = -1;

	conn_start_with(&k, prep_small_buffers);
	signal(SIGPIPE, SIG_IGN);
	fill(buf, len, 0);
	SAY(shutdown(k.b, SHUT_WR));
	arrive_fin(k.a);
	CALL_SEND(&c, k.a, buf, len, 0);
	call_blocked(&c);
	send_until_eagain(k.a, &out, 64 * MIB);
	reset_under_writer(&k, &c, len);
	say_poll("poll", poll_now(k.a));
	SAY(getsockopt(k.a, SOL_SOCKET, SO_ERROR, &err, &olen));
	say("error %d", err);
	close(k.a);
}

static void disconnect_and_reuse(void)
{
	struct sockaddr un = { .sa_family = AF_UNSPEC };
	struct sockaddr_storage ss;
	struct conn k, k2;
	socklen_t len;
	char b[32];
	int l;

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.server, "unread, must vanish", 19, 0));
	arrive(k.client, 19);
	conn_proof(&k);
	SAY(connect(k.client, &un, sizeof(un)));
	arrive_err(k.server);
	say_poll("peer", poll_now(k.server));
	SAY(recv(k.server, b, 32, 0));
	SAY(recv(k.client, b, 32, MSG_DONTWAIT));
	SAY(send(k.client, "x", 1, 0));
	say_poll("disconnected", poll_now(k.client));
	close(k.server);

	l = listener_open(NULL, 8);
	ss = listener_addr(l, &len);
	SAY(connect(k.client, (void *)&ss, len));
	conn_adopt(&k2, k.client, MUST(accept(l, NULL, NULL)));
	conn_warm(&k2);
	SAY(send(k2.client, "second life", 11, 0));
	SAY_BUF(recv(k2.server, b, 32, 0), b);
	SAY(send(k2.server, "indeed", 6, 0));
	SAY_BUF(recv(k2.client, b, 32, 0), b);
	conn_end(&k2);
}

static void keepalive(void)
{
	int on = 1, one = 1, two = 2, got = -1;
	struct pollfd p = { .events = POLLIN };
	socklen_t len = sizeof(got);
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start(&k);
	SAY(getsockopt(k.a, SOL_SOCKET, SO_KEEPALIVE, &got, &len));
	say("%d", got);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one)));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_KEEPCNT, &two, sizeof(two)));
	send_pattern(k.a, 30 * KIB, &out, 0);
	p.fd = k.a;
	/* Long enough for a faulty keepalive to end the connection. */
	SAY(poll(&p, 1, 3500));
	say("received %ld", recv_pattern(k.b, 30 * KIB, &in));
	SAY(getsockopt(k.a, IPPROTO_TCP, TCP_KEEPIDLE, &got, &len));
	say("%d", got);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_KEEPALIVE, &got, &len));
	say("%d", got);
	conn_end(&k);
}

/* TCP_USER_TIMEOUT does not abort a writer whose bytes were accepted before the reader stopped. */
static void user_timeout(void)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t out = 0, in = 0;
	unsigned int ms = 500, got = 0;
	socklen_t len = sizeof(got);
	struct conn k;

	conn_start(&k);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)));
	SAY(getsockopt(k.a, IPPROTO_TCP, TCP_USER_TIMEOUT, &got, &len));
	say("%u", got);
	send_pattern(k.a, 40 * KIB, &out, 0);
	p.fd = k.a;
	SAY(poll(&p, 1, 1500));
	say("received %ld", recv_pattern(k.b, 40 * KIB, &in));
	conn_end(&k);
}

static void states(void)
{
	struct conn k;
	char b[8];

	conn_start(&k);
	arrive_state(k.a, 1 /* ESTABLISHED */);
	arrive_state(k.b, 1);
	SAY(send(k.a, "abc", 3, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_state(k.a, 5 /* FIN_WAIT2 */);
	arrive_state(k.b, 8 /* CLOSE_WAIT */);
	SAY(send(k.b, "def", 3, 0));
	SAY_BUF(recv(k.a, b, 8, 0), b);
	SAY(shutdown(k.b, SHUT_WR));
	arrive_state(k.a, 7 /* CLOSE */);
	SAY_BUF(recv(k.b, b, 8, 0), b);
	SAY(recv(k.b, b, 8, 0));
	SAY(recv(k.a, b, 8, 0));
	conn_end(&k);
}

const struct bcase close_cases[] = {
	CASE(peer_drains_after_close), CASE(spilled_then_closed), CASE(unread_data_resets),
	CASE(unread_data_resets_writer_first), CASE(unread_on_both_sides),
	CASE(partly_read_resets), CASE(linger_zero), CASE(linger_positive),
	CASE(so_error_after_reset), CASE(reset_wakes_reader), CASE(reset_wakes_poller),
	CASE(reset_wakes_writer), CASE(reset_after_fin_wakes_writer),
	CASE_ONCE(disconnect_and_reuse), CASE_SLOW(keepalive), CASE_SLOW(user_timeout),
	CASE(states),
	{ }
};
