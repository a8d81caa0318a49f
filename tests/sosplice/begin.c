// SPDX-License-Identifier: GPL-2.0
/* How splices begin: what has come about when setsockopt(2) returns. */
#include <arpa/inet.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "sosplice.h"

static void close_relay(struct relay *r)
{
	close(r->c);
	close(r->p);
	close(r->q);
	close(r->s);
}

static int queued(int fd)
{
	int n;

	check(!ioctl(fd, FIONREAD, &n), "%s", strerror(errno));
	return n;
}

/* @len bytes are queued in the source: they are counted when the call returns, and the sink
 * sends what the application writes then behind them.
 */
static void order_of(size_t len)
{
	char tail[8] = "";
	struct relay r;
	long start;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.p, 0, 4 * len);
	set_buf(r.q, 4 * len, 0);
	set_buf(r.s, 0, 4 * len);
	stream_write(r.c, 0, len);
	for (start = ms(); queued(r.p) < (int)len; sleep_ms(1))
		check(ms() - start < 20000, "%d of %zu have come", queued(r.p), len);
	splice_on(&r);
	check(socksplice_moved(r.p) == (int64_t)len, "moved %lld of %zu",
	      (long long)socksplice_moved(r.p), len);
	check(send(r.q, "trailer", 7, 0) == 7, "%s", strerror(errno));
	stream_read(r.s, 0, len);
	check(recv(r.s, tail, 7, MSG_WAITALL) == 7 && !strcmp(tail, "trailer"), "%s", tail);
	close_relay(&r);
}

static void order(void)
{
	int i;

	for (i = 0; i < 50; i++)
		order_of(6);
	order_of(100000);
}

/* More than the mover moves in one go. */
static void order_of_more(void)
{
	write_file("/proc/sys/net/core/rmem_max", "8388608");
	write_file("/proc/sys/net/core/wmem_max", "8388608");
	order_of(1000000);
}

/* Another thread sends by the sink all the time, and so has its lock again and again. */
static bool stop;

static void *sending(void *arg)
{
	static const char zeros[20000];
	int fd = *(int *)arg, queue;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		check(!ioctl(fd, TIOCOUTQ, &queue), "%s", strerror(errno));
		if (queue > 200000)	/* there is always room */
			sched_yield();
		else if (send(fd, zeros, sizeof(zeros), 0) < 0)
			die("send: %s", strerror(errno));
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

/* All is zeros but the marks, which come in turn: an A and a B in each round. */
static void *watching(void *arg)
{
	int fd = *(int *)arg;
	uintptr_t marks = 0;
	char buf[4096];
	ssize_t n, i;

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (i = 0; i < n; i++) {
			if (!buf[i])
				continue;
			check(buf[i] == "AB"[marks % 2], "%c after %d marks", buf[i], (int)marks);
			marks++;
		}
	}
	check(!n, "%s", strerror(errno));
	return (void *)marks;
}

#define ROUNDS	100

static void order_and_busy_sink(void)
{
	pthread_t sender, reader;
	struct relay r;
	void *marks;
	int i;

	write_file("/proc/sys/net/core/wmem_max", "8388608");
	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 4000000, 0);
	check(!pthread_create(&sender, NULL, sending, &r.q), "no thread");
	check(!pthread_create(&reader, NULL, watching, &r.s), "no thread");
	for (i = 0; i < ROUNDS; i++) {
		check(send(r.c, "A", 1, 0) == 1, "%s", strerror(errno));
		while (!queued(r.p))
			sched_yield();
		splice_on(&r);
		check(socksplice_moved(r.p) == 1, "round %d: not moved", i);
		check(send(r.q, "B", 1, 0) == 1, "%s", strerror(errno));
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(sender, NULL);
	pthread_join(reader, &marks);
	check((uintptr_t)marks == 2 * ROUNDS, "%d marks", (int)(uintptr_t)marks);
}

/* The splice that cannot go on has ended when the call returns. */
static void dead_sink(void)
{
	struct relay r;
	int i;

	for (i = 0; i < 50; i++) {
		relay_open(&r, AF_INET, AF_INET);
		shutdown(r.q, SHUT_WR);
		splice_on(&r);
		check(so_error(r.p) == EPIPE, "no error in round %d", i);
		check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
		close_relay(&r);
	}
}

static int by_read(int fd)
{
	char c;
	int n = recv(fd, &c, 1, MSG_DONTWAIT);

	check(n <= 0, "a byte");
	return n ? errno : 0;
}

static int by_send(int fd)
{
	return send(fd, "r", 1, MSG_NOSIGNAL) < 0 ? errno : 0;
}

/* The error that the last splice left in SO_ERROR ends the next one, and can still be read. */
static void pending_error(void)
{
	int (*const ways[])(int) = { by_read, by_send, so_error };
	struct relay r;
	unsigned int i;
	char c;
	int err;

	for (i = 0; i < 3 * 30; i++) {
		relay_open(&r, AF_INET, AF_INET);
		splice_fds(r.p, r.q, 4, 0);
		check(send(r.c, "AAAAh", 5, 0) == 5, "%s", strerror(errno));
		check(recv(r.p, &c, 1, 0) == 1 && c == 'h', "%s", strerror(errno));
		splice_fds(r.p, r.q, 4, 0);
		check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
		err = ways[i % 3](r.p);
		check(err == EFBIG, "way %u: %s", i % 3, strerror(err));
		check(send(r.c, "B", 1, 0) == 1, "%s", strerror(errno));
		check(recv(r.p, &c, 1, 0) == 1 && c == 'B', "%s", strerror(errno));
		splice_fds(r.p, r.q, 4, 0);
		close_relay(&r);
	}
}

static void unsplice_listener(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0);

	check(!listen(l, 1), "%s", strerror(errno));
	check(socksplice_unsplice(l) && errno == EOPNOTSUPP, "%s", strerror(errno));
	close(l);
	l = socket(AF_INET, SOCK_STREAM, 0);
	check(socksplice_unsplice(l) && errno == ENOTCONN, "%s", strerror(errno));
}

#define LONGEST	128

/* The first bytes enter before the last splice, then before the one in front, and so on; or
 * in the middle first; or at the beginning only. Returns whether they all came through.
 */
static bool chain(int n, int first)
{
	static int c[LONGEST + 2], s[LONGEST + 2];
	int i, ends = 0;
	bool through = true;
	char b;

	for (i = 0; i <= n; i++)
		connect_pair(AF_INET, &c[i], &s[i]);
	for (i = 0; i < n; i++)
		splice_fds(s[i], c[i + 1], 0, 0);
	for (i = first; i >= 0 && through; i -= i > n / 2 || i < 2 ? 1 : i / 2) {
		struct pollfd p[2] = { { .fd = s[n], .events = POLLIN } };

		check(send(c[i], "x", 1, 0) == 1, "%s", strerror(errno));
		while (!poll(p, 1, 10)) {
			int j;

			for (j = 0; j < n && through; j++)
				through = !(poll_now(s[j]) & POLLERR);
			if (!through)
				break;
		}
		if (through)
			check(recv(s[n], &b, 1, 0) == 1, "%s", strerror(errno));
	}
	for (i = 0; i < n; i++)
		ends += so_error(s[i]) == ELOOP;
	check(ends == !through, "%d have ended", ends);
	for (i = 0; i <= n; i++) {
		close(c[i]);
		close(s[i]);
	}
	return through;
}

static void chains(void)
{
	struct rlimit files = { 1024, 1024 };

	setrlimit(RLIMIT_NOFILE, &files);
	check(chain(LONGEST, 0), "from its beginning");
	check(chain(LONGEST, LONGEST - 1), "from its end");
	check(!chain(LONGEST + 1, 0), "one more, from its beginning");
	check(!chain(LONGEST + 1, LONGEST), "one more, from its end");
	check(!chain(LONGEST + 1, LONGEST / 2), "one more, from its middle");
}

static int module_refs(void)
{
	FILE *f = fopen("/sys/module/socksplice/refcnt", "r");
	int n;

	check(f && fscanf(f, "%d", &n) == 1, "%s", strerror(errno));
	fclose(f);
	return n;
}

static void on_one_cpu(int fifo)
{
	struct sched_param p = { .sched_priority = fifo };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	check(!sched_setaffinity(0, sizeof(set), &set), "%s", strerror(errno));
	check(!sched_setscheduler(0, fifo ? SCHED_FIFO : SCHED_OTHER, &p), "%s", strerror(errno));
}

struct sleeper {
	int fd;
	int tid;	/* 0 until it is on its CPU */
};

static void *reading(void *arg)
{
	struct sleeper *s = arg;

	on_one_cpu(0);
	__atomic_store_n(&s->tid, gettid(), __ATOMIC_RELEASE);
	stream_read(s->fd, 0, 1000);
	return NULL;
}

static void *hogging(void *arg)
{
	on_one_cpu(10);
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		;
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
}

/* The reader asleep on the source does not get the CPU to leave, until a signal interrupts
 * the call: no trace is left of it, on neither socket.
 */
static void interrupted(void)
{
	struct sigevent to_me = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	const struct timespec soon = { .tv_nsec = 100000000 };
	const struct itimerspec again = { .it_value = soon, .it_interval = soon };
	const struct sigaction act = { .sa_handler = on_signal };
	struct splice s = {};
	struct sleeper sleeper = {};
	pthread_t reader, hog;
	bool hogs = false;
	struct relay r;
	timer_t timer;
	long start;
	int before, err, tid;

	relay_open(&r, AF_INET, AF_INET);
	before = module_refs();
	sleeper.fd = r.p;
	check(!pthread_create(&reader, NULL, reading, &sleeper), "no thread");
	while (!(tid = __atomic_load_n(&sleeper.tid, __ATOMIC_ACQUIRE)))
		sched_yield();
	check(wait_asleep(tid, SYS_read), "the reader has ended");
	sigaction(SIGUSR1, &act, NULL);
	to_me._sigev_un._tid = gettid();
	check(!timer_create(CLOCK_MONOTONIC, &to_me, &timer), "%s", strerror(errno));
	on_one_cpu(20);
	check(!pthread_create(&hog, NULL, hogging, &hogs), "no thread");
	while (!__atomic_load_n(&hogs, __ATOMIC_RELAXED))
		sleep_ms(1);
	s.sp_fd = r.q;
	check(!timer_settime(timer, 0, &again, NULL), "%s", strerror(errno));
	err = socksplice_splice(r.p, &s) ? errno : 0;
	timer_delete(timer);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	check(err == EINTR, "%s", strerror(err));
	check(!pthread_join(hog, NULL), "no hog");
	on_one_cpu(0);
	for (start = ms(); module_refs() != before; sleep_ms(2))
		check(ms() - start < 10000, "%d references more", module_refs() - before);
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
	stream_write(r.c, 0, 1000);
	pthread_join(reader, NULL);
	splice_on(&r);
	stream_write(r.c, 1000, 1000);
	stream_read(r.s, 1000, 1000);
}

const struct sock_case begin_cases[] = {
	{ "queued-goes-first", order },
	{ "queued-goes-first-1-MB", order_of_more },
	{ "queued-goes-first-busy-sink", order_and_busy_sink },
	{ "EPIPE-at-once", dead_sink },
	{ "pending-error-ends-splice", pending_error },
	{ "EOPNOTSUPP-unsplice-listener", unsplice_listener },
	{ "ELOOP-chain", chains },
	{ "EINTR-leaves-nothing", interrupted },
	{ NULL }
};
