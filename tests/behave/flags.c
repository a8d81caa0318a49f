// SPDX-License-Identifier: GPL-2.0
/*
 * Receive flags and the counting ioctls.
 */
#include "behave.h"

static void peek(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(recv(k.b, b, 8, MSG_PEEK | MSG_DONTWAIT));
	SAY(send(k.a, "abcdef", 6, 0));
	arrive(k.b, 6);
	SAY_BUF(recv(k.b, b, 4, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 64, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 2, 0), b);
	SAY_BUF(recv(k.b, b, 64, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, MSG_PEEK | MSG_DONTWAIT));
	SAY(shutdown(k.a, SHUT_WR));
	SAY(recv(k.b, b, 64, MSG_PEEK));
	SAY(recv(k.b, b, 64, 0));
	conn_end(&k);
}

static void peek_blocks(void)
{
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	CALL_RECV(&c, k.b, b, 16, MSG_PEEK);
	call_blocked(&c);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(call_end(&c), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

static void peek_offset(void)
{
	int off = 0, got = -2;
	socklen_t len = sizeof(got);
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &got, &len));
	say("offset %d", got);
	if (SAY(setsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off))) < 0)
		skip("no SO_PEEK_OFF on TCP here");
	SAY(send(k.a, "abcdefghij", 10, 0));
	arrive(k.b, 10);
	SAY_BUF(recv(k.b, b, 3, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 3, MSG_PEEK), b);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &got, &len));
	say("offset %d", got);
	SAY_BUF(recv(k.b, b, 2, 0), b);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &got, &len));
	say("offset %d", got);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK), b);
	SAY(recv(k.b, b, 16, MSG_PEEK | MSG_DONTWAIT));
	SAY(recv(k.b, b, 0, MSG_PEEK | MSG_DONTWAIT));
	off = 5;
	SAY(setsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(getsockopt(k.b, SOL_SOCKET, SO_PEEK_OFF, &got, &len));
	say("offset %d", got);
	conn_end(&k);
}

static void peek_across_spill(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_BIG, .len = 300 * KIB };
	char *b = malloc(300 * KIB);
	uint64_t in = 0;
	struct conn k;
	long r;

	conn_start_with(&k, prep_big_buffers);
	s.fd = k.a;
	stream_start(&s);
	where("peeking at 250 KiB");
	r = SAY(recv(k.b, b, 250 * KIB, MSG_PEEK | MSG_WAITALL));
	say("pattern %d", r > 0 && is_pattern(b, r, 0));
	say("received %ld", recv_pattern(k.b, 300 * KIB, &in));
	stream_end(&s);
	say("sent %ld", s.done);
	conn_end(&k);
}

static void waitall(void)
{
	struct conn k;
	struct call c;
	char b[64];

	conn_start(&k);
	CALL_RECV(&c, k.b, b, 10, MSG_WAITALL);
	call_blocked(&c);
	SAY(send(k.a, "abcd", 4, 0));
	call_blocked(&c);
	SAY(send(k.a, "efghij", 6, 0));
	SAY_BUF(call_end(&c), b);
	SAY(send(k.a, "more", 4, 0));
	arrive(k.b, 4);
	SAY_BUF(recv(k.b, b, 10, MSG_WAITALL | MSG_DONTWAIT), b);
	SAY(send(k.a, "last", 4, 0));
	SAY(shutdown(k.a, SHUT_WR));
	SAY_BUF(recv(k.b, b, 10, MSG_WAITALL), b);
	SAY(recv(k.b, b, 10, MSG_WAITALL));
	conn_end(&k);
}

static void waitall_across_spill(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_BIG, .len = MIB };
	char *b = malloc(MIB);
	struct conn k;
	long r;

	conn_start(&k);
	s.fd = k.a;
	stream_start(&s);
	r = SAY(recv(k.b, b, MIB, MSG_WAITALL));
	say("pattern %d", r > 0 && is_pattern(b, r, 0));
	stream_end(&s);
	conn_end(&k);
}

static void trunc_discards(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abcdefghij", 10, 0));
	arrive(k.b, 10);
	memset(b, '-', sizeof(b));
	SAY(recv(k.b, b, 3, MSG_TRUNC));
	say("buffer untouched %d", b[0] == '-');
	SAY(recv(k.b, NULL, 2, MSG_TRUNC));
	SAY(recv(k.b, NULL, 2, MSG_TRUNC | MSG_PEEK));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(recv(k.b, NULL, 2, MSG_TRUNC | MSG_DONTWAIT));
	SAY(send(k.a, "klm", 3, 0));
	arrive(k.b, 3);
	SAY(recv(k.b, NULL, 100, MSG_TRUNC));
	SAY(recv(k.b, b, 16, MSG_DONTWAIT));
	conn_end(&k);
}

static void trunc_across_spill(void)
{
	struct stream s = { .mode = STREAM_SEND, .len = 300 * KIB };
	uint64_t in = 250 * KIB;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	s.fd = k.a;
	stream_start(&s);
	SAY(recv(k.b, NULL, 250 * KIB, MSG_TRUNC | MSG_WAITALL));
	say("received %ld", recv_pattern(k.b, 50 * KIB, &in));
	stream_end(&s);
	conn_end(&k);
}

static int inq(int fd)
{
	int n = -1;

	MUST(ioctl(fd, FIONREAD, &n));
	return n;
}

static void fionread(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	say("%d", inq(k.b));
	for (int i = 0; i < 5; i++) {
		send_pattern(k.a, 30 * KIB, &out, 0);
		arrive(k.b, out);
		say("%d", inq(k.b));
	}
	recv_pattern(k.b, 100, &in);
	say("%d", inq(k.b));
	recv_pattern(k.b, 100 * KIB, &in);
	say("%d", inq(k.b));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	say("with FIN %d", inq(k.b));
	recv_pattern(k.b, 10 * MIB, &in);
	say("%d", inq(k.b));
	say("total %llu", (unsigned long long)in);
	conn_end(&k);
}

static void siocoutq(void)
{
	uint64_t out = 0, in = 0;
	int n = -1, unsent = -1;
	struct conn k;

	conn_start(&k);
	SAY(ioctl(k.a, SIOCOUTQ, &n));
	where("waiting for the queue to empty");
	for (int i = 0; i < 2; i++) {
		send_pattern(k.a, 20 * KIB, &out, 0);
		do
			MUST(ioctl(k.a, SIOCOUTQ, &n));
		while (n);
		MUST(ioctl(k.a, SIOCOUTQNSD, &unsent));
		say("queue %d, unsent %d", n, unsent);
	}
	say("received %ld", recv_pattern(k.b, out, &in));
	conn_end(&k);
}

static void ioctl_errors(void)
{
	struct conn k;
	char b[8];
	int n;

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY_BUF(recv(k.b, b, 8, 0), b);
	SAY(ioctl(k.b, 0xdeadbeef, &n));
	SAY(ioctl(k.b, FIONREAD, NULL));
	SAY(ioctl(k.b, SIOCATMARK, &n));
	say("mark %d", n);
	SAY(ioctl(k.b, SIOCGIFINDEX, NULL));
	conn_end(&k);
}

/* A flag that TCP does not know changes nothing. */
static void odd_flags(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, MSG_EOR));
	SAY(send(k.a, "def", 3, MSG_CONFIRM | MSG_DONTROUTE));
	arrive(k.b, 6);
	SAY_BUF(recv(k.b, b, 3, MSG_CTRUNC), b);
	SAY_BUF(recv(k.b, b, 16, MSG_NOSIGNAL), b);
	conn_end(&k);
}

/* A reader sleeps in MSG_PEEK while another reader takes the bytes that it has seen. The first
 * goes on with the byte that is first in the stream then.
 */
static void peek_beside_a_reader(void)
{
	struct conn k;
	struct call c;
	char b[16], x[16];

	conn_start(&k);
	for (int i = 0; i < 3; i++) {
		SAY(send(k.a, "abcd", 4, 0));
		arrive(k.b, 4);
		CALL_RECV(&c, k.b, b, 10, MSG_PEEK | MSG_WAITALL);
		call_blocked(&c);
		SAY_BUF(recv(k.b, x, 4, 0), x);
		call_blocked(&c);
		SAY(send(k.a, "efghij", 6, 0));
		SAY_BUF(call_end(&c), b);
		SAY_BUF(recv(k.b, x, 6, MSG_WAITALL), x);
	}
	conn_end(&k);
}

const struct bcase flags_cases[] = {
	CASE(peek), CASE(peek_blocks), CASE(peek_offset), CASE(peek_across_spill), CASE(waitall),
	CASE(waitall_across_spill), CASE(trunc_discards), CASE(trunc_across_spill),
	CASE(fionread), CASE(siocoutq), CASE(ioctl_errors), CASE(odd_flags),
	CASE(peek_beside_a_reader),
	{ }
};
