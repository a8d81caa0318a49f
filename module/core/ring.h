/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A single-producer, single-consumer ring of bytes.
 *
 * The ring knows nothing of sockets, and compiles in user space too: tests/ring/ builds it with a
 * shim for the four primitives that it uses.
 *
 * The bytes lie in pages of RING_PAGE_SIZE, which need not be contiguous. Only the pages of the
 * first @filled bytes exist. The producer adds the next page before it writes there, so the rest
 * of @size is a promise.
 *
 * Cursors run freely modulo 2^32. head - tail is the number of bytes held. It never exceeds size,
 * which is a power of two.
 *
 * Which side may call what:
 *   producer	ring_set_pages, ring_take_pages, ring_take_array, ring_add_page,
 *		ring_pop_page, ring_keep, ring_backed, ring_restart, ring_rewind,
 *		ring_space, ring_write_seg, ring_publish, ring_sent_seg, ring_retract
 *   consumer	ring_used, ring_read_seg, ring_consume
 *   anybody	ring_len (a snapshot, stale when it returns)
 * There is one producer and one consumer at a time. The caller makes sure of that. In the module
 * each end's socket lock and rx_mutex do.
 *
 * Barriers. Each acquire names its release:
 *   (A) ring_publish stores head with release. ring_used and ring_len load it with
 *       acquire. So a CPU that sees the new head also sees the bytes that were written
 *       before the publish.
 *   (B) ring_consume stores tail with release. ring_space, ring_take_pages and
 *       ring_restart load it with acquire. So the consumer's reads of a slot are over
 *       before the producer writes into it again, or takes its page away or replaces it.
 */
#ifndef SOCKSPLICE_RING_H
#define SOCKSPLICE_RING_H

#ifdef __KERNEL__
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/types.h>
#include <asm/barrier.h>
#define RING_PAGE_SHIFT	PAGE_SHIFT
#endif

#define RING_PAGE_SIZE	(1U << RING_PAGE_SHIFT)

struct ring {
	/* The producer sets these three while the ring is empty: see ring_take_pages and
	 * ring_restart. The consumer may read size at any time, as a bound. If it has a byte to
	 * read, it finds all three as they were when that byte was published (A). The entries of
	 * @pages outside the bytes held belong to the producer: the consumer reads none of them.
	 */
	u32 size;
	u32 start;		/* a cursor at which the first page begins */
	void **pages;		/* size / RING_PAGE_SIZE entries, or NULL */

	/* Written by the producer only. */
	u32 head ____cacheline_aligned;
	u32 tail_cache;		/* the producer's last view of tail */
	u32 rewind_at;		/* ring_rewind() does nothing before head gets here */
	u32 filled;		/* bytes of the pages that exist; anybody may read it */

	/* Written by the consumer only. */
	u32 tail ____cacheline_aligned;
	u32 head_cache;		/* the consumer's last view of head */
};

#ifdef __KERNEL__
/* What one side writes for each message is in no cache line of the other side. */
static_assert(offsetof(struct ring, tail) >=
	      ALIGN(offsetofend(struct ring, filled), SMP_CACHE_BYTES));
static_assert(offsetof(struct ring, head) >=
	      ALIGN(offsetofend(struct ring, pages), SMP_CACHE_BYTES));
#endif

static inline void ring_init(struct ring *r, u32 size)
{
	r->size = size;
	r->start = 0;
	r->pages = NULL;
	r->head = 0;
	r->rewind_at = 0;
	r->filled = 0;
	r->tail = 0;
	r->tail_cache = 0;
	r->head_cache = 0;
}

/* Gives an empty ring its array of pages, of which those of the first @filled bytes exist. The
 * cursors stay, because the consumer may be reading them. It reads the pages only after a head
 * that was published after them (A). @size, a power of two, may differ from the size before.
 */
static inline void ring_set_pages(struct ring *r, void **pages, u32 size, u32 filled)
{
	WRITE_ONCE(r->size, size);
	r->pages = pages;
	r->start = r->head;
	WRITE_ONCE(r->filled, filled);
}

/* Takes the array from an empty ring. The caller frees it and the pages in it. NULL if the ring
 * has no array or holds bytes. The consumer read its last byte before it moved tail there (B), and
 * needs no page before there is another byte.
 */
static inline void **ring_take_pages(struct ring *r)
{
	void **pages = r->pages;

	if (smp_load_acquire(&r->tail) != r->head)	/* (B) */
		return NULL;
	r->tail_cache = r->head;	/* an older value may not fit the next size */
	r->pages = NULL;
	WRITE_ONCE(r->filled, 0);
	return pages;
}

/* Takes the array from an empty ring that has no page left, else NULL. If the consumer takes the
 * last byte only after ring_keep() has said which pages stay, the array stays with them.
 */
static inline void **ring_take_array(struct ring *r)
{
	return r->filled ? NULL : ring_take_pages(r);
}

/* Lets an empty ring go on at its first page. False if it holds bytes. The consumer read its last
 * byte before it moved tail there (B).
 */
static inline bool ring_restart(struct ring *r)
{
	r->tail_cache = smp_load_acquire(&r->tail);	/* (B) */
	if (r->tail_cache != r->head)
		return false;
	r->start = r->head;
	return true;
}

/* Like ring_restart(), but reads the consumer's cache line only once in so many bytes. Messages
 * that are read one by one then pass through a few pages only, which stay in the caches.
 */
static inline void ring_rewind(struct ring *r)
{
	if ((s32)(r->head - r->rewind_at) < 0)
		return;
	r->rewind_at = r->head + 2 * RING_PAGE_SIZE;
	ring_restart(r);
}

/* Where the next byte goes, counted from the first page. */
static inline u32 ring_at(const struct ring *r)
{
	return (r->head - r->start) & (r->size - 1);
}

/* Bytes that the producer may write from head on before it needs another page. */
static inline u32 ring_backed(const struct ring *r)
{
	return r->filled == r->size ? r->size : r->filled - ring_at(r);
}

/* Adds the next page. The caller knows that not all pages exist. */
static inline void ring_add_page(struct ring *r, void *page)
{
	r->pages[r->filled >> RING_PAGE_SHIFT] = page;
	WRITE_ONCE(r->filled, r->filled + RING_PAGE_SIZE);
}

/* How much of @filled has to stay. An empty ring goes on at its first page, so it keeps as much as
 * the caller wants to @spare. Any other ring keeps the pages up to head's: the consumer may read
 * in any page from tail to head, and tail only moves on. If the bytes held go round the end, every
 * page stays.
 */
static inline u32 ring_keep(struct ring *r, u32 spare)
{
	u32 at;

	if (ring_restart(r))
		return min(spare, r->filled);
	at = ring_at(r);
	if (r->head - r->tail_cache > at)
		return r->filled;
	return (at + RING_PAGE_SIZE - 1) & ~(RING_PAGE_SIZE - 1);
}

/* Takes away the last page that exists. It lies behind what ring_keep() returned. */
static inline void *ring_pop_page(struct ring *r)
{
	void **last = &r->pages[(r->filled - 1) >> RING_PAGE_SHIFT], *page = *last;

	*last = NULL;
	WRITE_ONCE(r->filled, r->filled - RING_PAGE_SIZE);
	return page;
}

/* Bytes that the producer may write now. Reads the consumer's cache line only if the producer's
 * own copy of tail says that fewer than @want bytes fit.
 */
static inline u32 ring_space(struct ring *r, u32 want)
{
	u32 space = r->size - (r->head - r->tail_cache);

	if (space < want) {
		r->tail_cache = smp_load_acquire(&r->tail);	/* (B) */
		space = r->size - (r->head - r->tail_cache);
	}
	return space;
}

/* Bytes that the consumer may read now. @want is as for ring_space(). */
static inline u32 ring_used(struct ring *r, u32 want)
{
	u32 used = r->head_cache - r->tail;

	if (used < want) {
		r->head_cache = smp_load_acquire(&r->head);	/* (A) */
		used = r->head_cache - r->tail;
	}
	return used;
}

/* Bytes held, for a caller that is neither producer nor consumer. The order of the two loads keeps
 * the difference from wrapping below zero: tail never passes a head that is read later.
 */
static inline u32 ring_len(const struct ring *r)
{
	u32 tail = smp_load_acquire(&r->tail);	/* (B) */
	u32 len = smp_load_acquire(&r->head) - tail;	/* (A) */

	return min(len, READ_ONCE(r->size));
}

static inline void *ring_seg(const struct ring *r, u32 pos, u32 *len)
{
	u32 off;

	pos = (pos - r->start) & (r->size - 1);
	off = pos & (RING_PAGE_SIZE - 1);
	*len = RING_PAGE_SIZE - off;
	return (char *)r->pages[pos >> RING_PAGE_SHIFT] + off;
}

/* The contiguous bytes at @off past head, which are not published yet. *@len is how many of them
 * lie in one page. The caller stays below ring_space() and ring_backed().
 */
static inline void *ring_write_seg(const struct ring *r, u32 off, u32 *len)
{
	return ring_seg(r, r->head + off, len);
}

/* The contiguous bytes at @back before head, which are published. They stay until the producer
 * writes again or takes the pages away, whatever the consumer does.
 */
static inline void *ring_sent_seg(const struct ring *r, u32 back, u32 *len)
{
	return ring_seg(r, r->head - back, len);
}

/* The contiguous bytes at @off past tail; the caller stays below ring_used(). */
static inline void *ring_read_seg(const struct ring *r, u32 off, u32 *len)
{
	return ring_seg(r, r->tail + off, len);
}

static inline void ring_publish(struct ring *r, u32 n)
{
	smp_store_release(&r->head, r->head + n);	/* (A) */
}

static inline void ring_consume(struct ring *r, u32 n)
{
	smp_store_release(&r->tail, r->tail + n);	/* (B) */
}

/* Takes the last @n published bytes back. The caller knows that the consumer reads no more. */
static inline void ring_retract(struct ring *r, u32 n)
{
	WRITE_ONCE(r->head, r->head - n);
}

#endif /* SOCKSPLICE_RING_H */
