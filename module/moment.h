/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sleeps of a moment, for who may not be kept but is faster if another runs first.
 *
 * To set a timer for each and take it back costs as much as such a sleep gains, in a virtual
 * machine above all, whose host has to do it. So a CPU has one timer, which is set while
 * somebody sleeps there and just runs out, and then wakes who has slept since it did so last.
 */
#ifndef SOCKSPLICE_MOMENT_H
#define SOCKSPLICE_MOMENT_H

#include <linux/time64.h>

/* The shortest such sleep; the longest is twice that. ns. */
#define SOCKSPLICE_MOMENT	(250 * NSEC_PER_USEC)

void socksplice_moment_init(void);

/* Nobody sleeps any more. */
void socksplice_moment_exit(void);

/* As schedule(), but for a moment at most; at once, where the machine has no timer that is as
 * short. The caller has set the state of the task.
 */
void socksplice_moment_sleep(void);

#endif /* SOCKSPLICE_MOMENT_H */
