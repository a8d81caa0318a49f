// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "core/inflight.h"
#include "core/napi.h"

/* How long the keeper's work waits after the last attachment ended, or when a task was still
 * inside. It bounds the number of grace periods where connections come and go one by one.
 */
#define KEEPER_DELAY	(HZ / 2)

DEFINE_PER_CPU(long, sks_inflight);
bool sks_loaded;

static DEFINE_SPINLOCK(keeper_lock);	/* protects the three variables below */
static unsigned long attached;		/* sockets with functions of ours */
static unsigned long attachments;	/* all that there ever were; wraps */
static bool kept;			/* the keeper has its module reference */

static void keeper_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(keeper, keeper_work);

static long inflight_sum(void)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(sks_inflight, cpu));
	return sum;
}

bool sks_attached(void)
{
	bool ok;

	spin_lock_bh(&keeper_lock);
	ok = try_module_get(THIS_MODULE);
	if (ok) {
		if (!kept)
			__module_get(THIS_MODULE);
		kept = true;
		attached++;
		attachments++;
		sks_napi_want();
	}
	spin_unlock_bh(&keeper_lock);
	return ok;
}

void sks_detached(void)
{
	spin_lock_bh(&keeper_lock);
	WARN_ON_ONCE(!attached || !kept);
	if (!--attached)
		schedule_delayed_work(&keeper, KEEPER_DELAY);
	spin_unlock_bh(&keeper_lock);
}

/* True if no socket is attached, and none was attached after the first @before attachments. */
static bool nothing_since(unsigned long before)
{
	lockdep_assert_held(&keeper_lock);
	return !attached && attachments == before;
}

static void keeper_work(struct work_struct *work)
{
	bool settled, over = false;
	unsigned long before;

	spin_lock_bh(&keeper_lock);
	before = attachments;
	settled = kept && nothing_since(before);
	spin_unlock_bh(&keeper_lock);
	if (!settled)
		return;		/* the next last detachment schedules this again */
	/* A thread that spins would hold the grace period up. A socket that is attached meanwhile
	 * is seen below. One that is attached later asks for an instance.
	 */
	sks_napi_stop();
	synchronize_rcu_tasks();
	sks_napi_allow();
	spin_lock_bh(&keeper_lock);
	/* If a socket was attached meanwhile, the sum may be wrong. */
	settled = nothing_since(before);
	if (settled)
		over = !inflight_sum();
	if (over)
		kept = false;
	else if (settled)
		schedule_delayed_work(&keeper, KEEPER_DELAY);
	spin_unlock_bh(&keeper_lock);
	if (!settled)
		sks_napi_start();
	/* sks_inflight_drain() waits for the return from here. */
	if (over)
		module_put(THIS_MODULE);
}

/*
 * No task is counted: the keeper saw to that, and no task has entered since. The tasks that are
 * left run, or are preempted, in one of three places:
 *   - between sks_leave() or module_put() and the return;
 *   - in a function that a hook has led to, where they find the module going;
 *   - in an ftrace callback.
 */
void sks_inflight_drain(void)
{
	cancel_delayed_work_sync(&keeper);
	synchronize_rcu();
	synchronize_rcu_tasks();
	/* Wait rather than free text that is in use. */
	while (WARN_ON_ONCE(inflight_sum()))
		msleep(20);
}
