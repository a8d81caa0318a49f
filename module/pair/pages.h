/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of rings. They come one by one, when the sender first reaches them, and memory
 * pressure, reclaim.c or the last reference takes them away. The sender's memory cgroup is charged
 * for them.
 *
 * The sender calls open, fill and grow, with the socket of the ring locked. They may sleep for
 * memory. After a failure they ask for no more memory for a second.
 */
#ifndef SOCKSPLICE_PAGES_H
#define SOCKSPLICE_PAGES_H

#include "pair/end.h"

/* Charges @end itself, once, to the memory cgroup of the calling task, which uses the socket and
 * has it locked. In most cases a softirq allocated @end, so no cgroup was charged. May sleep. If
 * the charge fails, the first call after a second tries again.
 */
void __sks_pages_charge(const struct sock *sk, struct pair_end *end);
static inline void sks_pages_charge(const struct sock *sk, struct pair_end *end)
{
	if (unlikely(!test_bit(END_CHARGED, &end->flags)))
		__sks_pages_charge(sk, end);
}

/* Opens the ring that @sk sends into, without pages yet. False if there is no memory, or if the
 * memory cgroup is under pressure. A verdict reports the failure.
 */
bool sks_pages_open(const struct sock *sk, struct pair_end *end);

/* Adds pages to an open ring until @n more bytes may be written, which ring_space() has promised.
 * An empty ring goes on at its first page instead, as far as that is enough. False as above, or if
 * a cap of memory.h is reached. The pages that exist stay.
 */
bool sks_pages_fill(const struct sock *sk, struct pair_end *end, u32 n);

/* Doubles the size of an open ring that is empty, if the ring may grow. Its pages stay. */
void sks_pages_grow(const struct sock *sk, struct pair_end *end);

/* Frees the pages of @end in which no unread byte lies. An empty ring keeps the pages of @spare
 * bytes. If @spare is 0, the ring is closed, and has its first size when it is opened again. Does
 * nothing while a task owns the socket. The caller holds @end, and no socket's lock. Returns the
 * number of pages freed.
 */
unsigned int sks_pages_release(struct pair_end *end, u32 spare);

/* Frees all pages, when the last reference on @end is gone. Any context. */
void sks_pages_free(struct pair_end *end);

int sks_pages_init(void);
void sks_pages_exit(void);	/* no end is left but those that a shrinker holds */

#endif /* SOCKSPLICE_PAGES_H */
