/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings that carry nothing for a while are given back, and made anew by the next
 * send: an idle pair costs its two chans.
 */
#ifndef SOCKSPLICE_IDLE_H
#define SOCKSPLICE_IDLE_H

#define SOCKSPLICE_RING_IDLE_MAX	86400
extern unsigned int socksplice_ring_idle;	/* seconds, 0 for never */

/* There are pairs: begins to look at them. Any context. */
void socksplice_idle_start(void);

/* No chan is left. */
void socksplice_idle_exit(void);

#endif /* SOCKSPLICE_IDLE_H */
