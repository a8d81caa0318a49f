// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/workqueue.h>

#include "chan.h"
#include "idle.h"
#include "stats.h"

#define IDLE_INTERVAL	HZ

static void idle_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(idle, idle_work);

unsigned int socksplice_ring_idle = 30;

/* idle_work() only. */
static struct pairs_batch batch;
static unsigned long idle_limit;	/* jiffies, in this pass */

/* Whether it is time to give the ring of @c back; notes what it sees. */
static bool is_idle(struct socksplice_chan *c)
{
	u64 bytes = READ_ONCE(c->ring_bytes);

	if (!READ_ONCE(c->ring_mem))
		return false;
	if (bytes != c->idle_bytes) {
		c->idle_bytes = bytes;
		c->idle_since = jiffies;
		return false;
	}
	return time_after_eq(jiffies, c->idle_since + idle_limit);
}

static bool one_is_idle(struct socksplice_chan *a, struct socksplice_chan *b)
{
	const bool a_idle = is_idle(a), b_idle = is_idle(b);

	return a_idle || b_idle;
}

static void give_back(struct socksplice_chan *c)
{
	/* One with bytes unread stays, however long; one in use, for this time. */
	if (is_idle(c) && socksplice_chan_give_ring_back(c))
		socksplice_stat_inc(SOCKSPLICE_STAT_rings_given_back);
}

static void give_both_back(struct socksplice_chan *a, struct socksplice_chan *b)
{
	give_back(a);
	give_back(b);
}

static void idle_work(struct work_struct *work)
{
	unsigned int limit = READ_ONCE(socksplice_ring_idle);

	if (limit) {
		idle_limit = limit * HZ;
		socksplice_pairs_each(&batch, one_is_idle, give_both_back);
	}
	/* Who makes the first pair starts the work itself. */
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
