/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sleeps of a fraction of a millisecond, for a task that may not block but gets ahead faster
 * if another task runs first.
 *
 * A timer for each sleep would cost as much as the sleep gains: in a virtual machine the host
 * has to set and cancel it. So each CPU has one timer, which nobody cancels. It runs while a
 * task sleeps there, and wakes the tasks that were asleep when it last ran out.
 */
#ifndef SOCKSPLICE_MOMENT_H
#define SOCKSPLICE_MOMENT_H

#include <linux/time64.h>

/* Nanoseconds. A sleep lasts between this and twice this. */
#define SOCKSPLICE_MOMENT	(250 * NSEC_PER_USEC)

void sks_nap_init(void);

/* Stops the timers. No task sleeps here any more. May sleep. */
void sks_nap_exit(void);

/* As schedule(), for at most twice the time above. Where the machine has no timer of that
 * resolution it returns at once. The caller has set the task's state.
 */
void sks_nap(void);

#endif /* SOCKSPLICE_MOMENT_H */
