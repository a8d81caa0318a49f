/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings that carry nothing are given back, so an idle pair costs little more than its two ends.
 * After a second a ring keeps one page, and after sks_ring_idle seconds none. The next send
 * allocates pages again.
 */
#ifndef SOCKSPLICE_RECLAIM_H
#define SOCKSPLICE_RECLAIM_H

/* Starts the work, because there is a live pair. Any context. */
void sks_reclaim_start(void);

/* Ends the work. The caller knows that no end is left. */
void sks_reclaim_exit(void);

#endif /* SOCKSPLICE_RECLAIM_H */
