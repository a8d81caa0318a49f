/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a work pauses that goes through objects of which users may make any number. With the
 * pause it takes a tenth of one CPU. The pause is a second at most, because the measured time also
 * holds the time in which the work was kept from running.
 */
#ifndef SOCKSPLICE_THROTTLE_H
#define SOCKSPLICE_THROTTLE_H

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>

/* The pause in jiffies, at least @least, of a work that began at @began, a ktime_get_ns(). */
static inline unsigned long sks_throttle(u64 began, unsigned long least)
{
	const unsigned long rest = nsecs_to_jiffies(9 * (ktime_get_ns() - began));

	return clamp(rest, least, max(least, (unsigned long)HZ));
}

#endif /* SOCKSPLICE_THROTTLE_H */
