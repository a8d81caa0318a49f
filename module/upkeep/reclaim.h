/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A ring that carries nothing for a second keeps one page, and for sks_ring_idle
 * seconds none: an idle pair costs its two ends. The next send brings pages anew.
 */
#ifndef SOCKSPLICE_IDLE_H
#define SOCKSPLICE_IDLE_H

/* There are pairs: begins to look at them. Any context. */
void sks_reclaim_start(void);

/* No end is left. */
void sks_reclaim_exit(void);

#endif /* SOCKSPLICE_IDLE_H */
