// SPDX-License-Identifier: GPL-2.0
/*
 * What a user's splices may take of a CPU.
 *
 * Movers run in kernel threads, outside the limits of the user that spliced. So a user's movers
 * are counted together, per CPU. If other tasks want that CPU too, the movers get
 * splice_cpu_percent of each window of time.
 *
 * A mover is charged for the CPU time that its thread ran, whether it moved anything or not. It is
 * not charged while it sleeps until there is memory. Time beyond a window's share is a debt, and
 * the shares of the next windows pay for it first. A debt is forgotten where no other task wants
 * the CPU.
 *
 * A mover without a share stands in a line, of its user and CPU. Nothing else queues it meanwhile.
 * The mover before it in the line queues it, or a tick in each window. So the cost of refusing
 * movers depends on how many of them worked, not on how many wait. Otherwise many thousands that
 * came back in each window would take the CPU without moving a byte.
 *
 * Only a few of a user's movers may be in the middle of their work at a time. If memory is short,
 * they sleep in it for as long as their cgroup's limits want. But the workqueue starts only so
 * many on a CPU. The other movers stand in the same line.
 *
 * No user is charged for the time that the scheduler and the workqueue take to start a mover, nor
 * for the tick. There is one tick for each line and window.
 */
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "core/params.h"
#include "core/stats.h"
#include "sosplice/budget.h"
#include "sosplice/splice.h"

#define BUDGET_WINDOW	(HZ / 50 ?: 1)  /* jiffies */

#define BUDGET_DEBT_MAX	50	/* most debt, in windows' shares */

#define BUDGET_ENTERED \
	16 /* most movers of a user at work on a CPU; on 6.12 a workqueue has
				 * 256
				 */

struct budget_cpu {
	struct budget_user *user;	/* constant */

	/* Written by movers on that CPU, with preemption off. */
	unsigned long window;	/* jiffies / BUDGET_WINDOW */
	u64 used;		/* ns used in it, and the debt of earlier ones */

	atomic_t entered;	/* movers that entered on this CPU and have not left on any */

	struct list_head line;	/* splices that wait, by splice->line; held; the user's lock */
	struct delayed_work tick;	/* holds the user while it is pending */
};

struct budget_user {
	struct hlist_node node;			/* users_lock */
	unsigned int ref;			/* users_lock */
	kuid_t uid;
	spinlock_t lock;			/* protects the lines; process context; taken
						 * before users_lock
						 */
	struct budget_cpu __percpu *cpu;
};

static DEFINE_HASHTABLE(users, 6);
static DEFINE_SPINLOCK(users_lock);	/* bottom halves off: a softirq may free a socket */

static struct budget_user *find(kuid_t uid)
{
	struct budget_user *u;

	hash_for_each_possible(users, u, node, __kuid_val(uid)) if (uid_eq(u->uid, uid)) return u;
	return NULL;
}

static void tick(struct work_struct *work);

static struct budget_user *user_alloc(kuid_t uid)
{
	struct budget_user *u = kzalloc(sizeof(*u), GFP_KERNEL_ACCOUNT);
	int cpu;

	if (!u)
		return NULL;
	u->uid = uid;
	spin_lock_init(&u->lock);
	u->cpu = alloc_percpu_gfp(struct budget_cpu, GFP_KERNEL_ACCOUNT);
	if (!u->cpu) {
		kfree(u);
		return NULL;
	}
	for_each_possible_cpu(cpu) {
		struct budget_cpu *bc = per_cpu_ptr(u->cpu, cpu);

		bc->user = u;
		INIT_LIST_HEAD(&bc->line);
		INIT_DELAYED_WORK(&bc->tick, tick);
	}
	return u;
}

struct budget_user *sks_budget_get(kuid_t uid)
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
		new = user_alloc(uid);
		if (!new)
			return NULL;
	}
	if (new) {
		free_percpu(new->cpu);
		kfree(new);
	}
	return u;
}

void sks_budget_put(struct budget_user *u)
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

/* The user's share of each window, in ns. */
static u64 share(void)
{
	return div_u64((u64)jiffies_to_nsecs(BUDGET_WINDOW) * READ_ONCE(sks_splice_cpu_percent),
		       100);
}

/* Takes off @bc->used what the windows that have begun since have paid for. Preemption off. */
static void pay(struct budget_cpu *bc)
{
	const unsigned long now = jiffies / BUDGET_WINDOW, passed = now - bc->window;

	bc->window = now;
	if (passed >= BUDGET_DEBT_MAX)
		bc->used = 0;
	else
		bc->used -= min(bc->used, passed * share());
}

/* True if the user's movers have to leave this CPU, which is @bc's, to other tasks. Preemption
 * off.
 */
static bool is_over(struct budget_cpu *bc)
{
	pay(bc);
	if (bc->used < share())
		return false;
	if (!single_task_running())
		return true;
	bc->used = share();	/* no other task wanted the time that they took */
	return false;
}

/* Schedules the tick of a line, on this CPU, because @bc's may have gone offline. The user's lock
 * is held.
 */
static void tick_later(struct budget_cpu *bc)
{
	struct budget_user *u = bc->user;

	lockdep_assert_held(&u->lock);
	if (!sks_mover_later(&bc->tick, BUDGET_WINDOW - jiffies % BUDGET_WINDOW))
		return;		/* it was pending, and holds the user */
	/* tick() takes the user's lock before it puts this reference */
	spin_lock_bh(&users_lock);
	u->ref++;
	spin_unlock_bh(&users_lock);
}

/* Queues the mover that has waited longest in @line, if the user's movers may work on this CPU. */
static void serve(struct budget_cpu *line)
{
	struct budget_user *u = line->user;
	struct splice *s = NULL;
	struct budget_cpu *bc;

	spin_lock(&u->lock);
	bc = this_cpu_ptr(u->cpu);
	if (!list_empty(&line->line) && atomic_read(&bc->entered) < BUDGET_ENTERED &&
	    !is_over(bc)) {
		s = list_first_entry(&line->line, struct splice, line);
		list_del_init(&s->line);
	}
	spin_unlock(&u->lock);
	if (!s)
		return;
	smp_mb();	/* leave the line before the mover looks; pairs with sks_budget_waits() */
	sks_mover_queue(s);
	sks_splice_put(s);
}

static void tick(struct work_struct *work)
{
	struct budget_cpu *bc = container_of(to_delayed_work(work), struct budget_cpu, tick);
	struct budget_user *u = bc->user;

	serve(bc);
	spin_lock(&u->lock);
	if (!list_empty(&bc->line))
		tick_later(bc);
	spin_unlock(&u->lock);
	sks_budget_put(u);
}

/* Puts @s in line, unless it has ended: see sks_budget_forget(). */
static void stand_in_line(struct splice *s)
{
	struct budget_user *u = s->user;
	struct budget_cpu *bc;

	spin_lock(&u->lock);
	bc = this_cpu_ptr(u->cpu);
	if (!test_bit(SPLICE_ENDED, &s->flags) && list_empty(&s->line)) {
		refcount_inc(&s->ref);
		list_add_tail(&s->line, &bc->line);
		tick_later(bc);
	}
	spin_unlock(&u->lock);
}

struct budget_cpu *sks_budget_enter(struct splice *s)
{
	struct budget_cpu *bc = get_cpu_ptr(s->user->cpu);
	const bool over = is_over(bc);
	const bool may = !over && atomic_add_unless(&bc->entered, 1, BUDGET_ENTERED);

	put_cpu_ptr(s->user->cpu);
	if (may)
		return bc;
	if (over)
		sks_stat_inc(SOCKSPLICE_STAT_so_splice_throttled);
	stand_in_line(s);
	return NULL;
}

void sks_budget_leave(struct budget_user *u, struct budget_cpu *entered, u64 ns)
{
	struct budget_cpu *bc = get_cpu_ptr(u->cpu);

	pay(bc);
	bc->used = min(bc->used + ns, share() * BUDGET_DEBT_MAX);
	put_cpu_ptr(u->cpu);
	if (entered)
		atomic_dec(&entered->entered);
	if (!list_empty(&bc->line))
		serve(bc);
}

void sks_budget_forget(struct splice *s)
{
	bool waited;

	spin_lock(&s->user->lock);
	waited = !list_empty(&s->line);
	list_del_init(&s->line);
	spin_unlock(&s->user->lock);
	if (waited)
		sks_splice_put(s);	/* the line's reference */
}

bool sks_budget_waits(const struct splice *s)
{
	smp_mb();	/* publish what has come before reading the line; pairs with serve() */
	return !list_empty(&s->line);
}

void sks_budget_exit(void)
{
	bool none;

	/* No splice holds a user, and all lines are empty: a pending tick is the last. */
	for (;;) {
		spin_lock_bh(&users_lock);
		none = hash_empty(users);
		spin_unlock_bh(&users_lock);
		if (none)
			return;
		msleep(20);
	}
}
