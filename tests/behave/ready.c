// SPDX-License-Identifier: GPL-2.0
/*
 * Readiness: poll, select, level-triggered epoll, SO_RCVLOWAT and SIGIO.
 */
#include "behave.h"

#include <sys/epoll.h>
#include <sys/select.h>

static void poll_masks(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	say_poll("idle", poll_now(k.b));
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	say_poll("three bytes", poll_now(k.b));
	say_poll("sender", poll_now(k.a));
	SAY(recv(k.b, b, 2, 0));
	say_poll("one byte", poll_now(k.b));
	SAY(recv(k.b, b, 64, 0));
	say_poll("drained", poll_now(k.b));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	say_poll("after FIN", poll_now(k.b));
	SAY(shutdown(k.b, SHUT_WR));
	arrive_err(k.a);
	say_poll("both shut, first", poll_now(k.a));
	say_poll("both shut, second", poll_now(k.b));
	conn_end(&k);
}

static void poll_wakes(void)
{
	struct pollfd p = { .events = POLLIN };
	struct conn k;
	struct call c;
	char b[8];

	conn_start(&k);
	p.fd = k.b;
	for (int i = 0; i < 3; i++) {
		CALL_POLL(&c, &p);
		call_blocked(&c);
		SAY(send(k.a, "x", 1, 0));
		SAY(call_end(&c));
		say_poll("poll", p.revents);
		SAY(recv(k.b, b, 8, 0));
	}
	conn_end(&k);
}

static void select_wakes(void)
{
	struct conn k;
	struct call c;
	fd_set set;
	char b[8];

	conn_start(&k);
	FD_ZERO(&set);
	FD_SET(k.b, &set);
	CALL_SELECT(&c, k.b + 1, &set);
	call_blocked(&c);
	SAY(send(k.a, "x", 1, 0));
	SAY(call_end(&c));
	say("set %d", FD_ISSET(k.b, &set));
	SAY(recv(k.b, b, 8, 0));
	conn_end(&k);
}

static void epoll_level(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	struct conn k;
	struct call c;
	char b[64];
	int ep = epoll_create1(0);

	conn_start(&k);
	SAY(epoll_ctl(ep, EPOLL_CTL_ADD, k.b, &ev));
	SAY(epoll_wait(ep, &ev, 1, 0));
	CALL_EPOLL(&c, ep, &ev);
	call_blocked(&c);
	SAY(send(k.a, "abc", 3, 0));
	SAY(call_end(&c));
	say_poll("event", ev.events);
	arrive(k.b, 3);
	for (int i = 0; i < 3; i++) {
		SAY(epoll_wait(ep, &ev, 1, 0));
		SAY(recv(k.b, b, 1, 0));
	}
	SAY(epoll_wait(ep, &ev, 1, 0));
	SAY(shutdown(k.a, SHUT_WR));
	SAY(epoll_wait(ep, &ev, 1, -1));
	say_poll("event", ev.events);
	conn_end(&k);
}

static void epoll_oneshot(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT };
	int ep = epoll_create1(0);
	struct conn k;

	conn_start(&k);
	SAY(epoll_ctl(ep, EPOLL_CTL_ADD, k.b, &ev));
	SAY(send(k.a, "abc", 3, 0));
	SAY(epoll_wait(ep, &ev, 1, -1));
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 6);
	SAY(epoll_wait(ep, &ev, 1, 0));
	ev.events = EPOLLIN | EPOLLONESHOT;
	SAY(epoll_ctl(ep, EPOLL_CTL_MOD, k.b, &ev));
	SAY(epoll_wait(ep, &ev, 1, 0));
	conn_end(&k);
}

/* A full socket is not writable, and becomes writable once the reader has read. */
static void poll_full_then_drained(void)
{
	struct pollfd p = { .events = POLLOUT };
	uint64_t out = 0, in = 0;
	struct conn k;
	struct call c;

	conn_start(&k);
	p.fd = k.a;
	say("took at least 64 KiB: %d", send_until_eagain(k.a, &out, 64 * MIB) >= 64 * KIB);
	say_poll("full", poll_now(k.a) & POLLOUT);
	CALL_POLL(&c, &p);
	call_blocked(&c);
	say("drained all: %d", recv_pattern(k.b, out, &in) == (long)out);
	SAY(call_end(&c));
	say_poll("drained", p.revents);
	say("took a byte: %d", send_pattern(k.a, 1, &out, MSG_DONTWAIT) == 1);
	conn_end(&k);
}

/* A sender that was told POLLOUT can send at least one byte. A sender that was not sleeps and
 * does not spin: while the reader is stopped, poll(2) never reports POLLOUT.
 */
static void pollout_tells_the_truth(void)
{
	uint64_t out = 0, in = 0, seed = env.seed;
	int lied = 0, turned = 0;
	struct conn k;

	conn_start(&k);
	send_until_eagain(k.a, &out, 64 * MIB);
	for (int i = 0; i < 100; i++)
		lied += !!(poll_now(k.a) & POLLOUT);
	say("writable while full and nobody reads: %d", lied);
	for (int i = 0; i < 400 && in < out; i++) {
		size_t n = 1 + rnd(&seed) % (32 * KIB);

		recv_pattern(k.b, n < out - in ? n : out - in, &in);
		if (poll_now(k.a) & POLLOUT) {
			turned = 1;
			if (send_pattern(k.a, 1 + rnd(&seed) % 3000, &out, MSG_DONTWAIT) < 1)
				lied++;
		}
	}
	say("lied %d, became writable %d", lied, turned);
	say("drained all: %d", recv_pattern(k.b, out - in, &in) >= 0 && in == out);
	say_poll("drained", poll_now(k.b));
	conn_end(&k);
}

/* A non-blocking send is never refused while the send buffer has room. The size of the ring
 * and the speed of its reader do not matter.
 */
static void nonblocking_send_is_whole(void)
{
	const int room = 4 * MIB;	/* includes the overhead of the packets */
	uint64_t out = 0, in = 0;
	int parts = 0, late = 0;
	struct conn k;

	conn_start(&k);
	MUST(setsockopt(k.a, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)));
	for (int i = 0; i < 40; i++) {
		parts += send_pattern(k.a, 600 * KIB, &out, MSG_DONTWAIT) != 600 * KIB;
		late += recv_pattern(k.b, out - in, &in) < 0 || in != out;
	}
	say("sent in parts %d, not read %d", parts, late);
	conn_end(&k);
}

static void block_signal(int sig)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
}

static int take_signal(int sig, siginfo_t *si)
{
	sigset_t set;

	where("waiting for signal %d", sig);
	sigemptyset(&set);
	sigaddset(&set, sig);
	return sigwaitinfo(&set, si);
}

static bool no_signal(int sig)
{
	const struct timespec now = {};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	return sigtimedwait(&set, NULL, &now) < 0;
}

static void rcvlowat_poll(void)
{
	struct pollfd p = { .events = POLLIN };
	int low = 5, got = 0;
	socklen_t len = sizeof(got);
	struct conn k;
	struct call c;
	char b[64];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(getsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &got, &len));
	say("lowat %d", got);
	p.fd = k.b;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	say_poll("four of five", poll_now(k.b));
	SAY(send(k.a, "e", 1, 0));
	SAY(call_end(&c));
	say_poll("five of five", p.revents);
	SAY(recv(k.b, b, 1, 0));
	say_poll("four left", poll_now(k.b));
	SAY_BUF(recv(k.b, b, 4, 0), b);
	conn_end(&k);
}

static void rcvlowat_recv(void)
{
	int low = 5;
	struct conn k;
	struct call c;
	char b[64];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	CALL_RECV(&c, k.b, b, 10, 0);
	call_blocked(&c);
	/* As many bytes as the mark says again. The reader has taken the first four, and TCP
	 * does not wake it for fewer than the mark.
	 */
	SAY(send(k.a, "efghij", 6, 0));
	SAY_BUF(call_end(&c), b);
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	SAY_BUF(recv(k.b, b, 10, MSG_DONTWAIT), b);
	/* The reader asks for fewer bytes than the mark: the smaller number counts. */
	SAY(send(k.a, "xyz", 3, 0));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 3, 0), b);
	/* The end of the stream is always enough. */
	SAY(send(k.a, "end", 3, 0));
	SAY(shutdown(k.a, SHUT_WR));
	SAY_BUF(recv(k.b, b, 10, 0), b);
	SAY(recv(k.b, b, 10, 0));
	conn_end(&k);
}

/* A sleeping reader leaves fewer bytes than the mark in the socket, even if it asks for less. */
static void rcvlowat_asleep(void)
{
	int low = 5, n = -1;
	struct conn k;
	struct call c;
	char b[64], x[16];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	for (int i = 0; i < 4; i++) {
		CALL_RECV(&c, k.b, b, i % 2 ? 2 : 10, i < 2 ? 0 : MSG_PEEK);
		call_blocked(&c);
		SAY(send(k.a, "ab", 2, 0));
		arrive(k.b, 2);
		call_blocked(&c);
		SAY(ioctl(k.b, FIONREAD, &n));
		say("%d in the socket", n);
		SAY_BUF(recv(k.b, x, 16, MSG_DONTWAIT), x);
		SAY(send(k.a, "cdef", 4, 0));
		arrive(k.b, 4);
		call_blocked(&c);
		SAY(send(k.a, "g", 1, 0));
		SAY_BUF(call_end(&c), b);
		while (recv(k.b, x, 16, MSG_DONTWAIT) > 0)
			;
	}
	CALL_RECV(&c, k.b, b, 10, 0);
	call_blocked(&c);
	SAY(send(k.a, "hi", 2, 0));
	arrive(k.b, 2);
	call_blocked(&c);
	SAY(shutdown(k.a, SHUT_WR));
	SAY_BUF(call_end(&c), b);
	conn_end(&k);
}

/* When the time-out ends, the reader returns the bytes that are there, below the mark too. */
static void rcvlowat_asleep_for_a_time(void)
{
	struct timeval tv = { .tv_sec = 2 };
	struct conn k;
	struct call c;
	int low = 5;
	char b[64];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	CALL_RECV(&c, k.b, b, 10, 0);
	call_blocked(&c);
	SAY(send(k.a, "ab", 2, 0));
	SAY_BUF(call_end(&c), b);
	conn_end(&k);
}

/* TCP lets a reader that has received some bytes sleep on. It wakes the reader once the unread
 * bytes alone reach the mark.
 */
static void rcvlowat_with_some(void)
{
	struct conn k;
	struct call c;
	int low = 6;
	char b[16];
	long r = 0;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	CALL_RECV(&c, k.b, b, 12, 0);
	call_blocked(&c);
	SAY(send(k.a, "ef", 2, 0));
	/* On a pair the reader has six bytes now and is about to return. */
	if (env.paired)
		r = call_end(&c);
	SAY(send(k.a, "ghijkl", 6, 0));
	where("the reader that has enough");
	if (!env.paired)
		r = call_end(&c);
	say("enough %d", r >= low);
	low = 1;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	while (r < 12)
		r += MUST(recv(k.b, b + r, 12 - r, 0));
	SAY_BUF(r, b);
	conn_end(&k);
}

/* A mark larger than the ring: bytes that spilled to TCP count together with the ring's. */
static void rcvlowat_beyond_ring(void)
{
	struct stream s = { .mode = STREAM_SEND, .len = 200 * KIB };
	struct pollfd p = { .events = POLLIN };
	int low = 180 * KIB;
	uint64_t in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	s.fd = k.a;
	stream_start(&s);
	p.fd = k.b;
	SAY(poll(&p, 1, -1));
	say_poll("poll", p.revents);
	stream_end(&s);
	say("sent %ld", s.done);
	arrive(k.b, 200 * KIB);
	say("received %ld", recv_pattern(k.b, 200 * KIB, &in));
	conn_end(&k);
}

/* Ring bytes and TCP bytes together reach the mark, in either order. Bytes sent with
 * MSG_ZEROCOPY go over TCP.
 */
static void lowat_of_both(bool ring_first)
{
	static char b[2000];
	int low = 1000;
	uint64_t out = 0;
	struct conn k;
	struct call c;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	for (int i = 0; i < 5; i++) {
		CALL_RECV(&c, k.b, b, 2000, 0);
		call_blocked(&c);
		if (ring_first) {
			say("%ld", send_pattern(k.a, 900, &out, 0));
			say("%ld", send_pattern(k.a, 200, &out, MSG_ZEROCOPY));
		} else {
			say("%ld", send_pattern(k.a, 200, &out, MSG_ZEROCOPY));
			say("%ld", send_pattern(k.a, 900, &out, 0));
		}
		where("a reader with a mark, round %d", i);
		SAY(call_end(&c));
	}
	conn_end(&k);
}

/* Lowering the mark wakes a poller that slept because too few bytes were unread, and sends
 * SIGIO.
 */
static void rcvlowat_lowered(void)
{
	struct pollfd p = { .events = POLLIN };
	int low = 1000;
	struct conn k;
	siginfo_t si;
	struct call c;
	char b[16];

	conn_start(&k);
	block_signal(SIGIO);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(fcntl(k.b, F_SETFL, O_ASYNC));
	p.fd = k.b;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	SAY(send(k.a, "abcdef", 6, 0));
	arrive(k.b, 6);
	low = 7;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	call_blocked(&c);
	say("early: %d", no_signal(SIGIO));
	low = 5;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	say("SIGIO: %d", take_signal(SIGIO, &si) == SIGIO);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

/* As rcvlowat_lowered(), but ring bytes and TCP bytes together reach the mark. Bytes sent with
 * MSG_ZEROCOPY go over TCP.
 */
static void rcvlowat_lowered_for_both(void)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t out = 0, in = 0;
	int low = 1000;
	struct conn k;
	struct call c;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	p.fd = k.b;
	CALL_POLL(&c, &p);
	say("%ld", send_pattern(k.a, 500, &out, 0));
	say("%ld", send_pattern(k.a, 100, &out, MSG_ZEROCOPY));
	arrive(k.b, 600);
	call_blocked(&c);
	low = 550;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	say("%ld", recv_pattern(k.b, 600, &in));
	conn_end(&k);
}

/* Lowering the mark also wakes a reader that sleeps in recv(2) or splice(2). */
static void rcvlowat_lowered_asleep(void)
{
	struct conn k;
	struct call c;
	int low, p[2];
	char b[16];

	conn_start(&k);
	MUST(pipe(p));
	for (int i = 0; i < 2; i++) {
		low = 1000;
		SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
		if (i)
			call_start(&c, SYS_splice, (long)k.b, 0L, (long)p[1], 0L, 16L, 0L);
		else
			CALL_RECV(&c, k.b, b, 6, 0);
		call_blocked(&c);
		SAY(send(k.a, "abcdef", 6, 0));
		arrive(k.b, 6);
		call_blocked(&c);
		low = 5;
		SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
		SAY(call_end(&c));
	}
	SAY_BUF(read(p[0], b, 16), b);
	conn_end(&k);
}

/* The mark is raised while some of the bytes that reach it are in flight: TCP_CORK holds them
 * back for a while.
 */
static void rcvlowat_raised(void)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t out = 0, in = 0;
	int low = 1000;
	struct conn k;

	conn_start(&k);
	say("%ld", send_pattern(k.a, 900, &out, 0));
	arrive(k.b, 900);
	say("%ld", send_pattern(k.a, 200, &out, MSG_ZEROCOPY | MSG_MORE));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	p.fd = k.b;
	SAY(poll(&p, 1, -1));
	say_poll("poll", p.revents);
	say("%ld", recv_pattern(k.b, 1100, &in));
	conn_end(&k);
}

/* A poller sleeps, and another thread lowers the mark for some jiffies. TCP_CORK holds back the
 * bytes that reach the mark meanwhile.
 */
static void rcvlowat_low_for_a_moment(void)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t out = 0, in = 0;
	int low = 1000;
	struct conn k;
	struct call c;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	say("%ld", send_pattern(k.a, 900, &out, 0));
	arrive(k.b, 900);
	p.fd = k.b;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	say("%ld", send_pattern(k.a, 200, &out, MSG_ZEROCOPY | MSG_MORE));
	low = 1;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	usleep(40000);
	low = 1000;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	low = 1;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	say("%ld", recv_pattern(k.b, 1100, &in));
	conn_end(&k);
}

static void rcvlowat_ring_then_tcp(void)
{
	lowat_of_both(true);
}

static void rcvlowat_tcp_then_ring(void)
{
	lowat_of_both(false);
}

static void sigio_on_data(void)
{
	struct conn k;
	siginfo_t si;
	char b[8];

	conn_start(&k);
	block_signal(SIGIO);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	SAY(fcntl(k.b, F_SETFL, O_ASYNC));
	for (int i = 0; i < 3; i++) {
		SAY(send(k.a, "x", 1, 0));
		say("SIGIO: %d", take_signal(SIGIO, &si) == SIGIO);
		SAY(recv(k.b, b, 8, 0));
	}
	conn_end(&k);
}

/* SIGIO is sent once the mark is reached, and not below it: by bytes of the ring and of TCP. */
static void sigio_at_mark(void)
{
	struct conn k;
	siginfo_t si;
	int low = 5;
	char b[16];

	conn_start(&k);
	block_signal(SIGIO);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(fcntl(k.b, F_SETFL, O_ASYNC));
	for (int i = 0; i < 3; i++) {
		SAY(send(k.a, "abcd", 4, 0));
		arrive(k.b, 4);
		say("early: %d", no_signal(SIGIO));
		SAY(send(k.a, "e", 1, 0));
		say("SIGIO: %d", take_signal(SIGIO, &si) == SIGIO);
		SAY_BUF(recv(k.b, b, sizeof(b), 0), b);
	}
	conn_end(&k);
}

static void sigio_with_siginfo(void)
{
	struct conn k;
	siginfo_t si;
	char b[8];

	conn_start(&k);
	block_signal(SIGRTMIN);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	MUST(fcntl(k.b, F_SETSIG, SIGRTMIN));
	SAY(fcntl(k.b, F_SETFL, O_ASYNC));
	SAY(send(k.a, "x", 1, 0));
	take_signal(SIGRTMIN, &si);
	say("code POLL_IN %d, fd %d", si.si_code == POLL_IN, si.si_fd == k.b);
	say_poll("band", si.si_band);
	SAY(recv(k.b, b, 8, 0));
	conn_end(&k);
}

/* A byte for which the ring has no room causes SIGIO. Nothing before it does. */
static void sigio_of_full_ring(void)
{
	const size_t size = 64 * KIB;
	uint64_t out = 0, in = 0;
	struct conn k;
	int n = 0;

	conn_start_with(&k, prep_big_buffers);
	block_signal(SIGRTMIN);
	MUST(fcntl(k.b, F_SETOWN, getpid()));
	MUST(fcntl(k.b, F_SETSIG, SIGRTMIN));
	say("sent %ld", send_pattern(k.a, size, &out, 0));
	arrive(k.b, size);
	MUST(fcntl(k.b, F_SETFL, O_ASYNC));
	say("sent %ld", send_pattern(k.a, 1, &out, 0));
	arrive(k.b, size + 1);
	while (!no_signal(SIGRTMIN))
		n++;
	say("signals %d", n);
	say("read %ld", recv_pattern(k.b, size + 1, &in));
	conn_end(&k);
}

static void sigio_on_space(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	siginfo_t si;

	conn_start(&k);
	block_signal(SIGRTMIN);
	MUST(fcntl(k.a, F_SETOWN, getpid()));
	MUST(fcntl(k.a, F_SETSIG, SIGRTMIN));
	MUST(fcntl(k.a, F_SETFL, O_ASYNC));
	send_until_eagain(k.a, &out, 64 * MIB);
	recv_pattern(k.b, out, &in);
	do
		take_signal(SIGRTMIN, &si);
	while (si.si_code != POLL_OUT);
	say_poll("band", si.si_band);
	say("sent %ld", send_pattern(k.a, 1, &out, MSG_DONTWAIT));
	conn_end(&k);
}

const struct bcase ready_cases[] = {
	CASE(poll_masks), CASE(poll_wakes), CASE(select_wakes), CASE(epoll_level),
	CASE(epoll_oneshot), CASE(poll_full_then_drained), CASE(pollout_tells_the_truth),
	CASE(nonblocking_send_is_whole),
	CASE(rcvlowat_poll), CASE(rcvlowat_recv), CASE(rcvlowat_beyond_ring),
	CASE_PAIR(rcvlowat_with_some),
	CASE(rcvlowat_lowered), CASE(rcvlowat_lowered_for_both),
	CASE(rcvlowat_raised), CASE(rcvlowat_low_for_a_moment),
	CASE(rcvlowat_ring_then_tcp), CASE(rcvlowat_tcp_then_ring),
	CASE(sigio_on_data), CASE(sigio_at_mark), CASE(sigio_with_siginfo), CASE(sigio_on_space),
	CASE(sigio_of_full_ring),
	CASE(rcvlowat_asleep), CASE(rcvlowat_lowered_asleep), CASE_SLOW(rcvlowat_asleep_for_a_time),
	{ }
};
