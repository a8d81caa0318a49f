/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What module/core/ring.h needs of the kernel, for user space: the four primitives
 * as compiler atomics, so that ThreadSanitizer sees exactly the orderings
 * that the header asks for and no stronger ones.
 */
#ifndef TEST_RING_SHIM_H
#define TEST_RING_SHIM_H

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t u32;
typedef int32_t s32;

#define ____cacheline_aligned	__attribute__((aligned(64)))
#define smp_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELAXED)
#define min(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); \
		     (void)(&a_ == &b_); a_ < b_ ? a_ : b_; })

#ifndef RING_PAGE_SHIFT
#define RING_PAGE_SHIFT	6
#endif

#include <stddef.h>

#include "../../module/core/ring.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* Each page is an allocation of its own, so that the address sanitizer notices one
 * byte past any of them. The array has none at first.
 */
static inline void **pages_new(u32 size)
{
	u32 n = size / RING_PAGE_SIZE;
	void **pages = calloc(n, sizeof(*pages));

	if (!pages)
		abort();
	return pages;
}

static inline void *page_new(void)
{
	void *page = malloc(RING_PAGE_SIZE);

	if (!page)
		abort();
	return page;
}

/* Until the producer can write @n bytes more, as sks_pages_fill(). */
static inline void ring_fill(struct ring *r, u32 n)
{
	if (n > ring_backed(r))
		ring_restart(r);
	while (n > ring_backed(r))
		ring_add_page(r, page_new());
}

/* As sks_pages_release(): how many pages went. */
static inline u32 ring_trim(struct ring *r, u32 spare)
{
	const u32 keep = ring_keep(r, spare);
	u32 n = 0;

	while (r->filled > keep) {
		free(ring_pop_page(r));
		n++;
	}
	return n;
}

static inline void pages_free(void **pages, u32 size)
{
	if (!pages)
		return;
	for (u32 i = 0; i < size / RING_PAGE_SIZE; i++)
		free(pages[i]);
	free(pages);
}

/* A ring of @size bytes that has no page yet. */
static inline struct ring *ring_bare(u32 size)
{
	struct ring *r = aligned_alloc(64, sizeof(*r));

	if (!r)
		abort();
	ring_init(r, size);
	ring_set_pages(r, pages_new(size), size, 0);
	return r;
}

/* One with all its pages. */
static inline struct ring *ring_new(u32 size)
{
	struct ring *r = ring_bare(size);

	ring_fill(r, size);
	return r;
}

static inline void ring_free(struct ring *r)
{
	pages_free(r->pages, r->size);
	free(r);
}

/* Starts the cursors at @pos, to bring the wrap of 2^32 near. */
static inline void ring_rebase(struct ring *r, u32 pos)
{
	r->head = r->tail = r->head_cache = r->tail_cache = r->rewind_at = pos;
	if (r->filled < r->size)
		r->start = pos;
}

static inline uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s * 0x2545f4914f6cdd1dULL;
}

/* The byte that belongs at position @pos of a stream. */
static inline unsigned char pattern(uint64_t pos)
{
	return (pos * 0x9e3779b97f4a7c15ULL) >> 56;
}

#endif
