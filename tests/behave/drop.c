// SPDX-License-Identifier: GPL-2.0
/*
 * Un-pairs a live connection at every point where a program might notice. On plain TCP
 * there is nothing to un-pair, and the rest of each case is the same.
 */
#include "behave.h"

#include <sys/epoll.h>

static void both_ways(struct conn *k)
{
	char b[8];

	SAY(send(k->a, "onward", 6, 0));
	SAY_BUF(recv(k->b, b, 6, MSG_WAITALL), b);
	SAY(send(k->b, "and back", 8, 0));
	SAY_BUF(recv(k->a, b, 8, MSG_WAITALL), b);
}

/* Starts a pair that moves its bytes through the ring. */
static void start(struct conn *k)
{
	conn_start(k);
	both_ways(k);
}

/* Un-pairs. The pair has moved bytes through the ring, and now returns to TCP. */
static void drop(struct conn *k)
{
	struct pair_info info;

	if (!env.paired)
		return;
	conn_proof(k);
	where("dropping the pair");
	if (pairs_find(k->cookie[0], k->cookie[1], &info))
		fail("there is no pair to drop");
	if (pairs_drop(info.id))
		fail("the pair cannot be dropped");
}

static void wait_until_gone(struct conn *k)
{
	struct pair_info info;

	where("waiting until the pair has gone");
	while (env.paired && !pairs_find(k->cookie[0], k->cookie[1], &info))
		usleep(1000);
}

/* Returns once b's bytes go over TCP. */
static void wait_until_closed(struct conn *k)
{
	struct pair_info before, now;
	char b;

	where("waiting until the ring of b is closed");
	if (!env.paired || pairs_find(k->cookie[0], k->cookie[1], &before))
		return;
	do {
		MUST(send(k->b, "x", 1, 0));
		MUST(recv(k->a, &b, 1, 0));
		if (pairs_find(k->cookie[0], k->cookie[1], &now))
			fail("the pair is gone while its reader sleeps");
	} while (now.tx_tcp[0] == before.tx_tcp[0] && now.tx_tcp[1] == before.tx_tcp[1]);
}

static bool is_pair(struct conn *k)
{
	struct pair_info info;

	return !env.paired || !pairs_find(k->cookie[0], k->cookie[1], &info);
}

static void drop_and_wait(struct conn *k)
{
	drop(k);
	wait_until_gone(k);
}

static void end(struct conn *k)
{
	close(k->a);
	close(k->b);
}

static void idle(void)
{
	struct conn k;

	start(&k);
	drop_and_wait(&k);
	both_ways(&k);
	end(&k);
}

static void asleep_in_recv(void)
{
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	drop_and_wait(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(call_end(&c), b);
	both_ways(&k);
	end(&k);
}

/* The time that the reader has waited in the ring counts against its time-out. */
static void asleep_with_a_time_out(void)
{
	const struct timeval four = { .tv_sec = 4 };
	long began;
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &four, sizeof(four)));
	began = tick_ms();
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	usleep(3000000);
	drop_and_wait(&k);
	SAY(call_end(&c));
	say("in time %d", tick_ms() - began < 6500);	/* not 7000 */
	both_ways(&k);
	end(&k);
}

/* The urgent byte does not satisfy this reader: its time-out goes on. */
static void asleep_with_a_time_out_and_an_urgent_byte(void)
{
	const struct timeval four = { .tv_sec = 4 };
	long began;
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &four, sizeof(four)));
	began = tick_ms();
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	drop_and_wait(&k);
	usleep(3000000);
	SAY(send(k.a, "!", 1, MSG_OOB));
	SAY(call_end(&c));
	say("in time %d", tick_ms() - began < 6500);	/* not 7000 */
	recv(k.b, b, 16, MSG_OOB);	/* the byte is there if it came after the time-out */
	both_ways(&k);
	end(&k);
}

static void on_signal(int sig)
{
	(void)sig;
}

/* All at once. The reader cannot preempt this thread, so SIGURG is pending and the FIN is there
 * when it looks. The reader then reads nothing, and must return that.
 */
static void asleep_with_a_time_out_and_sigurg_and_fin(void)
{
	const struct sched_param first = { .sched_priority = 1 }, none = { };
	const struct timeval minute = { .tv_sec = 60 };
	const struct sigaction handle = { .sa_handler = on_signal };
	struct sigaction before;
	cpu_set_t all, one;
	sigset_t urg;
	struct conn k;
	struct call c;
	char b[16];

	MUST(sched_getaffinity(0, sizeof(all), &all));
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one));
	MUST(sigaction(SIGURG, &handle, &before));
	start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute)));
	MUST(fcntl(k.b, F_SETOWN, getpid()));
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	sigemptyset(&urg);
	sigaddset(&urg, SIGURG);
	pthread_sigmask(SIG_BLOCK, &urg, NULL);
	drop_and_wait(&k);
	MUST(sched_setscheduler(0, SCHED_FIFO, &first));
	SAY(send(k.a, "!", 1, MSG_OOB));
	SAY(shutdown(k.a, SHUT_WR));
	MUST(sched_setscheduler(0, SCHED_OTHER, &none));
	SAY(call_end(&c));
	SAY(recv(k.b, b, 16, 0));
	MUST(sched_setaffinity(0, sizeof(all), &all));
	pthread_sigmask(SIG_UNBLOCK, &urg, NULL);
	MUST(sigaction(SIGURG, &before, NULL));
	end(&k);
}

/* O_NONBLOCK, set while a call sleeps, takes effect with the next call. */
static void asleep_then_nonblock(void)
{
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	MUST(fcntl(k.b, F_SETFL, O_NONBLOCK));
	drop_and_wait(&k);
	call_blocked(&c);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(call_end(&c), b);
	SAY(recv(k.b, b, 16, 0));
	MUST(fcntl(k.b, F_SETFL, 0));
	both_ways(&k);
	end(&k);
}

static void asleep_then_a_time_out(void)
{
	const struct timeval shortly = { .tv_usec = 100000 }, none = { };
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &shortly, sizeof(shortly)));
	drop_and_wait(&k);
	usleep(400000);
	call_blocked(&c);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(call_end(&c), b);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)));
	both_ways(&k);
	end(&k);
}

/* A receive of no bytes returns 0 once it has slept. */
static void asleep_for_nothing(void)
{
	const struct timeval two = { .tv_sec = 2 }, none = { };
	char control[64];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *h;
	struct conn k;
	struct call c;
	int on = 1;

	start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &two, sizeof(two)));
	MUST(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	call_start(&c, SYS_recvmsg, (long)k.b, (long)&m, 0L, 0L, 0L, 0L);
	call_blocked(&c);
	drop_and_wait(&k);
	SAY(call_end(&c));
	h = CMSG_FIRSTHDR(&m);
	say("unread %d", h && h->cmsg_type == TCP_CM_INQ ? *(int *)CMSG_DATA(h) : -1);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)));
	both_ways(&k);
	end(&k);
}

static void asleep_for_nothing_then_a_byte(void)
{
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	CALL_RECV(&c, k.b, b, 0, 0);
	call_blocked(&c);
	drop_and_wait(&k);
	call_blocked(&c);
	SAY(send(k.a, "a", 1, 0));
	SAY(call_end(&c));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	both_ways(&k);
	end(&k);
}

/* A receive of no bytes below SO_RCVLOWAT does not end when a ring closes. */
static void asleep_for_nothing_below_the_mark(void)
{
	struct conn k;
	struct call c;
	int two = 2;
	char b[16];

	start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &two, sizeof(two)));
	CALL_RECV(&c, k.b, b, 0, 0);
	call_blocked(&c);
	drop(&k);
	wait_until_closed(&k);
	call_blocked(&c);
	SAY(send(k.a, "ab", 2, 0));
	SAY(call_end(&c));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	wait_until_gone(&k);
	end(&k);
}

/* A reader that has received some bytes keeps its pair until the call ends. */
static void asleep_in_waitall(void)
{
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	SAY(send(k.a, "abc", 3, 0));
	CALL_RECV(&c, k.b, b, 9, MSG_WAITALL);
	call_blocked(&c);
	drop(&k);
	SAY(send(k.a, "def", 3, 0));
	say("still paired %d", is_pair(&k));
	SAY(send(k.a, "ghi", 3, 0));
	SAY_BUF(call_end(&c), b);
	wait_until_gone(&k);
	both_ways(&k);
	end(&k);
}

static void asleep_with_low_water_mark(void)
{
	struct conn k;
	struct call c;
	int six = 6;
	char b[16];

	start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &six, sizeof(six)));
	SAY(send(k.a, "abc", 3, 0));
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	drop(&k);
	SAY(send(k.a, "defghi", 6, 0));
	SAY_BUF(call_end(&c), b);
	wait_until_gone(&k);
	end(&k);
}

static void asleep_in_poll(void)
{
	struct pollfd p = { .events = POLLIN };
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	p.fd = k.b;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	drop_and_wait(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	end(&k);
}

static void asleep_in_epoll(void)
{
	static const uint32_t modes[] = { EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT };

	for (unsigned int i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct epoll_event ev = { .events = modes[i] }, got = { 0 };
		int ep = MUST(epoll_create1(0));
		struct conn k;
		struct call c;
		char b[16];

		start(&k);
		MUST(epoll_ctl(ep, EPOLL_CTL_ADD, k.b, &ev));
		CALL_EPOLL(&c, ep, &got);
		call_blocked(&c);
		drop_and_wait(&k);
		SAY(send(k.a, "abc", 3, 0));
		SAY(call_end(&c));
		say_poll("epoll", got.events);
		SAY_BUF(recv(k.b, b, 16, 0), b);
		SAY(epoll_wait(ep, &got, 1, 0));
		end(&k);
		close(ep);
	}
}

static void epoll_edge(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET }, got;
	int ep = MUST(epoll_create1(0));
	struct conn k;
	char b[16];

	start(&k);
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, k.b, &ev));
	drop_and_wait(&k);
	SAY(epoll_wait(ep, &got, 1, 0));
	SAY(send(k.a, "abc", 3, 0));
	SAY(epoll_wait(ep, &got, 1, -1));
	SAY(epoll_wait(ep, &got, 1, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(send(k.a, "def", 3, 0));
	SAY(epoll_wait(ep, &got, 1, -1));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	end(&k);
	close(ep);
}

/* Un-pairing wakes the reader so that it leaves the ring. The poller beside it gets no edge. */
static void epoll_edge_beside_a_reader(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET }, got;
	int ep = MUST(epoll_create1(0));
	struct conn k;
	struct call c;
	char b[16];

	start(&k);
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, k.b, &ev));
	SAY(epoll_wait(ep, &got, 1, -1));
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	drop_and_wait(&k);
	call_blocked(&c);
	SAY(epoll_wait(ep, &got, 1, 0));
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(call_end(&c), b);
	end(&k);
	close(ep);
}

static void no_signal(void)
{
	struct conn k;
	sigset_t io;

	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	sigprocmask(SIG_BLOCK, &io, NULL);
	start(&k);
	MUST(fcntl(k.b, F_SETOWN, getpid()));
	MUST(fcntl(k.b, F_SETFL, fcntl(k.b, F_GETFL) | O_ASYNC));
	drop_and_wait(&k);
	sigpending(&io);
	say("SIGIO %d", sigismember(&io, SIGIO));
	end(&k);
}

static void writer_asleep(void)
{
	struct stream s = { .len = 8 * MIB, .mode = STREAM_SEND | STREAM_BIG,
			    .rng = 1 };
	uint64_t in = 0;
	struct conn k;

	start(&k);
	s.fd = k.a;
	stream_start(&s);
	/* More than the ring holds: the ring is full now, or the writer has gone over to TCP. */
	say("first %ld", recv_pattern(k.b, 200 * KIB, &in));
	drop(&k);
	say("all %ld", recv_pattern(k.b, 8 * MIB - 200 * KIB, &in));
	stream_end(&s);
	say("sent %ld, error %d", s.done, s.err);
	wait_until_gone(&k);
	end(&k);
}

/* Unread bytes stay in front of all later bytes. */
static void unread(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	char b[8];

	start(&k);
	send_pattern(k.a, 30 * KIB, &out, 0);
	arrive(k.b, 30 * KIB);
	drop(&k);
	send_pattern(k.a, 10 * KIB, &out, 0);
	SAY(shutdown(k.a, SHUT_WR));
	say("still paired %d", is_pair(&k));
	SAY_BUF(recv(k.b, b, 0, MSG_PEEK), b);
	say("first %ld", recv_pattern(k.b, 20 * KIB, &in));
	say("rest %ld", recv_pattern(k.b, 20 * KIB, &in));
	SAY(recv(k.b, b, 8, 0));
	SAY(send(k.b, "answer", 6, 0));
	SAY_BUF(recv(k.a, b, 6, MSG_WAITALL), b);
	wait_until_gone(&k);
	end(&k);
}

/* Closing over unread bytes resets the peer, whether the pair was un-paired or not. */
static void unread_then_closed(void)
{
	struct conn k;
	char b[8];

	start(&k);
	signal(SIGPIPE, SIG_IGN);
	SAY(send(k.a, "never read", 10, 0));
	arrive(k.b, 10);
	drop(&k);
	SAY(close(k.b));
	arrive_err(k.a);
	SAY(recv(k.a, b, 8, 0));
	SAY(send(k.a, "x", 1, 0));
	close(k.a);
}

static void writer_closed(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	char b[8];

	start(&k);
	send_pattern(k.a, 30 * KIB, &out, 0);
	drop(&k);
	SAY(close(k.a));
	say("received %ld", recv_pattern(k.b, 30 * KIB, &in));
	SAY(recv(k.b, b, 8, 0));
	wait_until_gone(&k);
	close(k.b);
}

static void twice(void)
{
	struct conn k;
	char b[8];

	start(&k);
	SAY(send(k.a, "unread", 6, 0));
	drop(&k);
	if (env.paired)
		drop(&k);
	MUST(recv(k.b, b, 6, MSG_WAITALL));
	both_ways(&k);
	wait_until_gone(&k);
	end(&k);
}

/* Once un-paired the socket accepts another ULP, for example kTLS. */
static void slot_is_free(void)
{
	struct conn k;

	start(&k);
	drop_and_wait(&k);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "nonsense", 8));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "tls", 3));
	end(&k);
}

static void full_duplex(void)
{
	struct stream s[4] = {
		{ .len = 6 * MIB, .mode = STREAM_SEND, .rng = 1 },
		{ .len = 6 * MIB, .mode = STREAM_RECV, .rng = 2 },
		{ .len = 6 * MIB, .mode = STREAM_SEND, .rng = 3 },
		{ .len = 6 * MIB, .mode = STREAM_RECV, .rng = 4 },
	};
	struct conn k;

	start(&k);
	s[0].fd = s[3].fd = k.a;
	s[1].fd = s[2].fd = k.b;
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		stream_start(&s[i]);
	usleep(env.seed % 20000);
	drop(&k);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		stream_end(&s[i]);
		say("%zu: %ld, error %d, damaged %d", i, s[i].done, s[i].err, s[i].damaged);
	}
	wait_until_gone(&k);
	both_ways(&k);
	end(&k);
}

const struct bcase drop_cases[] = {
	CASE(idle), CASE(asleep_in_recv), CASE_SLOW(asleep_with_a_time_out),
	CASE_SLOW(asleep_with_a_time_out_and_an_urgent_byte),
	CASE_ONCE(asleep_with_a_time_out_and_sigurg_and_fin),
	CASE(asleep_then_nonblock), CASE(asleep_then_a_time_out),
	CASE_SLOW(asleep_for_nothing), CASE(asleep_for_nothing_then_a_byte),
	CASE(asleep_for_nothing_below_the_mark),
	CASE(asleep_in_waitall),
	CASE(asleep_with_low_water_mark), CASE(asleep_in_poll), CASE(asleep_in_epoll),
	CASE(epoll_edge), CASE(epoll_edge_beside_a_reader),
	CASE_ONCE(no_signal), CASE(writer_asleep), CASE(unread), CASE(unread_then_closed),
	CASE(writer_closed), CASE(twice), CASE_ONCE(slot_is_free), CASE_ONCE(full_duplex),
	{ }
};
