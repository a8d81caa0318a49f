// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "chan.h"
#include "drop.h"
#include "ident.h"
#include "stats.h"

#define DROP_DELAY_MAX	(HZ / 10)	/* between two looks at readers that do not read */

static void drop_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(drop, drop_work);

/* drop_work() only. */
static struct pairs_batch batch;
static unsigned int draining;		/* pairs seen in this pass */
static bool progress;

/* Sleepers of ours look at their chan again. Only they: TCP's own wake-up would
 * also send a SIGIO that no packet has caused.
 */
static void wake_sleepers(struct sock *sk, const struct socksplice_chan *c)
{
	if (c->sleepers)
		wake_up_interruptible_all(sk_sleep(sk));
}

/* True once nothing more goes into the ring of @c: nobody owns its socket, so
 * nobody is in the middle of an append.
 */
static bool close_ring(struct socksplice_chan *c)
{
	struct sock *sk = socksplice_chan_trylock(c);

	if (IS_ERR(sk))
		return false;
	if (!sk)
		return true;
	if (!test_and_set_bit(CHAN_TX_CLOSED, &c->flags))
		wake_sleepers(sk, c);
	socksplice_chan_unlock(sk);
	return true;
}

/* True if @c is gone or has read the closed ring of @peer to the bottom. */
static bool is_done(struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	struct sock *sk = socksplice_chan_trylock(c);
	bool done;

	if (IS_ERR_OR_NULL(sk))
		return !sk;
	done = socksplice_chan_is_done(sk, c, peer);
	socksplice_chan_unlock(sk);
	return done;
}

static void end(struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	struct sock *sk = socksplice_chan_trylock(c);

	if (IS_ERR_OR_NULL(sk))
		return;
	/* A reader may have begun another call since. */
	if (socksplice_chan_is_done(sk, c, peer)) {
		socksplice_chan_detach(sk);
		wake_sleepers(sk, c);
		progress = true;
	}
	socksplice_chan_unlock(sk);
}

static bool is_dropped(const struct socksplice_chan *a, const struct socksplice_chan *b)
{
	return test_bit(CHAN_DROPPED, &a->flags);
}

static void drop_step(struct socksplice_chan *a, struct socksplice_chan *b)
{
	const bool a_closed = close_ring(a), b_closed = close_ring(b);

	draining++;
	/* Both together: a sender whose reader has a low-water mark, and bytes of
	 * the ring to read or in hand, is the one who wakes it (kick.h).
	 */
	if (a_closed && b_closed && is_done(a, b) && is_done(b, a)) {
		end(a, b);
		end(b, a);
	}
}

static void drop_work(struct work_struct *work)
{
	static unsigned long delay = 1;	/* jiffies */

	draining = 0;
	progress = false;
	socksplice_pairs_each(&batch, is_dropped, drop_step);
	if (progress || !draining)
		delay = 1;
	else
		delay = min(2 * delay, (unsigned long)DROP_DELAY_MAX);
	/* Who marks a pair starts the work himself. */
	if (draining)
		schedule_delayed_work(&drop, delay);
}

static void start(void)
{
	cancel_delayed_work(&drop);
	schedule_delayed_work(&drop, 0);
}

static int mark(struct socksplice_chan *a, struct socksplice_chan *b, void *arg)
{
	const u32 *id = arg;

	if (*id && a->id != *id)
		return 0;
	if (!test_and_set_bit(CHAN_DROPPED, &a->flags)) {
		set_bit(CHAN_DROPPED, &b->flags);
		socksplice_stat_inc(SOCKSPLICE_STAT_pairs_dropped);
	}
	return *id ? 1 : 0;
}

int socksplice_drop_pair(u32 id)
{
	u32 last = id - 1;

	if (!id || !socksplice_pairs_walk(&last, mark, &id))
		return -ENOENT;
	start();
	return 0;
}

void socksplice_drop_all(void)
{
	u32 last = 0, all = 0;

	socksplice_ident_flush();
	socksplice_pairs_walk(&last, mark, &all);
	start();
}

void socksplice_drop_exit(void)
{
	cancel_delayed_work_sync(&drop);
}
