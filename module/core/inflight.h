/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What keeps the module's text while a task is inside it.
 *
 * A socket has functions of ours from sks_attached() to sks_detached(). A task in one of those
 * functions may sleep there for as long as a user likes: for the socket's lock, in a page fault,
 * in TCP's function below ours. Neither the task nor its call takes a module reference, because
 * that would write a word that all CPUs share. Instead one reference, the keeper's, stands for all
 * such tasks. So rmmod is refused while there is such a task, and the exit function never waits
 * for a task that sleeps.
 *
 * The keeper takes its reference with the first attachment. It gives the reference up when
 *   1. no socket is attached;
 *   2. an RCU-tasks grace period has passed since: each task that had loaded a pointer to a
 *      function of ours has entered it, and is counted, or has left it;
 *   3. the count is zero, which is final, because no task can enter any more;
 *   4. and no socket was attached meanwhile.
 *
 * A task may leave on another CPU than it entered on, so only the sum of the counts means
 * something. The sum is exact only while no task enters.
 *
 * Some calls reach us without a socket's functions: those of sockopt_bsd.c, and those of the hooks
 * for sockmap sockets and for getsockopt(TCP_ULP). They are not counted, and hold a module
 * reference of their own.
 */
#ifndef SOCKSPLICE_INFLIGHT_H
#define SOCKSPLICE_INFLIGHT_H

#include <linux/percpu.h>
#include <linux/types.h>

DECLARE_PER_CPU(long, sks_inflight);

/* Set once the module can no longer fail to load. From then on sockets may refer to it. */
extern bool sks_loaded;

static inline void sks_enter(void)
{
	this_cpu_inc(sks_inflight);
}

static inline void sks_leave(void)
{
	this_cpu_dec(sks_inflight);
}

/* Called before a socket gets a function of ours. Also takes a module reference for the
 * attachment, which the end of the attachment gives up by module_put(). False if the module is
 * being unloaded. Any context but a hard interrupt.
 */
bool sks_attached(void);

/* Called after the socket has lost its last function of ours. Any context but a hard interrupt. */
void sks_detached(void);

/* Waits for tasks that are about to return from a function of ours and do not sleep. The caller
 * has seen to it that no socket is attached and no hook is installed.
 */
void sks_inflight_drain(void);

#endif /* SOCKSPLICE_INFLIGHT_H */
