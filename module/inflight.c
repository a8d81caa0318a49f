// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/rcupdate.h>

#include "inflight.h"

DEFINE_PER_CPU(long, socksplice_inflight);

static long inflight_sum(void)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(socksplice_inflight, cpu));
	return sum;
}

/*
 * 1. Tasks that hold one of our function pointers but have not called it yet:
 *    after synchronize_rcu_tasks() each has entered (and is counted) or left.
 *    Softirqs and callbacks that do not sleep: synchronize_rcu().
 * 2. Counted tasks, asleep or not: wait for them.
 * 3. Tasks between socksplice_leave() and the return: once more.
 */
void socksplice_inflight_drain(void)
{
	synchronize_rcu();
	synchronize_rcu_tasks();
	while (inflight_sum())
		msleep(20);
	synchronize_rcu_tasks();
}
