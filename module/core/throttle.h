/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a work rests that looks at all of something of which users make as many as
 * they like: so that it takes a tenth of one CPU, but no longer than a second, as it may
 * have been kept from running itself.
 */
#ifndef SOCKSPLICE_REST_H
#define SOCKSPLICE_REST_H

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>

/* Jiffies, at least @least, for one that began at @began, a ktime_get_ns(). */
static inline unsigned long sks_throttle(u64 began, unsigned long least)
{
	const unsigned long rest = nsecs_to_jiffies(9 * (ktime_get_ns() - began));

	return clamp(rest, least, max(least, (unsigned long)HZ));
}

#endif /* SOCKSPLICE_REST_H */
