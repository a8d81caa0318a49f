/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts the tasks that are inside a function of ours which a socket or a hook
 * (hook.h) called, asleep or not, so that the module's text stays while
 * one of them still has to return into it.
 *
 * A task may leave on another CPU than it entered on: only the sum means
 * something. A task that has loaded our function's address but not entered it
 * is covered by synchronize_rcu_tasks(), which waits until every task has
 * slept voluntarily or been in user space; see socksplice_inflight_drain().
 */
#ifndef SOCKSPLICE_INFLIGHT_H
#define SOCKSPLICE_INFLIGHT_H

#include <linux/percpu.h>

DECLARE_PER_CPU(long, socksplice_inflight);

static inline void socksplice_enter(void)
{
	this_cpu_inc(socksplice_inflight);
}

static inline void socksplice_leave(void)
{
	this_cpu_dec(socksplice_inflight);
}

/* Waits until nobody is, or can come, inside. To be called when no socket and
 * no hook refers to our functions any more. May sleep.
 */
void socksplice_inflight_drain(void);

#endif /* SOCKSPLICE_INFLIGHT_H */
