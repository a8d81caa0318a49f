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

#define DROP_DELAY_MAX	(HZ / 10)	/* longest time between two looks at slow readers */

static void unpair_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(unpair, unpair_work);

/* unpair_work() only. */
static struct pairs_batch batch;
static unsigned int draining;		/* pairs seen in this pass */
static bool soon;			/* a ring was closed or an end detached in this pass */

/* Closes the ring of @end. True once no more bytes go into it: the work sets the bit while no task
 * owns the socket, so no task is in the middle of an append.
 */
static bool close_ring(struct pair_end *end)
{
	struct sock *sk;

	if (!test_bit(END_TX_CLOSED, &end->flags)) {
		sk = sks_end_trylock(end);
		if (IS_ERR_OR_NULL(sk))
			return false;	/* if the socket is gone, the bit is set next time */
		sks_close_ring(sk, end);
		sks_end_unlock(sk);
		soon = true;
	}
	smp_rmb();	/* read the bit before the ring: see END_TX_CLOSED */
	return true;
}

/* Wakes the reader for data that its peer has sent by TCP. The peer has detached and no longer
 * does so itself (rcvlowat.h).
 */
static void notify_missed_tcp_data(struct sock *sk, struct pair_end *end)
{
	bool told;
	u32 seq;

	smp_rmb();	/* read peer->sk before left_known; pairs with end_attachment() */
	rcu_read_lock();
	seq = sks_look_received(sk, &told);
	if (seq != READ_ONCE(end->left_known) && !told)
		sks_wake(sk, end);
	rcu_read_unlock();
	end->left_known = seq;
}

/* Detaches @end if its socket has read the closed ring to the bottom. */
static void end_reader(struct pair_end *end, struct pair_end *peer)
{
	const bool alone = !rcu_access_pointer(peer->sk);
	struct sock *sk = sks_end_trylock(end);

	if (IS_ERR_OR_NULL(sk))
		return;
	if (sks_end_is_done(sk, end, peer)) {
		sks_end_detach(sk);
		if (end->sleepers || end->rx_sleepers)
			sks_wake_sleepers(sk);
		soon = true;
	} else if (alone) {
		notify_missed_tcp_data(sk, end);
	}
	sks_end_unlock(sk);
}

static bool is_dropped(struct pair_end *a, struct pair_end *b)
{
	return test_bit(END_DROPPED, &a->flags) || test_bit(END_DROPPED, &b->flags);
}

static void unpair_step(struct pair_end *a, struct pair_end *b)
{
	const bool a_closed = close_ring(a), b_closed = close_ring(b);

	draining++;
	if (b_closed)
		end_reader(a, b);
	if (a_closed)
		end_reader(b, a);
}

static void unpair_work(struct work_struct *work)
{
	static unsigned long delay = 1;	/* jiffies */
	const u64 began = ktime_get_ns();

	draining = 0;
	soon = false;
	sks_pairs_each(&batch, is_dropped, unpair_step);
	if (soon || !draining)
		delay = 1;
	else
		delay = min(2 * delay, (unsigned long)DROP_DELAY_MAX);
	/* A task that marks a pair starts the work. */
	if (draining)
		schedule_delayed_work(&unpair, sks_throttle(began, delay));
}

static void start(void)
{
	cancel_delayed_work(&unpair);
	schedule_delayed_work(&unpair, 0);
}

/* Marks both ends. Counts and reports the pair once, even if both ends are marked at the same
 * time: both callers begin with the same end. False if they were marked.
 */
static bool mark(struct pair_end *a, struct pair_end *b, const char *reason)
{
	bool marked;

	if (a > b)
		swap(a, b);
	marked = test_and_set_bit(END_DROPPED, &a->flags);
	set_bit(END_DROPPED, &b->flags);
	if (!marked)
		sks_verdict_end(SOCKSPLICE_STAT_pairs_dropped, reason, a);
	return !marked;
}

void sks_unpair_end(struct pair_end *end, const char *reason)
{
	struct pair_end *peer = sks_end_peer(end);

	/* Once: a user may ask with every call, and the work visits all pairs. */
	if (mark(end, peer, reason))
		start();
}

static int mark_one(struct pair_end *a, struct pair_end *b, void *arg)
{
	const u32 *id = arg;

	if (a->id != *id)
		return 0;
	mark(a, b, "request");
	return 1;
}

int sks_unpair_pair(u32 id)
{
	u64 last = 0;

	if (!sks_pairs_walk(&last, mark_one, &id))
		return -ENOENT;
	start();
	return 0;
}

static bool is_not_dropped(struct pair_end *a, struct pair_end *b)
{
	return !is_dropped(a, b);
}

static void mark_any(struct pair_end *a, struct pair_end *b)
{
	mark(a, b, "request");
}

void sks_unpair_all(void)
{
	static DEFINE_MUTEX(lock);
	static struct pairs_batch all;	/* lock */

	mutex_lock(&lock);
	/* Not under pairs_lock: thousands of verdicts may have to be sent to a listener. */
	sks_pairs_each(&all, is_not_dropped, mark_any);
	mutex_unlock(&lock);
	start();
}

void sks_unpair_exit(void)
{
	cancel_delayed_work_sync(&unpair);
}
