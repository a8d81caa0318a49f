// SPDX-License-Identifier: GPL-2.0
/*
 * splice(2), sendfile(2) and tee(2).
 */
#include "behave.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

#define CALL_SPLICE(c, from, to, len, flags) \
	call_start(c, SYS_splice, (long)(from), 0L, (long)(to), 0L, (long)(len), (long)(flags))

static void pipe_make(int p[2], int size)
{
	MUST(pipe(p));
	if (size)
		MUST(fcntl(p[0], F_SETPIPE_SZ, size));
}

/* Reads @len bytes of the pattern out of a pipe. */
static long pipe_pattern(int fd, size_t len, uint64_t *pos)
{
	char b[4096];
	size_t total = 0;

	while (total < len) {
		long r = read(fd, b, len - total < sizeof(b) ? len - total : sizeof(b));

		if (r <= 0)
			break;
		if (!is_pattern(b, r, *pos))
			fail("the pipe is damaged at byte %llu", (unsigned long long)*pos);
		*pos += r;
		total += r;
	}
	return total;
}

static void pipe_to_socket(void)
{
	char b[10000];
	uint64_t in = 0;
	struct conn k;
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	fill(b, sizeof(b), 0);
	SAY(write(p[1], b, sizeof(b)));
	SAY(splice(p[0], NULL, k.a, NULL, 4000, 0));
	SAY(splice(p[0], NULL, k.a, NULL, 6000, SPLICE_F_MORE));
	say("received %ld", recv_pattern(k.b, 10000, &in));
	conn_end(&k);
}

static void socket_to_pipe(void)
{
	struct conn k;
	char b[64];
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	nonblock(k.b, true);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY(splice(k.b, NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK));
	SAY(send(k.a, "abcdefghij", 10, 0));
	arrive(k.b, 10);
	SAY(splice(k.b, NULL, p[1], NULL, 4, 0));
	SAY_BUF(read(p[0], b, 64), b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK));
	SAY_BUF(read(p[0], b, 64), b);
	SAY(splice(k.b, NULL, p[1], NULL, 0, 0));
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY(send(k.a, "end", 3, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(read(p[0], b, 64), b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	conn_end(&k);
}

static void splice_blocks(void)
{
	struct conn k;
	struct call c;
	char b[64];
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	for (int i = 0; i < 3; i++) {
		CALL_SPLICE(&c, k.b, p[1], 100, 0);
		call_blocked(&c);
		SAY(send(k.a, "wake", 4, 0));
		SAY(call_end(&c));
		SAY_BUF(read(p[0], b, 64), b);
	}
	CALL_SPLICE(&c, k.b, p[1], 100, 0);
	call_blocked(&c);
	SAY(shutdown(k.a, SHUT_WR));
	SAY(call_end(&c));
	conn_end(&k);
}

/* splice(2) returns with any byte, but a sleeping reader is not woken below the mark. */
static void splice_at_mark(void)
{
	static char many[4096 + 500];
	int low = 4, p[2];
	struct conn k;
	struct call c;
	char b[64];

	conn_start(&k);
	pipe_make(p, 0);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(send(k.a, "ab", 2, 0));
	arrive(k.b, 2);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(read(p[0], b, 64), b);
	for (int i = 0; i < 3; i++) {
		CALL_SPLICE(&c, k.b, p[1], 2 + i, 0);
		call_blocked(&c);
		SAY(send(k.a, "cd", 2, 0));
		arrive(k.b, 2);
		call_blocked(&c);
		SAY(send(k.a, "e", 1, 0));
		arrive(k.b, 3);
		call_blocked(&c);
		SAY(send(k.a, "f", 1, 0));
		SAY(call_end(&c));
		SAY_BUF(read(p[0], b, 64), b);
		if (i < 2)
			SAY_BUF(recv(k.b, b, 64, MSG_DONTWAIT), b);
	}
	/* Once awake, the reader takes all bytes. It leaves no rest, though a part page is less
	 * than the mark.
	 */
	low = sizeof(many);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	CALL_SPLICE(&c, k.b, p[1], 60000, 0);
	call_blocked(&c);
	SAY(send(k.a, many, sizeof(many), 0));
	SAY(call_end(&c));
	SAY(read(p[0], many, sizeof(many)));
	CALL_SPLICE(&c, k.b, p[1], 100, 0);
	call_blocked(&c);
	SAY(send(k.a, "g", 1, 0));
	arrive(k.b, 1);
	call_blocked(&c);
	SAY(shutdown(k.a, SHUT_WR));
	SAY(call_end(&c));
	SAY_BUF(read(p[0], b, 64), b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	conn_end(&k);
}

static void nothing(int sig)
{
	(void)sig;
}

/* If fewer bytes than the mark are unread, a signal ends the call and the bytes stay. */
static void splice_interrupted(void)
{
	struct sigaction sa = { .sa_handler = nothing };
	int low = 4, p[2];
	struct conn k;
	struct call c;
	char b[8];

	conn_start(&k);
	pipe_make(p, 0);
	MUST(sigaction(SIGUSR1, &sa, NULL));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	for (int i = 0; i < 2; i++) {
		CALL_SPLICE(&c, k.b, p[1], 100, 0);
		call_blocked(&c);
		if (i) {
			SAY(send(k.a, "abc", 3, 0));
			arrive(k.b, 3);
			call_blocked(&c);
		}
		pthread_kill(c.thread, SIGUSR1);
		SAY(call_end(&c));
	}
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(read(p[0], b, sizeof(b)), b);
	conn_end(&k);
}

static void splice_reset(void)
{
	struct conn k;
	struct call c;
	char b[8];
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.b, b, 8, 0));
	CALL_SPLICE(&c, k.b, p[1], 100, 0);
	call_blocked(&c);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	SAY(call_end(&c));
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	close(k.b);
}

/* A pipe of one page: bytes that do not fit stay in the socket. */
static void partial_pipe(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	int p[2], stuck = 0;

	conn_start(&k);
	pipe_make(p, 4096);
	send_pattern(k.a, 20000, &out, 0);
	arrive(k.b, 20000);
	while (in < out) {
		long r = splice(k.b, NULL, p[1], NULL, out, SPLICE_F_NONBLOCK);

		if (r <= 0)
			fail("splice: %ld %s", r, strerror(errno));
		while (splice(k.b, NULL, p[1], NULL, out, SPLICE_F_NONBLOCK) > 0)
			;
		stuck += errno == EAGAIN;
		nonblock(p[0], true);
		pipe_pattern(p[0], out - in, &in);
	}
	say("all came %d, the pipe was full at times %d", in == out, stuck > 0);
	conn_end(&k);
}

static void splice_offset_refused(void)
{
	loff_t off = 0;
	struct conn k;
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY(splice(k.b, &off, p[1], NULL, 3, 0));
	SAY(splice(k.b, NULL, k.a, NULL, 3, 0));
	SAY(splice(k.b, NULL, p[1], NULL, 3, 0));
	conn_end(&k);
}

/* Bytes in a pipe do not change when the sender reuses the ring's pages. */
static void spliced_bytes_stay(void)
{
	uint64_t out = 0, in = 0, seen = 0;
	struct conn k;
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	send_pattern(k.a, 8000, &out, 0);
	arrive(k.b, 8000);
	for (long r, got = 0; got < 8000; got += r) {
		r = splice(k.b, NULL, p[1], NULL, 8000 - got, 0);
		if (r <= 0)
			fail("splice");
	}
	in = 8000;
	for (int i = 0; i < 20; i++) {
		send_pattern(k.a, 30000, &out, 0);
		recv_pattern(k.b, 30000, &in);
	}
	say("in the pipe %ld", pipe_pattern(p[0], 8000, &seen));
	conn_end(&k);
}

struct mover {
	int from, to, pipe[2];
	pthread_t thread;
	int err;
};

static void *move_all(void *arg)
{
	struct mover *m = arg;

	for (;;) {
		long n = splice(m->from, NULL, m->pipe[1], NULL, 50000, 0);

		if (n <= 0) {
			m->err = n < 0 ? errno : 0;
			break;
		}
		while (n > 0) {
			long r = splice(m->pipe[0], NULL, m->to, NULL, n, SPLICE_F_MORE);

			if (r <= 0) {
				m->err = errno;
				return NULL;
			}
			n -= r;
		}
	}
	shutdown(m->to, SHUT_WR);
	return NULL;
}

/* A relay between two connections, like that of proxies and of Go's io.Copy. */
static void relay(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_BIG, .len = 4 * MIB };
	struct stream r = { .mode = STREAM_RECV };
	struct mover m = { };
	struct conn k1, k2;

	conn_start(&k1);
	conn_start(&k2);
	pipe_make(m.pipe, 0);
	m.from = k1.b;
	m.to = k2.a;
	s.fd = k1.a;
	r.fd = k2.b;
	where("relaying by splice");
	pthread_create(&m.thread, NULL, move_all, &m);
	stream_start(&s);
	stream_start(&r);
	stream_end(&s);
	conn_proof(&k1);
	shutdown(k1.a, SHUT_WR);
	pthread_join(m.thread, NULL);
	stream_end(&r);
	say("sent %ld received %ld damaged %d err %d", s.done, r.done, r.damaged, m.err);
	conn_end(&k1);
	conn_end(&k2);
}

static void file_to_socket(void)
{
	struct stream r = { .mode = STREAM_RECV };
	int fd = MUST(memfd_create("file", 0));
	char *b = malloc(300 * KIB);
	off_t off = 1000;
	struct conn k;

	conn_start(&k);
	fill(b, 300 * KIB, 0);
	SAY(write(fd, b, 300 * KIB));
	r.fd = k.b;
	r.pos = 1000;
	stream_start(&r);
	where("sendfile");
	for (long total = 0; total < 300 * KIB - 1000;) {
		long n = sendfile(k.a, fd, &off, 300 * KIB);

		if (n <= 0)
			fail("sendfile: %s", strerror(errno));
		total += n;
	}
	say("offset %ld", (long)off);
	SAY(sendfile(k.a, fd, &off, 1000));
	conn_proof(&k);
	SAY(shutdown(k.a, SHUT_WR));
	stream_end(&r);
	say("received %ld damaged %d", r.done, r.damaged);
	SAY(sendfile(fd, k.b, NULL, 10));
	conn_end(&k);
}

static void tee_onward(void)
{
	uint64_t in = 0, in2 = 0, out = 0;
	int p[2], q[2];
	struct conn k;

	conn_start(&k);
	pipe_make(p, 0);
	pipe_make(q, 0);
	send_pattern(k.a, 6000, &out, 0);
	arrive(k.b, 6000);
	for (long r, got = 0; got < 6000; got += r) {
		r = splice(k.b, NULL, p[1], NULL, 6000 - got, 0);
		if (r <= 0)
			fail("splice");
	}
	SAY(tee(p[0], q[1], 6000, 0));
	say("first %ld second %ld", pipe_pattern(p[0], 6000, &in), pipe_pattern(q[0], 6000, &in2));
	SAY(tee(k.b, q[1], 10, 0));
	conn_end(&k);
}

static void splice_across_spill(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_BIG, .len = 400 * KIB };
	uint64_t in = 0;
	struct conn k;
	int p[2];

	conn_start_with(&k, prep_big_buffers);
	pipe_make(p, 0);
	s.fd = k.a;
	stream_start(&s);
	arrive(k.b, 200 * KIB);
	where("splicing what spilled");
	while (in < 400 * KIB) {
		long r = splice(k.b, NULL, p[1], NULL, 30000, 0);

		if (r <= 0)
			fail("splice: %s", strerror(errno));
		if (pipe_pattern(p[0], r, &in) != r)
			fail("pipe");
	}
	stream_end(&s);
	say("spliced %llu", (unsigned long long)in);
	conn_end(&k);
}

/* recv and splice take turns on one stream. */
static void splice_and_recv_in_turn(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	int p[2];

	conn_start(&k);
	pipe_make(p, 0);
	for (int i = 0; i < 30; i++) {
		long r;

		send_pattern(k.a, 3000, &out, 0);
		arrive(k.b, 3000);
		recv_pattern(k.b, 1000 + i, &in);
		while (in < out) {
			r = splice(k.b, NULL, p[1], NULL, out - in, 0);
			if (r <= 0 || pipe_pattern(p[0], r, &in) != r)
				fail("splice");
		}
	}
	say("total %llu", (unsigned long long)in);
	conn_end(&k);
}

/* splice(2) does not move SO_PEEK_OFF. */
static void peek_offset_stays(void)
{
	int off = 2, got = -2, p[2];
	socklen_t len = sizeof(got);
	struct conn k;
	char b[16];

	conn_start(&k);
	pipe_make(p, 0);
	if (SAY(setsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off))) < 0)
		skip("no SO_PEEK_OFF on TCP here");
	SAY(send(k.a, "abcdefghij", 10, 0));
	arrive(k.b, 10);
	SAY(splice(k.b, NULL, p[1], NULL, 3, 0));
	SAY(getsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &got, &len));
	say("offset %d", got);
	SAY_BUF(recv(k.b, b, 2, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

const struct bcase splice_cases[] = {
	CASE(pipe_to_socket), CASE(socket_to_pipe), CASE(splice_blocks), CASE(splice_at_mark),
	CASE(splice_interrupted), CASE(splice_reset), CASE(partial_pipe),
	CASE(splice_offset_refused), CASE(spliced_bytes_stay), CASE(relay),
	CASE(file_to_socket), CASE(tee_onward), CASE(splice_across_spill),
	CASE(splice_and_recv_in_turn), CASE(peek_offset_stays),
	{ }
};
