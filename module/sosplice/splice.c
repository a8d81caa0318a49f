// SPDX-License-Identifier: GPL-2.0
/*
 * The splices: their memory, the list of those that live, and the queue of the mover.
 */
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/isolation.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "core/ordered.h"
#include "core/trace.h"
#include "pair/end.h"
#include "sosplice/budget.h"
#include "sosplice/splice.h"

static struct workqueue_struct *mover_wq;

static struct order sosplices;			/* sosplices_lock */
static unsigned int sosplices_live;		/* sosplices_lock; read without */
static DEFINE_SPINLOCK(sosplices_lock);
static atomic_t sosplices_held = ATOMIC_INIT(0);	/* not freed yet, ended or not */

unsigned int socksplice_sosplices_live(void)
{
	return READ_ONCE(sosplices_live);
}

static void free_rcu(struct rcu_head *rcu)
{
	struct sosplice *s = container_of(rcu, struct sosplice, rcu);

	sock_put(s->src);
	sock_put(s->dst);
	socksplice_budget_put(s->user);
	mem_cgroup_put(s->memcg);
	if (s->frag.page)
		put_page(s->frag.page);
	kfree(s);
	atomic_dec(&sosplices_held);
}

void socksplice_sosplice_put(struct sosplice *s)
{
	if (refcount_dec_and_test(&s->ref))
		call_rcu_hurry(&s->rcu, free_rcu);	/* it keeps sockets and their namespaces */
}

void socksplice_sosplices_add(struct sosplice *s)
{
	spin_lock(&sosplices_lock);
	order_add(&sosplices, &s->all);
	WRITE_ONCE(sosplices_live, sosplices_live + 1);
	spin_unlock(&sosplices_lock);
}

void socksplice_sosplices_remove(struct sosplice *s)
{
	spin_lock(&sosplices_lock);
	order_del(&sosplices, &s->all);
	WRITE_ONCE(sosplices_live, sosplices_live - 1);
	spin_unlock(&sosplices_lock);
}

int socksplice_sosplices_walk(u64 *last, int (*fn)(struct sosplice *s, void *arg),
			      void *arg)
{
	struct order_node *n;
	int err = 0;

	spin_lock(&sosplices_lock);
	for (n = order_behind(&sosplices, *last); n; n = order_next(n)) {
		err = fn(container_of(n, struct sosplice, all), arg);
		if (err)
			break;
		*last = n->number;
	}
	spin_unlock(&sosplices_lock);
	return err;
}

void socksplice_sosplice_settle(struct sosplice *s)
{
	if (!test_bit(SOSPLICE_SETTLED, &s->flags) &&
	    !test_and_set_bit(SOSPLICE_SETTLED, &s->flags))
		complete_all(&s->settled);
}

void socksplice_mover_queue(struct sosplice *s)
{
	refcount_inc(&s->ref);
	if (!queue_work(mover_wq, &s->work))
		refcount_dec(&s->ref);
}

/* The sink's owner may set it to any number, by SO_INCOMING_CPU. */
static bool may_work_on(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu) && !cpu_is_isolated(cpu) &&
	       housekeeping_test_cpu(cpu, HK_TYPE_WQ);
}

/* Not what waits for its share of the CPU: its turn finds what has come. */
static bool queue_on(unsigned int cpu, struct sosplice *s)
{
	if (!refcount_inc_not_zero(&s->ref))
		return false;
	if (socksplice_budget_waits(s) || !queue_work_on(cpu, mover_wq, &s->work))
		socksplice_sosplice_put(s);
	return true;
}

bool socksplice_mover_queue_rcu(struct sosplice *s)
{
	return queue_on(WORK_CPU_UNBOUND, s);
}

bool socksplice_mover_queue_arrived(struct sosplice *s)
{
	const unsigned int cpu = READ_ONCE(s->dst->sk_incoming_cpu);
	const bool acked = !socksplice_chan_get_rcu(s->dst);	/* of a ring nobody acknowledges */

	return queue_on(acked && may_work_on(cpu) ? cpu : WORK_CPU_UNBOUND, s);
}

void socksplice_mover_tick(struct sosplice *s, unsigned long delay)
{
	refcount_inc(&s->ref);
	if (mod_delayed_work(mover_wq, &s->tick, delay))
		refcount_dec(&s->ref);	/* it was pending, with a reference */
}

void socksplice_mover_stop_tick(struct sosplice *s)
{
	if (cancel_delayed_work(&s->tick))
		socksplice_sosplice_put(s);
}

bool socksplice_mover_later(struct delayed_work *work, unsigned long delay)
{
	return queue_delayed_work_on(smp_processor_id(), mover_wq, work, delay);
}

static void tick(struct work_struct *work)
{
	struct sosplice *s = container_of(to_delayed_work(work), struct sosplice, tick);

	socksplice_mover_queue(s);
	socksplice_sosplice_put(s);
}

struct sosplice *socksplice_sosplice_alloc(struct sock *src, struct sock *dst, s64 max,
					   u64 idle_us, work_func_t mover)
{
	struct sosplice *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);

	if (!s)
		return NULL;
	s->uid = current_uid();
	s->user = socksplice_budget_get(s->uid);
	if (!s->user) {
		kfree(s);
		return NULL;
	}
	atomic_inc(&sosplices_held);
	sock_hold(src);
	sock_hold(dst);
	s->src = src;
	s->dst = dst;
	s->max = max;
	/* No shorter than asked for, and not so long that time wraps. */
	s->idle = min_t(u64, DIV64_U64_ROUND_UP(idle_us * HZ, USEC_PER_SEC),
			MAX_JIFFY_OFFSET / 2);
	s->start = ktime_get_ns();
	refcount_set(&s->ref, 1);
	s->memcg = get_mem_cgroup_from_mm(current->mm);
	INIT_HLIST_NODE(&s->loop_source);
	INIT_HLIST_NODE(&s->loop_sink);
	INIT_LIST_HEAD(&s->line);
	init_completion(&s->settled);
	s->backoff = 1;
	INIT_WORK(&s->work, mover);
	INIT_DELAYED_WORK(&s->tick, tick);
	return s;
}

int socksplice_sosplices_init(void)
{
	mover_wq = alloc_workqueue("socksplice", COMPAT_WQ_PERCPU, 0);
	return mover_wq ? 0 : -ENOMEM;
}

void socksplice_sosplices_exit(void)
{
	/* Works and ticks hold them, and those end soon: the mover waits for no socket's lock,
	 * and tries that of a sink again only while the sink points to the splice. A sink that
	 * points to one would hold the module.
	 */
	while (atomic_read(&sosplices_held))
		msleep(20);
	rcu_barrier();	/* free_rcu() of the last one returns */
	socksplice_budget_exit();
	destroy_workqueue(mover_wq);
}
