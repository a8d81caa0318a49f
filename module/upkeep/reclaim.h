/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A ring that carries nothing for a second keeps one page, and for socksplice_ring_idle
 * seconds none: an idle pair costs its two chans. The next send brings pages anew.
 */
#ifndef SOCKSPLICE_IDLE_H
#define SOCKSPLICE_IDLE_H

/* There are pairs: begins to look at them. Any context. */
void socksplice_idle_start(void);

/* No chan is left. */
void socksplice_idle_exit(void);

#endif /* SOCKSPLICE_IDLE_H */
