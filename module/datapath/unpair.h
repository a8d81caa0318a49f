/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Back to TCP on request.
 *
 * Un-pairing never takes bytes out of a ring. It closes both rings to new bytes,
 * so that whatever is sent from then on goes by TCP, and takes each end off its
 * end once that end has read its ring to the bottom. From there the socket has
 * the kernel's own struct proto again, and nothing refers to us. Until then the
 * pair is "draining": for ever, if a reader has stopped.
 *
 * All of it is done by a work that holds the spinlock of one socket at a time,
 * while nobody owns that socket: a task that owns it across a page fault that
 * never ends holds up its own pair only.
 */
#ifndef SOCKSPLICE_DROP_H
#define SOCKSPLICE_DROP_H

#include <linux/types.h>

struct sock;
struct pair_end;

/* Begins to un-pair @end and its peer. The caller holds @end. @reason: see enum
 * socksplice_event.
 */
void sks_unpair_chan(struct pair_end *end, const char *reason);

/* Begins to un-pair the pair with this id: 0, or -ENOENT. */
int sks_unpair_pair(u32 id);

/* Begins to un-pair all that are paired now. New connections are not stopped, nor are
 * enrolled sockets that still wait for their peers: see sks_match_flush().
 */
void sks_unpair_all(void);

/* No end is left. */
void sks_unpair_exit(void);

#endif /* SOCKSPLICE_DROP_H */
