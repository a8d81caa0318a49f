// SPDX-License-Identifier: GPL-2.0
/*
 * What TCP does once its peer takes no more: timers that end a connection whose bytes find
 * the receive window closed, and those that do not while the receive buffer holds them.
 */
#include "behave.h"

#include <sched.h>

#define SMALL	4096	/* SO_RCVBUF of the small buffers */
#define BYTES	40000	/* of which TCP and a ring together cannot take half there */
#define TIMEOUT	1000	/* ms; TCP_USER_TIMEOUT */

static void rcvbuf(int fd, int size)
{
	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
}

static void prep_small_rcvbuf(int fd, bool listener)
{
	(void)listener;
	rcvbuf(fd, SMALL);
}

static void prep_64k_rcvbuf(int fd, bool listener)
{
	(void)listener;
	rcvbuf(fd, 64 * KIB);
}

static void prep_16k_rcvbuf(int fd, bool listener)
{
	(void)listener;
	rcvbuf(fd, 16 * KIB);
}

static void user_timeout_is(int fd, unsigned int ms)
{
	SAY(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)));
}

/* The ring holds no more than the reader's SO_RCVBUF. */
static void ring_holds_at_most(const struct conn *k, uint64_t n)
{
	struct pair_info info;

	if (!env.paired || pairs_find(k->cookie[0], k->cookie[1], &info))
		return;
	for (int i = 0; i < 2; i++) {
		if (info.rings[i] > n)
			fail("the ring holds %ld bytes", (long)info.rings[i]);
	}
}

/* What b gets of a connection that a's TCP has given up: less than was sent, and a reset. */
static void say_cut_short(int b)
{
	static char buf[64 * KIB];
	long got = 0, r;

	where("reading what is left");
	while ((r = recv(b, buf, sizeof(buf), 0)) > 0)
		got += r;
	say("got some %d, all %d", got > 0, got >= BYTES);
	SAY(r);
}

/* TCP ends a connection whose bytes the reader does not take in time. */
static void user_timeout_closed_window(void)
{
	struct pollfd p = { .events = POLLIN };
	socklen_t len = sizeof(int);
	uint64_t out = 0;
	struct conn k;
	int err = -1;
	long t0;

	conn_start_with(&k, prep_small_rcvbuf);
	user_timeout_is(k.a, TIMEOUT);
	t0 = tick_ms();
	say("sent %ld", send_pattern(k.a, BYTES, &out, 0));
	conn_proof(&k);
	ring_holds_at_most(&k, SMALL);
	p.fd = k.a;
	SAY(poll(&p, 1, 20 * TIMEOUT));
	say_poll("ended", p.revents);
	say("in time %d", tick_ms() - t0 >= TIMEOUT / 2 && tick_ms() - t0 < 10 * TIMEOUT);
	SAY(getsockopt(k.a, SOL_SOCKET, SO_ERROR, &err, &len));
	say("SO_ERROR %s", strerrorname_np(err));
	SAY(send(k.a, "x", 1, MSG_NOSIGNAL));
	say_cut_short(k.b);
	close(k.a);
	close(k.b);
}

/* The same of bytes that the buffer holds: they are acknowledged. With keepalive, as gRPC
 * has it.
 */
static void user_timeout_open_window(void)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t out = 0, in = 0;
	int one = 1;
	struct conn k;

	conn_start_with(&k, prep_64k_rcvbuf);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one)));
	user_timeout_is(k.a, TIMEOUT);
	say("sent %ld", send_pattern(k.a, BYTES, &out, 0));
	p.fd = k.a;
	SAY(poll(&p, 1, 3 * TIMEOUT));
	say("received %ld", recv_pattern(k.b, BYTES, &in));
	SAY(poll(&p, 1, 0));
	conn_end(&k);
}

static void user_timeout_few_bytes(void)
{
	struct pollfd p = { .events = POLLIN };
	struct conn k;
	char b[16];

	conn_start_with(&k, prep_small_rcvbuf);
	user_timeout_is(k.a, TIMEOUT / 2);
	SAY(send(k.a, "ten bytes.", 10, 0));
	p.fd = k.a;
	SAY(poll(&p, 1, 2 * TIMEOUT));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

/* Asleep in send(2) when its time is over. */
static void user_timeout_wakes_writer(void)
{
	size_t len = 4 * MIB;
	char *buf = filled(len);
	struct conn k;
	struct call c;
	long r;

	conn_start_with(&k, prep_small_rcvbuf);
	user_timeout_is(k.a, TIMEOUT);
	CALL_SEND(&c, k.a, buf, len, MSG_NOSIGNAL);
	call_blocked(&c);
	conn_proof(&k);
	r = call_end(&c);
	say("sent some %d, all %d", r > 0, r == (long)len);
	SAY(send(k.a, "x", 1, MSG_NOSIGNAL));
	SAY(send(k.a, "x", 1, MSG_NOSIGNAL));
	say_cut_short(k.b);
	close(k.a);
	close(k.b);
}

/* Until no socket of this host has local port @port and remote port @peer. */
static void arrive_gone(int port, int peer)
{
	static const char *const file[] = { "/proc/net/tcp", "/proc/net/tcp6" };
	unsigned int at, to;
	char line[512];
	bool found;

	where("waiting for the orphan to end");
	do {
		found = false;
		for (int i = 0; i < 2; i++) {
			FILE *f = fopen(file[i], "r");

			while (f && fgets(line, sizeof(line), f))
				found |= sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%x",
						&at, &to) == 2 &&
					 (int)at == port && (int)to == peer;
			if (f)
				fclose(f);
		}
		usleep(10000);
	} while (found);
}

static int local_port(int fd)
{
	struct sockaddr_in6 sa;
	socklen_t len = sizeof(sa);

	MUST(getsockname(fd, (void *)&sa, &len));
	return ntohs(sa.sin6_port);	/* as sin_port */
}

static void orphan(unsigned int user_timeout)
{
	int port, peer;
	uint64_t out = 0;
	struct conn k;

	conn_start_with(&k, prep_small_rcvbuf);
	port = local_port(k.a);
	peer = local_port(k.b);
	if (user_timeout)
		user_timeout_is(k.a, user_timeout);
	say("sent %ld", send_pattern(k.a, BYTES, &out, 0));
	conn_proof(&k);
	SAY(close(k.a));
	arrive_gone(port, peer);
	say_cut_short(k.b);
	close(k.b);
}

/* Nobody is told when TCP gives a closed socket's bytes up. */
static void user_timeout_orphan(void)
{
	orphan(TIMEOUT);
}

/* By tcp_orphan_retries, once the time between two probes has reached its bound. */
static void orphan_retries(void)
{
	const char *const bound = "/proc/sys/net/ipv4/tcp_rto_max_ms";

	if (access(bound, F_OK))
		skip("without %s it takes minutes", bound);
	MUST(unshare(CLONE_NEWNET));
	MUST(system("ip link set lo up") ? -1 : 0);
	side_sysctl(false, "tcp_rto_max_ms", "1000");
	side_sysctl(false, "tcp_orphan_retries", "1");
	orphan(0);
}

/* close(2) waits for bytes that the reader's buffer has no room for, and for no others. */
static void linger(int seconds, size_t bytes)
{
	struct linger l = { .l_onoff = 1, .l_linger = seconds };
	uint64_t out = 0;
	struct conn k;
	long t0;

	conn_start_with(&k, prep_small_rcvbuf);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	say("sent %ld", send_pattern(k.a, bytes, &out, 0));
	conn_proof(&k);
	t0 = tick_ms();
	SAY(close(k.a));
	say("waited %d", tick_ms() - t0 >= 900);
	close(k.b);
}

static void linger_closed_window(void)
{
	linger(1, BYTES);
}

static void linger_open_window(void)
{
	linger(20, 1000);
}

/* Bytes that wait for the reader's window are not sent; those it has taken are. */
static void notsent_lowat(void)
{
	struct pollfd p = { .events = POLLOUT };
	uint64_t out = 0, in = 0;
	int lowat = SMALL;
	struct conn k;
	long n;

	conn_start_with(&k, prep_small_rcvbuf);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat)));
	nonblock(k.a, true);
	n = send_until_eagain(k.a, &out, 64 * MIB);
	say("bounded %d", n > 0 && n < 512 * KIB);
	conn_proof(&k);
	p.fd = k.a;
	SAY(poll(&p, 1, 0));
	say("all received %d", recv_pattern(k.b, n, &in) == n);
	SAY(poll(&p, 1, -1));
	say_poll("drained", p.revents);
	conn_end(&k);
}

/* A buffer that shrinks and grows under bytes that wait loses none. */
static void rcvbuf_changes(void)
{
	const int size[] = { 0, 64 * KIB, SMALL, 256 * KIB };
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_64k_rcvbuf);
	send_pattern(k.a, 30 * KIB, &out, 0);
	arrive(k.b, 30 * KIB);
	for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
		rcvbuf(k.b, size[i]);
		say("sent %ld", send_pattern(k.a, 10 * KIB, &out, 0));
		say("received %ld", recv_pattern(k.b, 10 * KIB, &in));
	}
	say("received %ld", recv_pattern(k.b, 30 * KIB, &in));
	conn_end(&k);
}

/* Both ways at once through buffers that are smaller than a ring. */
static void rcvbuf_streams(void)
{
	struct stream s[4];
	struct conn k;

	conn_start_with(&k, prep_16k_rcvbuf);
	for (int i = 0; i < 4; i++) {
		s[i] = (struct stream){ .fd = i == 0 || i == 3 ? k.a : k.b, .len = MIB,
					.rng = env.seed + i,
					.mode = i % 2 ? STREAM_RECV : STREAM_SEND };
		stream_start(&s[i]);
	}
	for (int i = 0; i < 4; i++) {
		stream_end(&s[i]);
		say("%d: %ld bytes, error %d, damaged %d", i, s[i].done, s[i].err, s[i].damaged);
	}
	conn_end(&k);
}

const struct bcase window_cases[] = {
	CASE_SLOW(user_timeout_closed_window), CASE_SLOW(user_timeout_open_window),
	CASE_SLOW(user_timeout_few_bytes), CASE_SLOW(user_timeout_wakes_writer),
	CASE_SLOW(user_timeout_orphan), CASE_SLOW(orphan_retries),
	CASE_SLOW(linger_closed_window), CASE(linger_open_window), CASE(notsent_lowat),
	CASE(rcvbuf_changes), CASE_ONCE(rcvbuf_streams),
	{ }
};
