// SPDX-License-Identifier: GPL-2.0
/*
 * A producer thread and a consumer thread on one ring, with random chunks and
 * peeks, every byte verified; a third thread reads ring_len, as a netlink dump
 * does. Pages come as they are needed. Now and then the producer gives those back
 * that hold no byte, or lets the ring run empty and takes an array of another size.
 * At the end the consumer stops with bytes unread and the producer takes
 * them back. Built under ThreadSanitizer, and under AddressSanitizer with
 * UBSan. `stress NAME SECONDS [SEED]`
 */
#include "shim.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

#define MAX_GROWTH	2	/* powers of two */

struct stress {
	struct ring *r;
	uint64_t seed;
	uint64_t deadline;	/* ns; the producer stops then */
	u32 size;		/* at first, constant */
	uint64_t sent;		/* producer's; read by others after the join */
	uint64_t renewed;	/* producer's; times it took another array */
	uint64_t trimmed;	/* producer's; pages that it gave back from a ring with bytes */
	uint64_t taken;		/* consumer's */
	int producer_done;	/* release/acquire */
	int consumer_done;	/* release/acquire */
	const char *err;	/* any thread's; relaxed */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static u32 chunk(uint64_t *rng, u32 size)
{
	switch (rnd(rng) % 4) {
	case 0:
		return 1 + rnd(rng) % 8;
	case 1:
		return 1 + rnd(rng) % size;
	case 2:
		return RING_PAGE_SIZE;
	default:
		return 1 + rnd(rng) % 200;
	}
}

/* Waits for the consumer: a producer that only looks may never find the ring empty. The new
 * pages are fewer or more.
 */
static void renew_pages(struct stress *s, uint64_t *rng)
{
	u32 size = s->size << rnd(rng) % (MAX_GROWTH + 1);
	void **pages;

	while (ring_len(s->r)) {
		if (READ_ONCE(s->err))
			return;
		sched_yield();
	}
	pages = ring_take_pages(s->r);
	if (!pages) {
		WRITE_ONCE(s->err, "an empty ring keeps its pages");
		return;
	}
	pages_free(pages, s->r->size);
	ring_set_pages(s->r, pages_new(size), size, 0);
	s->renewed++;
}

/* All of it has happened that round_run() asks for. On a busy machine that may take longer than
 * the time of a round.
 */
static int has_shown_all(const struct stress *s)
{
	return s->renewed && (s->trimmed || s->size <= 2 * RING_PAGE_SIZE);
}

#define ROUND_MAX	60000000000ULL	/* ns behind the deadline: give up, and fail */

static void *produce(void *arg)
{
	struct stress *s = arg;
	uint64_t rng = s->seed | 1;

	while (!READ_ONCE(s->err) && (now_ns() < s->deadline ||
				      (!has_shown_all(s) && now_ns() < s->deadline + ROUND_MAX))) {
		u32 want = chunk(&rng, s->r->size), done = 0, len, n;

		ring_rewind(s->r);
		n = min(want, ring_space(s->r, want));

		/* At once for the first time, so that there is one. */
		if (s->sent && (!s->renewed || rnd(&rng) % 64 == 0)) {
			renew_pages(s, &rng);
			continue;
		}
		if (rnd(&rng) % 16 == 0)
			s->trimmed += ring_trim(s->r, rnd(&rng) % 2 * RING_PAGE_SIZE);
		ring_fill(s->r, n);
		while (done < n) {
			unsigned char *p = ring_write_seg(s->r, done, &len);

			len = min(len, n - done);
			for (u32 i = 0; i < len; i++)
				p[i] = pattern(s->sent + done + i);
			done += len;
		}
		if (n) {
			ring_publish(s->r, n);
			s->sent += n;
		} else {
			sched_yield();
		}
	}
	__atomic_store_n(&s->producer_done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int verify(struct stress *s, u32 off, u32 n)
{
	u32 done = 0, len;

	while (done < n) {
		unsigned char *p = ring_read_seg(s->r, off + done, &len);

		len = min(len, n - done);
		for (u32 i = 0; i < len; i++) {
			if (p[i] != pattern(s->taken + off + done + i)) {
				WRITE_ONCE(s->err, "a byte differs");
				return -1;
			}
		}
		done += len;
	}
	return 0;
}

static void *consume(void *arg)
{
	struct stress *s = arg;
	uint64_t rng = (s->seed * 31) | 1;

	/* Stops at the producer's end, leaving what it then holds unread. */
	while (!__atomic_load_n(&s->producer_done, __ATOMIC_ACQUIRE) && !READ_ONCE(s->err)) {
		u32 want = chunk(&rng, READ_ONCE(s->r->size)), used = ring_used(s->r, want);
		u32 n = min(want, used);

		if (!n) {
			sched_yield();
			continue;
		}
		if (rnd(&rng) % 8 == 0) {
			u32 off = rnd(&rng) % used;

			if (verify(s, off, used - off))
				break;
		}
		if (verify(s, 0, n))
			break;
		ring_consume(s->r, n);
		s->taken += n;
	}
	__atomic_store_n(&s->consumer_done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *watch(void *arg)
{
	struct stress *s = arg;

	while (!__atomic_load_n(&s->consumer_done, __ATOMIC_ACQUIRE)) {
		if (ring_len(s->r) > s->size << MAX_GROWTH)
			WRITE_ONCE(s->err, "ring_len exceeds the size");
		sched_yield();
	}
	return NULL;
}

static const char *round_run(struct stress *s, u32 size, u32 start, double seconds)
{
	pthread_t p, c, w;
	u32 left;

	memset(&s->deadline, 0, sizeof(*s) - offsetof(struct stress, deadline));
	s->r = ring_bare(size);
	s->size = size;
	ring_rebase(s->r, start);
	s->deadline = now_ns() + seconds * 1e9;
	pthread_create(&p, NULL, produce, s);
	pthread_create(&c, NULL, consume, s);
	pthread_create(&w, NULL, watch, s);
	pthread_join(p, NULL);
	pthread_join(c, NULL);
	pthread_join(w, NULL);

	left = ring_len(s->r);
	if (!s->err && s->taken + left != s->sent)
		s->err = "bytes lost";
	if (!s->err && left) {
		u32 half = left / 2;

		ring_retract(s->r, half);
		if (ring_used(s->r, left) < left - half || verify(s, 0, left - half))
			s->err = "bytes left by a retract differ";
		ring_retract(s->r, left - half);
		if (ring_len(s->r))
			s->err = "bytes after a full retract";
	}
	if (!s->err && !s->taken)
		s->err = "nothing went through";
	if (!s->err && !s->renewed)
		s->err = "the array was never exchanged";
	if (!s->err && !s->trimmed && size > 2 * RING_PAGE_SIZE)
		s->err = "no page was ever given back";
	ring_free(s->r);
	return s->err;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "plain";
	double seconds = argc > 2 ? atof(argv[2]) : 2;
	struct stress s = { .seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)now_ns() };
	static const u32 pages[] = { 1, 2, 16 };
	unsigned long long total = 0;

	for (int i = 0; i < 3; i++) {
		u32 size = pages[i] * RING_PAGE_SIZE;
		const char *err = round_run(&s, size, 0u - 4 * size, seconds / 3);

		if (err) {
			printf("not ok ring/stress/%s size %u: %s; seed %llu\n", name, size, err,
			       (unsigned long long)s.seed);
			return 1;
		}
		total += s.taken;
	}
	printf("ok ring/stress/%s (page shift %d, %llu bytes, seed %llu)\n", name, RING_PAGE_SHIFT,
	       total, (unsigned long long)s.seed);
	return 0;
}
