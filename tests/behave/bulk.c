// SPDX-License-Identifier: GPL-2.0
/*
 * Large transfers: both ends writing before either reads, spills, random sizes
 * both ways at once.
 */
#include "behave.h"

static void both_write_before_reading(void)
{
	uint64_t ab = 0, ba = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	where("both write 300 KiB, neither reads");
	for (int i = 0; i < 15; i++) {
		send_pattern(k.a, 20 * KIB, &ab, 0);
		send_pattern(k.b, 20 * KIB, &ba, 0);
	}
	say("written %llu %llu", (unsigned long long)ab, (unsigned long long)ba);
	say("read %ld", recv_pattern(k.a, ba, &in));
	in = 0;
	say("read %ld", recv_pattern(k.b, ab, &in));
	conn_end(&k);
}

static void both_write_at_once(void)
{
	uint64_t ab = 0, ba = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	where("both write 300 KiB in one call, neither reads");
	say("%ld", send_pattern(k.a, 300 * KIB, &ab, 0));
	say("%ld", send_pattern(k.b, 300 * KIB, &ba, 0));
	say("read %ld", recv_pattern(k.a, ba, &in));
	in = 0;
	say("read %ld", recv_pattern(k.b, ab, &in));
	conn_end(&k);
}

static void both_write_until_full(void)
{
	uint64_t ab = 0, ba = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	for (int i = 0; i < 3; i++) {
		long a = send_until_eagain(k.a, &ab, 64 * MIB);
		long b = send_until_eagain(k.b, &ba, 64 * MIB);

		say("at least 200 KiB each: %d %d", a >= 200 * KIB, b >= 200 * KIB);
		in = ba - b;
		say("all read %d", recv_pattern(k.a, b, &in) == b);
		in = ab - a;
		say("all read %d", recv_pattern(k.b, a, &in) == a);
	}
	conn_end(&k);
}

static void sizes(void)
{
	static const size_t list[] = {
		1, 2, 3, 511, 4095, 4097, 9001, 65535, 65536, 65537, 100000, 131072, 1000003,
		4 * MIB, 16 * MIB,
	};
	struct conn k;

	conn_start(&k);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		uint64_t in = i;
		struct call c;
		char *buf = malloc(list[i]);

		fill(buf, list[i], i);
		CALL_SEND(&c, k.a, buf, list[i], 0);
		where("receiving %zu", list[i]);
		say("received %ld", recv_pattern(k.b, list[i], &in));
		SAY(call_end(&c));
		free(buf);
	}
	conn_end(&k);
}

static void streams(size_t len, int send_mode, int recv_mode)
{
	struct stream s[4] = {
		{ .mode = STREAM_SEND | send_mode, .len = len, .rng = 1 },
		{ .mode = STREAM_RECV | recv_mode, .len = len, .rng = 2 },
		{ .mode = STREAM_SEND | send_mode, .len = len, .rng = 3 },
		{ .mode = STREAM_RECV | recv_mode, .len = len, .rng = 4 },
	};
	struct conn k;

	conn_start(&k);
	s[0].fd = s[3].fd = k.a;
	s[1].fd = s[2].fd = k.b;
	where("streams both ways");
	for (int i = 0; i < 4; i++)
		stream_start(&s[i]);
	for (int i = 0; i < 4; i++)
		stream_end(&s[i]);
	for (int i = 0; i < 4; i++)
		say("stream %d: %ld damaged %d err %d", i, s[i].done, s[i].damaged, s[i].err);
	conn_end(&k);
}

static void small_both_ways(void)
{
	streams(3 * MIB, 0, 0);
}

static void large_both_ways(void)
{
	streams(16 * MIB, STREAM_BIG, STREAM_BIG);
}

static void large_sender_small_reader(void)
{
	streams(6 * MIB, STREAM_BIG, 0);
}

static void with_peeks(void)
{
	streams(4 * MIB, STREAM_BIG, STREAM_BIG | STREAM_PEEK);
}

/* After a spill and a drain the ring is used again. */
static void ring_reopens(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 10; j++)
			send_pattern(k.a, 30 * KIB, &out, 0);
		recv_pattern(k.b, out - in, &in);
		conn_proof(&k);
		for (int j = 0; j < 10; j++) {
			send_pattern(k.a, 1000, &out, 0);
			recv_pattern(k.b, 1000, &in);
		}
	}
	say("received %llu", (unsigned long long)in);
	conn_end(&k);
}

/* Requests and answers of random size, as programs exchange them. */
static void requests(void)
{
	uint64_t seed = env.seed, pos = 0;
	struct conn k;

	conn_start(&k);
	for (int i = 0; i < 150; i++) {
		size_t n = 1 + rnd(&seed) % (i % 10 ? 3000 : 200 * KIB);
		uint64_t in = pos;
		struct call c;
		char *buf = malloc(n);

		fill(buf, n, pos);
		CALL_SEND(&c, i % 2 ? k.b : k.a, buf, n, 0);
		where("request %d of %zu bytes", i, n);
		if (recv_pattern(i % 2 ? k.a : k.b, n, &in) != (long)n || call_end(&c) != (long)n)
			fail("request %d", i);
		pos += n;
		free(buf);
	}
	say("150 requests, %llu bytes", (unsigned long long)pos);
	conn_end(&k);
}

const struct bcase bulk_cases[] = {
	CASE(both_write_before_reading), CASE(both_write_at_once), CASE(both_write_until_full),
	CASE(sizes), CASE(small_both_ways), CASE_ONCE(large_both_ways),
	CASE(large_sender_small_reader), CASE(with_peeks), CASE(ring_reopens), CASE(requests),
	{ }
};
