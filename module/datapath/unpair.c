// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "core/throttle.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/pairs.h"
#include "pair/verdict.h"
#include "pair/wake.h"

#define DROP_DELAY_MAX	(HZ / 10)	/* between two looks at readers that do not read */

static void drop_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(drop, drop_work);

/* drop_work() only. */
static struct pairs_batch batch;
static unsigned int draining;		/* pairs seen in this pass */
static bool soon;			/* something moved */

/* True once nothing more goes into the ring of @c: nobody owns its socket, so
 * nobody is in the middle of an append.
 */
static bool close_ring(struct socksplice_chan *c)
{
	struct sock *sk;

	if (!test_bit(CHAN_TX_CLOSED, &c->flags)) {
		sk = socksplice_chan_trylock(c);
		if (IS_ERR_OR_NULL(sk))
			return false;	/* if it is gone, the bit says so next time */
		socksplice_close_ring(sk, c);
		socksplice_chan_unlock(sk);
		soon = true;
	}
	smp_rmb();	/* the bit before the look at the ring: see enum chan_flag */
	return true;
}

/* Of what its peer sends by TCP, which has gone first and would do so (rcvlowat.h). */
static void tell_of_arrivals(struct sock *sk, struct socksplice_chan *c)
{
	bool told;
	u32 seq;

	smp_rmb();	/* the peer's detaching before what it left here */
	rcu_read_lock();
	seq = socksplice_look_received(sk, &told);
	if (seq != READ_ONCE(c->left_known) && !told)
		socksplice_wake(sk, c);
	rcu_read_unlock();
	c->left_known = seq;
}

/* Takes @c off its socket if it has read the closed ring to the bottom. */
static void end_reader(struct socksplice_chan *c, struct socksplice_chan *peer)
{
	const bool alone = !rcu_access_pointer(peer->sk);
	struct sock *sk = socksplice_chan_trylock(c);

	if (IS_ERR_OR_NULL(sk))
		return;
	if (socksplice_chan_is_done(sk, c, peer)) {
		socksplice_chan_detach(sk);
		if (c->sleepers || c->rx_sleepers)
			socksplice_wake_sleepers(sk);
		soon = true;
	} else if (alone) {
		tell_of_arrivals(sk, c);
	}
	socksplice_chan_unlock(sk);
}

static bool is_dropped(struct socksplice_chan *a, struct socksplice_chan *b)
{
	return test_bit(CHAN_DROPPED, &a->flags) || test_bit(CHAN_DROPPED, &b->flags);
}

static void drop_step(struct socksplice_chan *a, struct socksplice_chan *b)
{
	const bool a_closed = close_ring(a), b_closed = close_ring(b);

	draining++;
	if (b_closed)
		end_reader(a, b);
	if (a_closed)
		end_reader(b, a);
}

static void drop_work(struct work_struct *work)
{
	static unsigned long delay = 1;	/* jiffies */
	const u64 began = ktime_get_ns();

	draining = 0;
	soon = false;
	socksplice_pairs_each(&batch, is_dropped, drop_step);
	if (soon || !draining)
		delay = 1;
	else
		delay = min(2 * delay, (unsigned long)DROP_DELAY_MAX);
	/* Who marks a pair starts the work himself. */
	if (draining)
		schedule_delayed_work(&drop, socksplice_rest(began, delay));
}

static void start(void)
{
	cancel_delayed_work(&drop);
	schedule_delayed_work(&drop, 0);
}

/* Told and counted once, whichever ends are marked at the same time. */
static void mark(struct socksplice_chan *a, struct socksplice_chan *b, const char *reason)
{
	bool marked;

	if (a > b)
		swap(a, b);
	marked = test_and_set_bit(CHAN_DROPPED, &a->flags);
	set_bit(CHAN_DROPPED, &b->flags);
	if (marked)
		return;
	socksplice_event_chan(SOCKSPLICE_STAT_pairs_dropped, reason, a);
}

void socksplice_drop_chan(struct socksplice_chan *c, const char *reason)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);

	mark(c, peer, reason);
	start();
}

static int mark_one(struct socksplice_chan *a, struct socksplice_chan *b, void *arg)
{
	const u32 *id = arg;

	if (a->id != *id)
		return 0;
	mark(a, b, "request");
	return 1;
}

int socksplice_drop_pair(u32 id)
{
	u64 last = 0;

	if (!socksplice_pairs_walk(&last, mark_one, &id))
		return -ENOENT;
	start();
	return 0;
}

static bool is_not_dropped(struct socksplice_chan *a, struct socksplice_chan *b)
{
	return !is_dropped(a, b);
}

static void mark_any(struct socksplice_chan *a, struct socksplice_chan *b)
{
	mark(a, b, "request");
}

void socksplice_drop_all(void)
{
	static DEFINE_MUTEX(lock);
	static struct pairs_batch all;	/* lock */

	mutex_lock(&lock);
	/* Not under pairs_lock: thousands may have to be told to a listener. */
	socksplice_pairs_each(&all, is_not_dropped, mark_any);
	mutex_unlock(&lock);
	start();
}

void socksplice_drop_exit(void)
{
	cancel_delayed_work_sync(&drop);
}
