// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/workqueue.h>

#include "core/params.h"
#include "core/stats.h"
#include "pair/end.h"
#include "pair/pages.h"
#include "pair/pairs.h"
#include "upkeep/reclaim.h"

#define IDLE_INTERVAL	HZ

static void idle_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(idle, idle_work);

/* idle_work() only. */
static struct pairs_batch batch;
static unsigned long idle_limit;	/* jiffies, for this pass; 0: rings keep a page */

/* Bytes of pages that @end's ring may keep: one page if it carried nothing since the last look,
 * none after idle_limit. U32_MAX if it was used, or holds no more than that. Notes what it sees.
 */
static u32 spare(struct pair_end *end)
{
	u64 bytes = READ_ONCE(end->ring_bytes);

	if (!READ_ONCE(end->ring.pages))
		return U32_MAX;
	if (bytes != end->idle_bytes) {
		end->idle_bytes = bytes;
		end->idle_since = jiffies;
		return U32_MAX;
	}
	if (idle_limit && time_after_eq(jiffies, end->idle_since + idle_limit))
		return 0;
	return READ_ONCE(end->ring.filled) > PAGE_SIZE ? PAGE_SIZE : U32_MAX;
}

static bool one_is_idle(struct pair_end *a, struct pair_end *b)
{
	const bool a_idle = spare(a) != U32_MAX, b_idle = spare(b) != U32_MAX;

	return a_idle || b_idle;
}

static void give_back(struct pair_end *end)
{
	const u32 may_stay = spare(end);

	/* Pages with unread bytes stay, however old. All stay if a task owns the socket. */
	if (may_stay != U32_MAX && sks_pages_release(end, may_stay) && !may_stay)
		sks_stat_inc(SOCKSPLICE_STAT_rings_given_back);
}

static void give_both_back(struct pair_end *a, struct pair_end *b)
{
	give_back(a);
	give_back(b);
}

static void idle_work(struct work_struct *work)
{
	idle_limit = READ_ONCE(sks_ring_idle) * HZ;
	sks_pairs_each(&batch, one_is_idle, give_both_back);
	/* The next new pair starts the work again. */
	if (sks_pairs_live())
		schedule_delayed_work(&idle, IDLE_INTERVAL);
}

void sks_reclaim_start(void)
{
	schedule_delayed_work(&idle, IDLE_INTERVAL);
}

void sks_reclaim_exit(void)
{
	cancel_delayed_work_sync(&idle);
}
