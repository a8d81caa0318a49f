// SPDX-License-Identifier: GPL-2.0
/*
 * Random walk of module/core/ring.h beside a plain queue of bytes: after each step
 * the two must agree. `model [SEED [STEPS]]`; a failure prints the seed.
 */
#include "shim.h"

#include <time.h>

#define MODEL_SIZE_MAX	(RING_PAGE_SHIFT < 14 ? 1u << 16 : 4 * RING_PAGE_SIZE)

struct model {
	struct ring *r;
	unsigned char *q;	/* what the ring holds, oldest first */
	u32 len;
	uint64_t next;		/* pattern position of the next new byte */
	uint64_t rng;
};

static const char *step_write(struct model *m)
{
	u32 want = rnd(&m->rng) % (m->r->size + 2);
	u32 space, n, done = 0, len;

	ring_rewind(m->r);
	space = ring_space(m->r, want);
	if (space > m->r->size - m->len)
		return "ring_space promises more than is free";
	if (space < want && space != m->r->size - m->len)
		return "ring_space hides free bytes";
	n = min(want, space);
	ring_fill(m->r, n);
	if (m->r->filled > m->r->size)
		return "more pages than the ring has room for";
	while (done < n) {
		unsigned char *p = ring_write_seg(m->r, done, &len);

		if (!len || len > RING_PAGE_SIZE)
			return "ring_write_seg length";
		len = min(len, n - done);
		if (len > 1 && rnd(&m->rng) % 4 == 0)
			len = 1 + rnd(&m->rng) % (len - 1);
		for (u32 i = 0; i < len; i++)
			p[i] = pattern(m->next + done + i);
		done += len;
	}
	/* A copy that faulted publishes less than it reserved. */
	if (n && rnd(&m->rng) % 8 == 0)
		n = rnd(&m->rng) % n;
	ring_publish(m->r, n);
	for (u32 i = 0; i < n; i++)
		m->q[m->len++] = pattern(m->next++);
	return NULL;
}

static const char *step_read(struct model *m, int consume)
{
	u32 off = consume ? 0 : rnd(&m->rng) % (m->r->size + 1);
	u32 want = rnd(&m->rng) % (m->r->size + 2);
	u32 used = ring_used(m->r, off + want), done = 0, n, len;

	if (used > m->len)
		return "ring_used promises more than is held";
	if (used < off + want && used != m->len)
		return "ring_used hides bytes";
	n = off < used ? min(want, used - off) : 0;
	while (done < n) {
		unsigned char *p = ring_read_seg(m->r, off + done, &len);

		if (!len || len > RING_PAGE_SIZE)
			return "ring_read_seg length";
		len = min(len, n - done);
		if (memcmp(p, m->q + off + done, len))
			return "bytes differ";
		done += len;
	}
	if (consume) {
		ring_consume(m->r, n);
		m->len -= n;
		memmove(m->q, m->q + n, m->len);
	}
	return NULL;
}

/* Un-pairing takes bytes back only after the consumer has stopped; then the
 * ring starts anew, as a drained and re-opened direction does.
 */
static const char *step_retract(struct model *m)
{
	u32 n = m->len ? rnd(&m->rng) % (m->len + 1) : 0;

	ring_retract(m->r, n);
	m->len -= n;
	if (ring_len(m->r) != m->len)
		return "length after retract";
	m->r->head_cache = m->r->head;
	return NULL;
}

/* Of an empty ring all pages but one may go, or all; else those that hold no byte. */
static const char *step_trim(struct model *m)
{
	const u32 spare = rnd(&m->rng) % 2 * RING_PAGE_SIZE, before = m->r->filled;

	ring_trim(m->r, spare);
	if (!m->len && m->r->filled != min(before, spare))
		return "an empty ring keeps pages";
	if (m->r->filled < m->len)
		return "more bytes than there are pages for";
	return NULL;
}

static const char *walk(struct model *m, long steps)
{
	while (steps--) {
		const char *err;
		unsigned int dice = rnd(&m->rng) % 100;

		if (dice < 45)
			err = step_write(m);
		else if (dice < 85)
			err = step_read(m, 1);
		else if (dice < 93)
			err = step_read(m, 0);
		else if (dice < 99)
			err = step_trim(m);
		else
			err = step_retract(m);
		if (!err && ring_len(m->r) != m->len)
			err = "ring_len";
		if (err)
			return err;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
	long steps = argc > 2 ? atol(argv[2]) : 20000;
	int failed = 0;

	for (u32 size = RING_PAGE_SIZE; size <= MODEL_SIZE_MAX && !failed; size *= 4) {
		struct model m = { .rng = seed | 1 };
		const char *err;

		m.r = ring_bare(size);
		m.q = malloc(size);
		/* Near the wrap of the 32-bit cursors half of the time. */
		ring_rebase(m.r, rnd(&m.rng) % 2 ? 0u - rnd(&m.rng) % (4 * size) :
						   (u32)rnd(&m.rng));
		err = walk(&m, size > 4096 ? steps / 20 : steps);
		if (err) {
			printf("not ok ring/model size %u: %s; seed %llu\n", size, err,
			       (unsigned long long)seed);
			failed = 1;
		}
		ring_free(m.r);
		free(m.q);
	}
	if (!failed)
		printf("ok ring/model (page shift %d, seed %llu)\n", RING_PAGE_SHIFT,
		       (unsigned long long)seed);
	return failed;
}
