// SPDX-License-Identifier: GPL-2.0
/*
 * Movers run in kernel threads, outside the limits of who asked for the splice. So a
 * user's movers are counted together, per CPU: where something else wants that CPU
 * too, they get no more than budget_percent of each window of time, and wait for the
 * next one. And few of them may be in the middle of their work at a time: where memory is
 * short they sleep in it, for as long as their cgroup's limits want, and the workqueue
 * starts only so many on a CPU.
 */
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "sosplice.h"
#include "stats.h"

#define BUDGET_WINDOW	(HZ / 50 ? : 1)		/* jiffies */

#define BUDGET_ENTERED	16	/* movers of a user, on a CPU; on 6.12 a workqueue has 256 */

unsigned int socksplice_budget_percent = 75;

struct budget_cpu {
	unsigned long window;	/* jiffies / BUDGET_WINDOW */
	u64 used;		/* ns in it */
	atomic_t entered;	/* who entered there, wherever he leaves */
};

struct budget_user {
	struct hlist_node node;			/* users_lock */
	unsigned int ref;			/* users_lock */
	kuid_t uid;
	struct budget_cpu __percpu *cpu;	/* movers on that CPU, preemption off */
};

static DEFINE_HASHTABLE(users, 6);
static DEFINE_SPINLOCK(users_lock);	/* bottom halves off: a dying socket puts */

static struct budget_user *find(kuid_t uid)
{
	struct budget_user *u;

	hash_for_each_possible(users, u, node, __kuid_val(uid))
		if (uid_eq(u->uid, uid))
			return u;
	return NULL;
}

struct budget_user *socksplice_budget_get(kuid_t uid)
{
	struct budget_user *u, *new = NULL;

	for (;;) {
		spin_lock_bh(&users_lock);
		u = find(uid);
		if (!u && new) {
			hash_add(users, &new->node, __kuid_val(uid));
			u = new;
			new = NULL;
		}
		if (u)
			u->ref++;
		spin_unlock_bh(&users_lock);
		if (u)
			break;
		new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
		if (!new)
			return NULL;
		new->uid = uid;
		new->cpu = alloc_percpu_gfp(struct budget_cpu, GFP_KERNEL_ACCOUNT);
		if (!new->cpu) {
			kfree(new);
			return NULL;
		}
	}
	if (new) {
		free_percpu(new->cpu);
		kfree(new);
	}
	return u;
}

void socksplice_budget_put(struct budget_user *u)
{
	bool last;

	spin_lock_bh(&users_lock);
	last = !--u->ref;
	if (last)
		hash_del(&u->node);
	spin_unlock_bh(&users_lock);
	if (last) {
		free_percpu(u->cpu);
		kfree(u);
	}
}

static unsigned long window_now(void)
{
	return jiffies / BUDGET_WINDOW;
}

void socksplice_budget_charge(struct budget_user *u, u64 ns)
{
	const unsigned long window = window_now();
	struct budget_cpu *c = get_cpu_ptr(u->cpu);

	if (c->window != window) {
		c->window = window;
		c->used = 0;
	}
	c->used += ns;
	put_cpu_ptr(u->cpu);
}

unsigned long socksplice_budget_pause(struct budget_user *u)
{
	const u64 share = div_u64((u64)jiffies_to_nsecs(BUDGET_WINDOW) *
				  READ_ONCE(socksplice_budget_percent), 100);
	const struct budget_cpu *c = get_cpu_ptr(u->cpu);
	const bool over = c->window == window_now() && c->used > share;

	put_cpu_ptr(u->cpu);
	if (!over || single_task_running())
		return 0;
	socksplice_stat_inc(SOCKSPLICE_STAT_so_splice_throttled);
	return BUDGET_WINDOW - jiffies % BUDGET_WINDOW;
}

struct budget_cpu *socksplice_budget_enter(struct budget_user *u)
{
	struct budget_cpu *c = raw_cpu_ptr(u->cpu);

	return atomic_add_unless(&c->entered, 1, BUDGET_ENTERED) ? c : NULL;
}

void socksplice_budget_leave(struct budget_cpu *c)
{
	atomic_dec(&c->entered);
}
