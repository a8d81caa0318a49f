/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TICKS_H
#define TICKS_H

/* Milliseconds by the kernel's count of ticks, in which time-outs are counted. For root. A clock is
 * not good enough: it goes on where a tick comes late, and a CPU may see the tick before the clock.
 */
long tick_ms(void);

#endif
