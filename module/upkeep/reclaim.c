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
static unsigned long idle_limit;	/* jiffies, in this pass; 0: none */

/* Bytes of pages that @c's ring may keep: a page's if it carried nothing since the last look,
 * none after idle_limit. U32_MAX if it was used, or has no more than that. Notes what it sees.
 */
static u32 spare(struct socksplice_chan *c)
{
	u64 bytes = READ_ONCE(c->ring_bytes);

	if (!READ_ONCE(c->ring.pages))
		return U32_MAX;
	if (bytes != c->idle_bytes) {
		c->idle_bytes = bytes;
		c->idle_since = jiffies;
		return U32_MAX;
	}
	if (idle_limit && time_after_eq(jiffies, c->idle_since + idle_limit))
		return 0;
	return READ_ONCE(c->ring.filled) > PAGE_SIZE ? PAGE_SIZE : U32_MAX;
}

static bool one_is_idle(struct socksplice_chan *a, struct socksplice_chan *b)
{
	const bool a_idle = spare(a) != U32_MAX, b_idle = spare(b) != U32_MAX;

	return a_idle || b_idle;
}

static void give_back(struct socksplice_chan *c)
{
	const u32 may_stay = spare(c);

	/* Pages with bytes unread stay, however long; those of a ring in use, for this time. */
	if (may_stay != U32_MAX && socksplice_pages_release(c, may_stay) && !may_stay)
		socksplice_stat_inc(SOCKSPLICE_STAT_rings_given_back);
}

static void give_both_back(struct socksplice_chan *a, struct socksplice_chan *b)
{
	give_back(a);
	give_back(b);
}

static void idle_work(struct work_struct *work)
{
	idle_limit = READ_ONCE(socksplice_ring_idle) * HZ;
	socksplice_pairs_each(&batch, one_is_idle, give_both_back);
	/* The next new pair starts it again. */
	if (socksplice_pairs_live())
		schedule_delayed_work(&idle, IDLE_INTERVAL);
}

void socksplice_idle_start(void)
{
	schedule_delayed_work(&idle, IDLE_INTERVAL);
}

void socksplice_idle_exit(void)
{
	cancel_delayed_work_sync(&idle);
}
