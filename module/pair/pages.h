/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of rings: how they come, one by one as the sender first reaches them, and how
 * they go. The sender's memory cgroup is charged for them.
 *
 * The sender calls open, fill and grow, with the socket of the ring locked. They may sleep for
 * memory. After a failure they ask for nothing more in the next second.
 */
#ifndef SOCKSPLICE_PAGES_H
#define SOCKSPLICE_PAGES_H

#include "pair/end.h"

/* Charges @c itself, once, to the memory cgroup of the calling task, which uses the socket and
 * has it locked. In most cases a softirq allocated @c, so no cgroup was charged. May sleep. If
 * that fails, a call after a second tries again.
 */
void __socksplice_pages_charge(const struct sock *sk, struct socksplice_chan *c);
static inline void socksplice_pages_charge(const struct sock *sk, struct socksplice_chan *c)
{
	if (unlikely(!test_bit(CHAN_CHARGED, &c->flags)))
		__socksplice_pages_charge(sk, c);
}

/* Opens the ring of the direction that @sk sends into: it has no page yet. False if there is
 * no memory, or the memory cgroup is under pressure, of which the verdict tells.
 */
bool socksplice_pages_open(const struct sock *sk, struct socksplice_chan *c);

/* Adds pages to an open ring until @n more bytes may be written, which ring_space() has
 * promised. An empty ring goes on at its first page instead, as far as that is enough. False
 * as above, or if a cap of memory.h is reached: what pages there are stay.
 */
bool socksplice_pages_fill(const struct sock *sk, struct socksplice_chan *c, u32 n);

/* Makes an open ring that is empty twice as large, if it may be; its pages stay. */
void socksplice_pages_grow(const struct sock *sk, struct socksplice_chan *c);

/* Frees the pages of @c in which no unread byte lies. Of an empty ring @spare bytes' pages
 * stay; with @spare 0 the ring is closed, and has its first size when it is opened again.
 * Nothing happens while a task owns the socket. The caller holds @c, and no socket.
 * Returns the number of pages freed.
 */
unsigned int socksplice_pages_release(struct socksplice_chan *c, u32 spare);

/* The last reference on @c is gone. Any context. */
void socksplice_pages_free(struct socksplice_chan *c);

int socksplice_pages_init(void);
void socksplice_pages_exit(void);	/* no chan is left but what a shrinker holds */

#endif /* SOCKSPLICE_PAGES_H */
