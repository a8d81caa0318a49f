/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sleeps of a fraction of a millisecond. They are for a task that may not block, but gets ahead
 * faster if another task runs first.
 *
 * A timer for each sleep would cost as much as the sleep gains: in a virtual machine the
 * host has to set and cancel it. So each CPU has one timer, which no task cancels. It runs while a
 * task sleeps on that CPU. Each time it runs out, it wakes the tasks that were already asleep the
 * last time.
 */
#ifndef SOCKSPLICE_NAP_H
#define SOCKSPLICE_NAP_H

#include <linux/time64.h>

/* Nanoseconds. A sleep lasts at least this, and at most twice this. */
#define SOCKSPLICE_MOMENT	(250 * NSEC_PER_USEC)

void sks_nap_init(void);

/* Stops the timers. The caller knows that no task naps any more. May sleep. */
void sks_nap_exit(void);

/* Like schedule(), for at most twice the time above. The caller has set the task's state. Returns
 * at once if the machine has no timer of that resolution.
 */
void sks_nap(void);

#endif /* SOCKSPLICE_NAP_H */
