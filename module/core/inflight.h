/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What keeps the module's text while a task is inside it.
 *
 * A socket has functions of ours from sks_attached() to sks_detached(). A task
 * that one of those functions runs may sleep in it for as long as a user likes: for the
 * socket's lock, in a page fault, in TCP's function below ours. Neither the task nor its call
 * takes a module reference, which would write a word that all CPUs share. One reference, the
 * keeper's, stands for all such tasks. So rmmod is refused while there is one, and the exit
 * function never waits for a task that sleeps.
 *
 * The keeper's reference is taken with the first attachment. It is given up when
 *   1. no socket is attached;
 *   2. an RCU-tasks grace period has passed since: each task that had loaded a pointer to a
 *      function of ours has entered it, and is counted, or has left it;
 *   3. the count is zero, which is final: nobody can enter any more;
 *   4. and no socket was attached meanwhile.
 *
 * A task may leave on another CPU than it entered on: only the sum of the counts means
 * something. It is exact only while nobody enters.
 *
 * Calls that reach us by other ways than a socket's functions (sockopt_bsd.c, the hook for sockmap
 * sockets) are not counted, and hold a module reference of their own.
 */
#ifndef SOCKSPLICE_INFLIGHT_H
#define SOCKSPLICE_INFLIGHT_H

#include <linux/percpu.h>
#include <linux/types.h>

DECLARE_PER_CPU(long, sks_inflight);

/* Set once the module can no longer fail to load: from then on sockets may refer to it. */
extern bool sks_loaded;

static inline void sks_enter(void)
{
	this_cpu_inc(sks_inflight);
}

static inline void sks_leave(void)
{
	this_cpu_dec(sks_inflight);
}

/* Before a socket gets a function of ours. Takes a module reference for the attachment, too,
 * which its end gives up by module_put(). False if the module is being unloaded. Any context
 * but a hard interrupt.
 */
bool sks_attached(void);

/* After the socket has lost the last function of ours. The same contexts. */
void sks_detached(void);

/* Waits for tasks that are about to return from a function of ours, and do not sleep. No
 * socket is attached, and no hook is installed any more.
 */
void sks_inflight_drain(void);

#endif /* SOCKSPLICE_INFLIGHT_H */
