// SPDX-License-Identifier: GPL-2.0
/*
 * Several threads, processes and descriptors on one socket.
 */
#include "behave.h"

#include <sys/wait.h>

struct worker {
	int fd;
	int id;
	long total;
	uint64_t added;		/* sum of all bytes: order does not matter */
	int err;
	pthread_t thread;
};

static void *read_all(void *arg)
{
	struct worker *w = arg;
	unsigned char b[7000];
	long r;

	while ((r = recv(w->fd, b, 1 + (w->id * 1723 + w->total) % sizeof(b), 0)) > 0) {
		for (long i = 0; i < r; i++)
			w->added += b[i] * 257 + 1;
		w->total += r;
	}
	w->err = r < 0 ? errno : 0;
	return NULL;
}

static void *write_all(void *arg)
{
	struct worker *w = arg;
	unsigned char b[5000];
	long left = w->total;

	while (left > 0) {
		long n = 1 + (w->id * 911 + left) % sizeof(b);

		n = n < left ? n : left;
		fill(b, n, left * 3 + w->id);
		n = send(w->fd, b, n, 0);
		if (n <= 0) {
			w->err = errno;
			break;
		}
		for (long i = 0; i < n; i++)
			w->added += b[i] * 257 + 1;
		left -= n;
	}
	w->total -= left;
	return NULL;
}

static void start(struct worker *w, int n, int fd, void *(*fn)(void *), long total)
{
	for (int i = 0; i < n; i++) {
		w[i] = (struct worker){ .fd = fd, .id = i, .total = total };
		if (pthread_create(&w[i].thread, NULL, fn, &w[i]))
			fail("no thread");
	}
}

static struct worker finish(struct worker *w, int n)
{
	struct worker all = { };

	for (int i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		all.total += w[i].total;
		all.added += w[i].added;
		all.err |= w[i].err;
	}
	return all;
}

static void crowd(int readers, int writers, bool both_ways)
{
	struct worker r[2][4], w[2][4], in, out;
	int dirs = both_ways ? 2 : 1;
	struct conn k;

	conn_start(&k);
	where("%d readers and %d writers", readers, writers);
	for (int d = 0; d < dirs; d++) {
		start(r[d], readers, d ? k.a : k.b, read_all, 0);
		start(w[d], writers, d ? k.b : k.a, write_all, 2 * MIB / writers);
	}
	for (int d = 0; d < dirs; d++) {
		out = finish(w[d], writers);
		say("wrote %ld err %d", out.total, out.err);
		if (d == dirs - 1)
			conn_proof(&k);
		shutdown(d ? k.b : k.a, SHUT_WR);
		where("waiting for the readers");
		in = finish(r[d], readers);
		say("read %ld err %d, same bytes %d", in.total, in.err, in.added == out.added);
	}
	conn_end(&k);
}

static void many_readers(void)
{
	crowd(4, 1, false);
}

static void many_writers(void)
{
	crowd(1, 4, false);
}

static void readers_and_writers_both_ways(void)
{
	crowd(2, 2, true);
}

struct lines {
	int fd;
	volatile bool over;	/* the long messages are sent */
	long sent, failed;
	pthread_t thread;
};

static void *short_lines(void *arg)
{
	struct lines *l = arg;
	char b[100];

	memset(b, 'b', sizeof(b));
	while (!l->over && l->sent < 4000) {
		/* every other one would block where there is no room */
		if (send(l->fd, b, sizeof(b), l->sent & 1 ? MSG_DONTWAIT : 0) != sizeof(b))
			l->failed++;
		__atomic_store_n(&l->sent, l->sent + 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *long_lines(void *arg)
{
	struct lines *l = arg;
	char *b = malloc(256 * KIB);

	memset(b, 'a', 256 * KIB);
	for (int i = 0; i < 8; i++) {
		if (send(l->fd, b, 256 * KIB, 0) != 256 * KIB)
			l->failed++;
		l->sent++;
	}
	free(b);
	return NULL;
}

/* With room for all of it, each thread's message comes as a whole, also one that is many
 * times as long as a ring.
 */
static void whole_messages(void)
{
	struct lines s = {}, l = {};
	int room = 8 * MIB;
	long torn = 0, run = 0, total = 0, r;
	char b[16 * KIB], last = 0;
	struct conn k;

	conn_start(&k);
	MUST(setsockopt(k.a, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)));
	s.fd = l.fd = k.a;
	pthread_create(&s.thread, NULL, short_lines, &s);
	where("waiting for a short message");
	while (!__atomic_load_n(&s.sent, __ATOMIC_RELAXED))
		sched_yield();
	pthread_create(&l.thread, NULL, long_lines, &l);
	where("reading the long messages");
	while (total < 8 * 256 * KIB && (r = recv(k.b, b, sizeof(b), 0)) > 0) {
		for (long i = 0; i < r; i++) {
			if (b[i] != last) {
				torn += last && run % (last == 'a' ? 256 * KIB : 100);
				last = b[i];
				run = 0;
			}
			run++;
			total += b[i] == 'a';
		}
	}
	pthread_join(l.thread, NULL);
	s.over = true;
	pthread_join(s.thread, NULL);
	say("long messages %ld, short ones %d, failed %ld, torn %d", l.sent, s.sent > 0,
	    l.failed + s.failed, torn != 0);
	conn_proof(&k);
	shutdown(k.a, SHUT_WR);
	while (recv(k.b, b, sizeof(b), 0) > 0)
		;
	conn_end(&k);
}

/* All readers asleep, one byte: exactly one gets it. Then the end of the
 * stream: all of them do.
 */
static void sleeping_readers(void)
{
	struct conn k;
	struct call c[3];
	char b[3][4];
	long got = 0, ends = 0;

	conn_start(&k);
	for (int i = 0; i < 3; i++) {
		CALL_RECV(&c[i], k.b, b[i], 4, 0);
		call_blocked(&c[i]);
	}
	SAY(send(k.a, "x", 1, 0));
	conn_proof(&k);
	SAY(shutdown(k.a, SHUT_WR));
	for (int i = 0; i < 3; i++) {
		long r = call_end(&c[i]);

		got += r > 0 ? r : 0;
		ends += !r;
	}
	say("%ld byte, %ld ends", got, ends);
	conn_end(&k);
}

static void forked_writers(void)
{
	struct worker r = { .id = 1 };
	struct conn k;
	int pid[3];

	conn_start(&k);
	for (int p = 0; p < 3; p++) {
		pid[p] = MUST(fork());
		if (!pid[p]) {
			struct worker w = { .fd = k.a, .id = p, .total = 500 * KIB };

			close(k.b);
			write_all(&w);
			_exit(w.total == 500 * KIB && !w.err ? 0 : 1);
		}
	}
	/* The stream ends when the last holder has closed, not before. */
	conn_proof(&k);
	close(k.a);
	r.fd = k.b;
	where("reading what three processes write");
	read_all(&r);
	say("read %ld err %d, sum %llu", r.total, r.err, (unsigned long long)r.added);
	for (int p = 0; p < 3; p++) {
		int status = -1;

		MUST(waitpid(pid[p], &status, 0));
		say("child %d", status);
	}
	conn_proof(&k);
	close(k.b);
}

static void child_reads_on(void)
{
	struct conn k;
	char b[64];
	int pid, status;

	conn_start(&k);
	SAY(send(k.a, "for the parent, for the child", 29, 0));
	SAY_BUF(recv(k.b, b, 15, MSG_WAITALL), b);
	pid = MUST(fork());
	if (!pid) {
		long n = recv(k.b, b, 64, 0);

		say_bytes("child's recv", n, b);
		say_ret("child's send", send(k.b, "hello", 5, 0));
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0));
	SAY_BUF(recv(k.a, b, 64, 0), b);
	conn_end(&k);
}

static void duplicate_descriptor(void)
{
	struct conn k;
	char b[64];
	int d;

	conn_start(&k);
	d = MUST(dup(k.a));
	SAY(send(k.a, "one ", 4, 0));
	SAY(close(k.a));
	SAY(send(d, "two", 3, 0));
	SAY_BUF(recv(k.b, b, 7, MSG_WAITALL), b);
	SAY(recv(k.b, b, 7, MSG_DONTWAIT));
	SAY(shutdown(d, SHUT_WR));
	SAY(recv(k.b, b, 7, 0));
	k.a = d;
	conn_end(&k);
}

static int pass_fd(int over, int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c = { .h = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS } };
	struct iovec v = { "f", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	char in[1];

	if (fd >= 0) {
		memcpy(CMSG_DATA(&c.h), &fd, sizeof(fd));
		return sendmsg(over, &m, 0);
	}
	v.iov_base = in;
	if (recvmsg(over, &m, 0) != 1)
		return -1;
	memcpy(&fd, CMSG_DATA(&c.h), sizeof(fd));
	return fd;
}

/* The socket moves to another process with data queued, twice. */
static void passed_with_data_queued(void)
{
	struct conn k;
	char b[64];
	int un[2], pid, status;

	conn_start(&k);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, un));
	SAY(send(k.a, "queued before", 13, 0));
	arrive(k.b, 13);
	pid = MUST(fork());
	if (!pid) {
		int fd;

		close(k.a);
		close(k.b);
		fd = pass_fd(un[1], -1);
		say_bytes("receiver", recv(fd, b, 7, MSG_WAITALL), b);
		say_ret("receiver", send(fd, "thanks", 6, 0));
		pass_fd(un[1], fd);
		_exit(0);
	}
	MUST(pass_fd(un[0], k.b));
	MUST(close(k.b));
	MUST(waitpid(pid, &status, 0));
	SAY_BUF(recv(k.a, b, 6, MSG_WAITALL), b);
	k.b = MUST(pass_fd(un[0], -1));
	SAY_BUF(recv(k.b, b, 64, 0), b);
	conn_end(&k);
}

static void in_flight_in_unix_socket(void)
{
	struct conn k;
	char b[64];
	int un[2];

	conn_start(&k);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, un));
	MUST(pass_fd(un[0], k.b));
	MUST(close(k.b));
	SAY(send(k.a, "nobody holds it", 15, 0));
	k.b = MUST(pass_fd(un[1], -1));
	SAY_BUF(recv(k.b, b, 64, 0), b);
	conn_end(&k);
}

/* What the kernel closes for a dead process: FIN, or RST over unread data. */
static void killed_process(void)
{
	for (int unread = 0; unread < 2; unread++) {
		struct conn k;
		int pid, status, go[2];
		char b[16], c;

		conn_start(&k);
		MUST(pipe(go));
		pid = MUST(fork());
		if (!pid) {
			close(k.b);
			send(k.a, "last words", 10, 0);
			c = 1;
			if (write(go[1], &c, 1) != 1)
				_exit(1);
			pause();
		}
		close(k.a);
		if (read(go[0], &c, 1) != 1)
			fail("pipe");
		if (unread)
			SAY(send(k.b, "unread", 6, 0));
		conn_proof(&k);
		kill(pid, SIGKILL);
		MUST(waitpid(pid, &status, 0));
		arrive_fin(k.b);
		say_poll("peer killed", poll_now(k.b));
		SAY_BUF(recv(k.b, b, 16, 0), b);
		SAY(recv(k.b, b, 16, 0));
		SAY(recv(k.b, b, 16, 0));
		close(k.b);
	}
}

/* close() in one thread does not end another thread's recv. */
static void closed_under_reader(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	conn_proof(&k);
	CALL_RECV(&c, k.b, b, 16, 0);
	call_blocked(&c);
	SAY(close(k.b));
	SAY(send(k.a, "abc", 3, 0));
	conn_proof(&k);
	SAY_BUF(call_end(&c), b);
	arrive_fin(k.a);
	SAY(recv(k.a, b, 16, 0));
}

const struct bcase share_cases[] = {
	CASE(many_readers), CASE(many_writers), CASE(whole_messages),
	CASE(readers_and_writers_both_ways),
	CASE(sleeping_readers), CASE(forked_writers), CASE(child_reads_on),
	CASE(duplicate_descriptor), CASE(passed_with_data_queued),
	CASE(in_flight_in_unix_socket), CASE(killed_process), CASE_PAIR(closed_under_reader),
	{ }
};
