// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "compat/compat.h"
#include "core/nap.h"

struct nap_cpu {
	raw_spinlock_t lock;		/* taken with interrupts off; protects the fields below */
	struct list_head sleepers;	/* tasks that sleep here and that the timer has not woken
					 * yet
					 */
	bool running;			/* the timer is set, or is about to be */
	struct hrtimer timer;
};

/* On the stack of the task that sleeps. Valid while it is on the list. */
struct nap_sleeper {
	struct list_head node;
	struct task_struct *task;
	bool seen;		/* the task was asleep when the timer last ran out */
};

static DEFINE_PER_CPU(struct nap_cpu, naps);

static enum hrtimer_restart run_out(struct hrtimer *timer)
{
	struct nap_cpu *m = container_of(timer, struct nap_cpu, timer);
	struct nap_sleeper *s, *next;
	unsigned long irq;
	bool again;

	raw_spin_lock_irqsave(&m->lock, irq);
	list_for_each_entry_safe(s, next, &m->sleepers, node) {
		if (s->seen) {
			list_del_init(&s->node);
			wake_up_process(s->task);
		}
		s->seen = true;
	}
	again = !list_empty(&m->sleepers);
	m->running = again;
	if (again)
		hrtimer_forward_now(timer, SOCKSPLICE_MOMENT);
	raw_spin_unlock_irqrestore(&m->lock, irq);
	return again ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

void sks_nap(void)
{
	struct nap_sleeper s = { .task = current };
	struct nap_cpu *m;
	unsigned long irq;

	if (hrtimer_resolution > SOCKSPLICE_MOMENT)
		return;
	m = raw_cpu_ptr(&naps);	/* if the task migrates, any CPU's struct will do */
	raw_spin_lock_irqsave(&m->lock, irq);
	list_add(&s.node, &m->sleepers);
	if (!m->running) {
		m->running = true;
		hrtimer_start(&m->timer, SOCKSPLICE_MOMENT, HRTIMER_MODE_REL_PINNED);
	}
	raw_spin_unlock_irqrestore(&m->lock, irq);
	schedule();
	raw_spin_lock_irqsave(&m->lock, irq);
	list_del(&s.node);
	raw_spin_unlock_irqrestore(&m->lock, irq);
}

void sks_nap_init(void)
{
	struct nap_cpu *m;
	int cpu;

	for_each_possible_cpu(cpu) {
		m = per_cpu_ptr(&naps, cpu);
		raw_spin_lock_init(&m->lock);
		INIT_LIST_HEAD(&m->sleepers);
		compat_hrtimer_setup(&m->timer, run_out, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
	}
}

void sks_nap_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu_ptr(&naps, cpu)->timer);
}
