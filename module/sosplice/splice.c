// SPDX-License-Identifier: GPL-2.0
/*
 * The splices: their memory, the order of the live ones, and the queue of the mover.
 */
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/rhashtable.h>
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

static struct ordered splices;			/* splices_lock */
static unsigned int splices_live;		/* splices_lock; read without */
static DEFINE_SPINLOCK(splices_lock);
static atomic_t splices_held = ATOMIC_INIT(0);	/* splices that are not freed yet, ended or not */

static struct rhashtable table;		/* UDP, kTLS: by endpoint->sk; written under the
					 * socket's lock
					 */
static const struct rhashtable_params table_params = {
	.key_len = sizeof(struct sock *),
	.key_offset = offsetof(struct splice_endpoint, sk),
	.head_offset = offsetof(struct splice_endpoint, table),
	.automatic_shrinking = true,
};

struct splice_endpoint *sks_endpoint_in_table(const struct sock *sk)
{
	return rhashtable_lookup_fast(&table, &sk, table_params);
}

int sks_endpoint_table_add(struct splice_endpoint *end)
{
	return rhashtable_insert_fast(&table, &end->table, table_params);
}

void sks_endpoint_table_remove(struct splice_endpoint *end)
{
	rhashtable_remove_fast(&table, &end->table, table_params);
}

unsigned int sks_splices_live(void)
{
	return READ_ONCE(splices_live);
}

static void free_rcu(struct rcu_head *rcu)
{
	struct splice *s = container_of(rcu, struct splice, rcu);

	sock_put(s->src);
	sock_put(s->dst);
	sks_budget_put(s->user);
	mem_cgroup_put(s->memcg);
	if (s->frag.page)
		put_page(s->frag.page);
	kfree(s);
	atomic_dec(&splices_held);
}

void sks_splice_put(struct splice *s)
{
	if (refcount_dec_and_test(&s->ref))
		call_rcu_hurry(&s->rcu, free_rcu);	/* hurry: it holds sockets and their
							 * namespaces
							 */
}

void sks_splices_add(struct splice *s)
{
	spin_lock(&splices_lock);
	ordered_add(&splices, &s->all);
	WRITE_ONCE(splices_live, splices_live + 1);
	spin_unlock(&splices_lock);
}

void sks_splices_remove(struct splice *s)
{
	spin_lock(&splices_lock);
	ordered_del(&splices, &s->all);
	WRITE_ONCE(splices_live, splices_live - 1);
	spin_unlock(&splices_lock);
}

int sks_splices_walk(u64 *last, int (*fn)(struct splice *s, void *arg), void *arg)
{
	struct ordered_node *n;
	int err = 0;

	spin_lock(&splices_lock);
	for (n = ordered_behind(&splices, *last); n; n = ordered_next(n)) {
		err = fn(container_of(n, struct splice, all), arg);
		if (err)
			break;
		*last = n->number;
	}
	spin_unlock(&splices_lock);
	return err;
}

void sks_splice_settle(struct splice *s)
{
	if (!test_bit(SPLICE_SETTLED, &s->flags) && !test_and_set_bit(SPLICE_SETTLED, &s->flags))
		complete_all(&s->settled);
}

void sks_mover_queue(struct splice *s)
{
	refcount_inc(&s->ref);
	if (!queue_work(mover_wq, &s->work))
		refcount_dec(&s->ref);
}

/* True if the mover may be queued on @cpu. The sink's owner may set it to any number, by
 * SO_INCOMING_CPU.
 */
static bool may_work_on(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu) && !cpu_is_isolated(cpu) &&
	       housekeeping_test_cpu(cpu, HK_TYPE_WQ);
}

/* Queues the mover, unless the splice waits for its share of the CPU: at its turn the mover finds
 * the new data. False if the last reference is gone.
 */
static bool queue_on(unsigned int cpu, struct splice *s)
{
	if (!refcount_inc_not_zero(&s->ref))
		return false;
	if (sks_budget_waits(s) || !queue_work_on(cpu, mover_wq, &s->work))
		sks_splice_put(s);
	return true;
}

bool sks_mover_queue_rcu(struct splice *s)
{
	return queue_on(WORK_CPU_UNBOUND, s);
}

bool sks_mover_queue_arrived(struct splice *s)
{
	const unsigned int cpu = READ_ONCE(s->dst->sk_incoming_cpu);
	const bool acked = !sks_end_get_rcu(s->dst);	/* a ring's bytes get no ACKs */

	return queue_on(acked && may_work_on(cpu) ? cpu : WORK_CPU_UNBOUND, s);
}

void sks_mover_tick(struct splice *s, unsigned long delay)
{
	refcount_inc(&s->ref);
	if (mod_delayed_work(mover_wq, &s->tick, delay))
		refcount_dec(&s->ref);	/* it was pending and has a reference */
}

void sks_mover_stop_tick(struct splice *s)
{
	if (cancel_delayed_work(&s->tick))
		sks_splice_put(s);
}

bool sks_mover_later(struct delayed_work *work, unsigned long delay)
{
	return queue_delayed_work_on(smp_processor_id(), mover_wq, work, delay);
}

static void tick(struct work_struct *work)
{
	struct splice *s = container_of(to_delayed_work(work), struct splice, tick);

	sks_mover_queue(s);
	sks_splice_put(s);
}

struct splice *sks_splice_alloc(struct sock *src, struct sock *dst, s64 max, u64 idle_us,
				work_func_t mover)
{
	struct splice *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);

	if (!s)
		return NULL;
	s->uid = current_uid();
	s->user = sks_budget_get(s->uid);
	if (!s->user) {
		kfree(s);
		return NULL;
	}
	atomic_inc(&splices_held);
	sock_hold(src);
	sock_hold(dst);
	s->src = src;
	s->dst = dst;
	s->datagrams = sks_splice_is_udp(src);
	s->max = max;
	/* The idle time is no shorter than asked for, and not so long that jiffies wrap. */
	s->idle = min_t(u64, DIV64_U64_ROUND_UP(idle_us * HZ, USEC_PER_SEC), MAX_JIFFY_OFFSET / 2);
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

int sks_splices_init(void)
{
	int err = rhashtable_init(&table, &table_params);

	if (err)
		return err;
	mover_wq = alloc_workqueue("socksplice", COMPAT_WQ_PERCPU, 0);
	if (mover_wq)
		return 0;
	rhashtable_destroy(&table);
	return -ENOMEM;
}

void sks_splices_exit(void)
{
	/* Works and ticks hold splices, and these end soon. The mover waits for no socket's lock,
	 * and tries a sink's again only while the sink points to the splice. A sink that points to
	 * one would hold the module.
	 */
	while (atomic_read(&splices_held))
		msleep(20);
	rcu_barrier();	/* free_rcu() of the last one returns */
	sks_budget_exit();
	destroy_workqueue(mover_wq);
	rhashtable_destroy(&table);
}
