// SPDX-License-Identifier: GPL-2.0
/*
 * Sleeping calls: time-outs and signals.
 */
#include "behave.h"

#include <sched.h>
#include <time.h>
#include <sys/wait.h>

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	(void)sig;
	caught++;
}

static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	MUST(sigaction(sig, &sa, NULL));
}

static void rcvtimeo(void)
{
	struct timeval tv = { .tv_usec = 100000 };
	struct conn k;
	char b[16];
	long t;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	for (int i = 0; i < 2; i++) {
		t = tick_ms();
		SAY(recv(k.b, b, 16, 0));
		t = tick_ms() - t;
		say("waited long enough %d, not much too long %d", t >= 95, t < 5000);
	}
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 16, MSG_WAITALL), b);
	conn_end(&k);
}

static void sndtimeo(void)
{
	struct timeval tv = { .tv_usec = 100000 };
	uint64_t out = 0, in = 0;
	struct conn k;
	long r;

	conn_start(&k);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	where("sending until the time-out");
	do
		r = send_pattern(k.a, 256 * KIB, &out, 0);
	while (r > 0);
	say_ret("send", r);
	say("at least 64 KiB went %d", out >= 64 * KIB);
	say("all of it came %d", recv_pattern(k.b, out, &in) == (long)out);
	say("and more %ld", send_pattern(k.a, 100, &out, 0));
	conn_end(&k);
}

struct trickle {
	int fd, stop;
};

static void *trickle_run(void *arg)
{
	struct trickle *t = arg;
	struct pollfd p = { .fd = -1 };
	char c;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		poll(&p, 1, 4);
		if (recv(t->fd, &c, 1, MSG_DONTWAIT) == 0)
			break;
	}
	return NULL;
}

/* A reader of one byte at a time does not hold a writer for whose bytes TCP has
 * room.
 */
static void slow_reader(void)
{
	struct trickle t = { };
	pthread_t thread;
	struct conn k;
	uint64_t out = 0;
	long began;

	conn_start_with(&k, prep_big_buffers);
	t.fd = k.b;
	pthread_create(&thread, NULL, trickle_run, &t);
	began = tick_ms();
	where("300 KiB to a slow reader");
	say("sent %ld", send_pattern(k.a, 300 * KIB, &out, 0));
	say("in less than 8 s: %d", tick_ms() - began < 8000);
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	conn_end(&k);
}

/* The time-out of a writer counts from its call, whatever little is read. */
static void sndtimeo_with_slow_reader(void)
{
	struct timeval tv = { .tv_usec = 300000 };
	struct trickle t = { };
	char *buf = filled(64 * MIB);
	pthread_t thread;
	struct conn k;
	long r, began;

	conn_start(&k);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	t.fd = k.b;
	pthread_create(&thread, NULL, trickle_run, &t);
	began = tick_ms();
	where("64 MiB to a slow reader, with a time-out");
	r = send(k.a, buf, 64 * MIB, 0);
	say("partly sent %d", r > 0 && r < 64 * MIB);
	say("in less than 8 s: %d", tick_ms() - began < 8000);
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	conn_end(&k);
}

static void recv_interrupted(void)
{
	struct timeval tv = { .tv_sec = 100 };
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	handle(SIGUSR1, 0);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	pthread_kill(c.thread, SIGUSR1);
	SAY(call_end(&c));
	say("caught %d", caught);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	/* With a time-out set, SA_RESTART does not restart. */
	handle(SIGUSR1, SA_RESTART);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	pthread_kill(c.thread, SIGUSR1);
	SAY(call_end(&c));
	conn_end(&k);
}

static void recv_restarted(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	handle(SIGUSR1, SA_RESTART);
	for (int i = 1; i <= 3; i++) {
		CALL_RECV(&c, k.b, b, 16, 0);
		call_blocked(&c);
		pthread_kill(c.thread, SIGUSR1);
		where("waiting for the handler");
		while (caught < i)
			sched_yield();
		call_blocked(&c);
		SAY(send(k.a, "abc", 3, 0));
		SAY_BUF(call_end(&c), b);
	}
	conn_end(&k);
}

static void waitall_interrupted(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	handle(SIGUSR1, 0);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	CALL_RECV(&c, k.b, b, 16, MSG_WAITALL);
	call_blocked(&c);
	pthread_kill(c.thread, SIGUSR1);
	SAY_BUF(call_end(&c), b);
	SAY(recv(k.b, b, 16, MSG_DONTWAIT));
	conn_end(&k);
}

static void send_signalled(int flags)
{
	size_t len = 64 * MIB;
	uint64_t in = 0;
	struct conn k;
	struct call c;
	char *buf = filled(len);
	long r;

	conn_start(&k);
	handle(SIGUSR1, flags);
	CALL_SEND(&c, k.a, buf, len, 0);
	/* Blocked for good only once nothing moves any more. */
	for (int before = -1, now = 0; before != now; before = now) {
		struct pollfd p = { .fd = k.a, .events = POLLOUT };

		call_blocked(&c);
		poll(&p, 1, 300);
		MUST(ioctl(k.b, FIONREAD, &now));
		if (before < 0)
			now--;
	}
	call_blocked(&c);
	pthread_kill(c.thread, SIGUSR1);
	r = call_end(&c);
	say("partly sent %d, caught %d", r > 0 && r < (long)len, caught);
	if (r > 0)
		say("all of it came %d", recv_pattern(k.b, r, &in) == r);
	SAY(recv(k.b, buf, 10, MSG_DONTWAIT));
	conn_end(&k);
}

static void send_interrupted(void)
{
	send_signalled(0);
}

static void send_with_restart(void)
{
	send_signalled(SA_RESTART);
}

static void sigpipe_after_shutdown(void)
{
	struct conn k;

	conn_start(&k);
	handle(SIGPIPE, 0);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY(shutdown(k.a, SHUT_WR));
	SAY(send(k.a, "x", 1, 0));
	say("SIGPIPE %d", caught);
	SAY(send(k.a, "x", 1, MSG_NOSIGNAL));
	say("SIGPIPE %d", caught);
	SAY(write(k.a, "x", 1));
	say("SIGPIPE %d", caught);
	SAY(send(k.a, "", 0, 0));
	say("SIGPIPE %d", caught);
	conn_end(&k);
}

static void sigpipe_kills(void)
{
	struct conn k;
	int pid, status;

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY(shutdown(k.a, SHUT_WR));
	pid = MUST(fork());
	if (!pid) {
		send(k.a, "x", 1, 0);
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0));
	say("child died by SIG%s", WIFSIGNALED(status) ? sig_name(WTERMSIG(status)) : "nothing");
	conn_end(&k);
}

/* The first write to a closed peer succeeds and draws a reset. */
static void write_to_closed_peer(void)
{
	struct conn k;
	char b[8];

	conn_start(&k);
	handle(SIGPIPE, 0);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_proof(&k);
	SAY(close(k.b));
	arrive_fin(k.a);
	say_poll("after FIN", poll_now(k.a));
	SAY(send(k.a, "x", 1, 0));
	arrive_err(k.a);
	say_poll("after reset", poll_now(k.a));
	SAY(send(k.a, "y", 1, 0));
	say("SIGPIPE %d", caught);
	SAY(send(k.a, "y", 1, MSG_NOSIGNAL));
	SAY(recv(k.a, b, 8, 0));
	SAY(recv(k.a, b, 8, 0));
}

const struct bcase wait_cases[] = {
	CASE(rcvtimeo), CASE(sndtimeo), CASE_ONCE(slow_reader),
	CASE_ONCE(sndtimeo_with_slow_reader), CASE_PAIR(recv_interrupted), CASE(recv_restarted),
	CASE(waitall_interrupted), CASE(send_interrupted), CASE(send_with_restart),
	CASE(sigpipe_after_shutdown), CASE(sigpipe_kills), CASE(write_to_closed_peer),
	{ }
};
