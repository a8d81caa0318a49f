/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Takes pairs back to TCP.
 *
 * Un-pairing never takes bytes out of a ring. It closes both rings to new bytes, so all that is
 * sent from then on goes by TCP. When a socket has read its ring to the bottom, its end is
 * detached. From there the socket has the kernel's own struct proto again, and refers to nothing
 * of ours. Until then the pair is "draining". If a reader has stopped, it drains for ever.
 *
 * A work does all of this. It holds the spinlock of one socket at a time, while no task owns that
 * socket. So a task that owns a socket across a page fault that never ends delays only its own
 * pair.
 */
#ifndef SOCKSPLICE_UNPAIR_H
#define SOCKSPLICE_UNPAIR_H

#include <linux/types.h>

struct sock;
struct pair_end;

/* Begins to un-pair @end and its peer, unless that has begun. The caller holds @end, or has its
 * socket locked. Does not sleep. @reason is one of those that enum socksplice_event lists.
 */
void sks_unpair_end(struct pair_end *end, const char *reason);

/* Begins to un-pair the pair with this id. 0, or -ENOENT. */
int sks_unpair_pair(u32 id);

/* Begins to un-pair all pairs that exist now. Does not stop new connections, nor enrolled sockets
 * that still wait for their peers: see sks_match_flush().
 */
void sks_unpair_all(void);

/* Ends the work. The caller knows that no end is left. */
void sks_unpair_exit(void);

#endif /* SOCKSPLICE_UNPAIR_H */
