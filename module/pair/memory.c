// SPDX-License-Identifier: GPL-2.0
#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "core/params.h"
#include "core/stats.h"
#include "pair/memory.h"

/* One for each group of a policy with a cap. It exists while an end of the group does. */
struct memory_group {
	struct list_head list;		/* groups_lock */
	u32 id;				/* constant */
	unsigned int refs;		/* groups_lock */
	atomic64_t held;
};

static LIST_HEAD(groups);
static DEFINE_SPINLOCK(groups_lock);

static atomic64_t held = ATOMIC64_INIT(0);	/* bytes of all rings */

static struct memory_group *group_find(u32 id)
{
	struct memory_group *group;

	lockdep_assert_held(&groups_lock);
	list_for_each_entry(group, &groups, list) {
		if (group->id == id)
			return group;
	}
	return NULL;
}

struct memory_group *sks_memory_group_get(u32 id)
{
	struct memory_group *group;

	spin_lock_bh(&groups_lock);
	group = group_find(id);
	if (!group) {
		group = kzalloc(sizeof(*group), GFP_ATOMIC | __GFP_NOWARN);
		if (!group)
			goto unlock;
		group->id = id;
		list_add(&group->list, &groups);
	}
	group->refs++;
unlock:
	spin_unlock_bh(&groups_lock);
	return group;
}

void sks_memory_group_put(struct memory_group *group)
{
	bool last;

	spin_lock_bh(&groups_lock);
	last = !--group->refs;
	if (last)
		list_del(&group->list);
	spin_unlock_bh(&groups_lock);
	if (!last)
		return;
	WARN_ON_ONCE(atomic64_read(&group->held));
	kfree(group);
}

static bool add_below(atomic64_t *sum, u64 cap, u32 size)
{
	if (atomic64_add_return(size, sum) <= cap || !cap)
		return true;
	atomic64_sub(size, sum);
	return false;
}

bool sks_memory_charge(struct memory_group *group, u64 cap, u32 size)
{
	if (!add_below(&held, READ_ONCE(sks_memory_cap), size))
		goto capped;
	if (group && !add_below(&group->held, cap, size)) {
		atomic64_sub(size, &held);
		goto capped;
	}
	return true;
capped:
	sks_stat_inc(SOCKSPLICE_STAT_rings_capped);
	return false;
}

void sks_memory_uncharge(struct memory_group *group, u32 size)
{
	if (group)
		atomic64_sub(size, &group->held);
	atomic64_sub(size, &held);
}

u64 sks_memory_held(void)
{
	return atomic64_read(&held);
}
