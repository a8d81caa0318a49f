// SPDX-License-Identifier: GPL-2.0
/*
 * Writers that wait for space.
 *
 * A blocking one waits for as long as its reader takes a good part of the ring every now and
 * then. One that does not block may not be kept, and must not be told EAGAIN where TCP, whose
 * buffers hold more, would have taken its bytes. But TCP's way costs time, too: for about as long
 * it waits, where the reader has shown that it takes at least as much in that time as TCP would
 * have carried. It would go on over TCP all the more often if it did not, as a reader that
 * has the bytes of both ways to take is slower.
 */
#include <linux/minmax.h>
#include <linux/sched/clock.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>
#include <net/tcp.h>

#include "core/nap.h"
#include "core/stats.h"
#include "datapath/tx_wait.h"
#include "pair/end.h"
#include "pair/wake.h"

/* How long a blocking writer waits for a reader that takes next to nothing before it
 * goes on over TCP, whose buffers hold more than the ring.
 */
#define SPILL_WAIT	max(HZ / 100, 2)

#define SPIN_WAIT	(30 * NSEC_PER_USEC)

/* All moments of a call, but for the one in which they are over. */
#define MOMENTS_MAX	(500 * NSEC_PER_USEC)

/* A moment was in vain if the reader has taken nothing, or less than a byte in two ns and so
 * many besides, which is slower than TCP carries them; unless it has taken all there was.
 */
#define VAIN_GRACE	16384U

/* After moments in vain one is left out, then three, seven ..., and so many at most. */
#define VAIN_RUN_MAX	255

bool socksplice_tx_is_behind(const struct sock *sk, const struct socksplice_chan *c,
			     const struct socksplice_chan *peer)
{
	const struct sock *psk;
	u32 unread = 0;

	if (!READ_ONCE(c->spilled))
		return false;
	if (ring_len(&c->ring))
		return true;
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		unread = READ_ONCE(tcp_sk(sk)->write_seq) - READ_ONCE(tcp_sk(psk)->copied_seq);
	rcu_read_unlock();
	return unread > READ_ONCE(c->ring_limit) / 2;
}

static bool space_or_end(struct sock *sk, struct socksplice_chan *c,
			 struct socksplice_chan *peer, bool between)
{
	return ring_len(&c->ring) <= READ_ONCE(c->ring_limit) / 2 || READ_ONCE(sk->sk_err) ||
	       (READ_ONCE(sk->sk_shutdown) & SEND_SHUTDOWN) ||
	       test_bit(CHAN_RX_CLOSED, &peer->flags) ||
	       test_bit(CHAN_TX_CLOSED, &c->flags) ||
	       (between && READ_ONCE(c->tx_turns));
}

/* Part of somebody's message is in the ring, and he waits, without the lock, for space
 * where TCP, whose buffer is larger, would have taken all of it: nothing may come between.
 * So he goes on over TCP at once, and we wait for that as for the lock, which he would
 * hold on TCP: however the socket blocks, and whatever signal comes. May drop the lock.
 */
static noinline void wait_turn(struct sock *sk, struct socksplice_chan *c)
{
	struct socksplice_chan *peer;

	do {
		peer = socksplice_chan_hold(c);
		/* While this is not zero, nobody sets tx_between. */
		WRITE_ONCE(c->tx_turns, c->tx_turns + 1);
		socksplice_wake_sleepers(sk);
		release_sock(sk);
		wait_var_event(&c->tx_between, !READ_ONCE(c->tx_between));
		lock_sock(sk);
		WRITE_ONCE(c->tx_turns, c->tx_turns - 1);
		socksplice_chan_put(c, peer);
		c = socksplice_chan_get(sk);
	} while (c && c->tx_between);
}

void socksplice_tx_wait_turn(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);

	if (unlikely(c && c->tx_between))
		wait_turn(sk, c);
}

static bool may_spin(void)
{
	return num_online_cpus() > 1 && single_task_running();
}

/* The reader usually runs, on another CPU, and half a ring is a matter of
 * microseconds: look for that long before sleeping, as a mutex does for its
 * owner. Not while another task wants this CPU: it may be the reader. With the lock
 * dropped. @behind: for a ring that may be opened again. True if there is one, or space.
 */
static bool spin(struct sock *sk, struct socksplice_chan *c,
		 struct socksplice_chan *peer, bool between, bool behind)
{
	bool space = false;
	u64 end;

	release_sock(sk);
	end = local_clock() + SPIN_WAIT;
	while (single_task_running() && !need_resched() &&
	       !signal_pending(current) && local_clock() < end) {
		space = behind ? !socksplice_tx_is_behind(sk, c, peer) :
				 space_or_end(sk, c, peer, between);
		if (space)
			break;
		cpu_relax();
	}
	lock_sock(sk);
	return space;
}

static void sleep_begin(struct sock *sk, struct socksplice_chan *c, struct wait_queue_entry *wait)
{
	sock_owned_by_me(sk);
	socksplice_stat_inc(SOCKSPLICE_STAT_writer_waits);
	c->sleepers++;
	c->space_waiters++;
	add_wait_queue(sk_sleep(sk), wait);
}

static void sleep_end(struct sock *sk, struct socksplice_chan *c, struct wait_queue_entry *wait)
{
	sock_owned_by_me(sk);
	remove_wait_queue(sk_sleep(sk), wait);
	c->sleepers--;
	if (!--c->space_waiters)
		WRITE_ONCE(c->want_space, 0);
}

/* Until there is space, for as long as the reader takes a good part of the ring every now
 * and then: else false, or where *@timeo is over. Similar to sk_stream_wait_memory(). Shortens
 * *@timeo by the time spent.
 */
static bool sleep_until_space(struct sock *sk, struct socksplice_chan *c,
			      struct socksplice_chan *peer, long *timeo, bool between)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	bool again = true;

	sleep_begin(sk, c, &wait);
	while (again) {
		u32 progress = socksplice_chan_progress(c);
		long slice = min_t(long, *timeo, SPILL_WAIT), t = slice;

		do {
			WRITE_ONCE(c->want_space, 1);
			/* The wish before the look at the tail: pairs with the
			 * barrier in socksplice_rx_consume().
			 */
			smp_mb();
			if (sk_wait_event(sk, &t, space_or_end(sk, c, peer, between),
					  &wait))
				break;
		} while (t && !signal_pending(current));
		if (*timeo != MAX_SCHEDULE_TIMEOUT)
			*timeo -= slice - t;
		if (t && !signal_pending(current))
			break;
		again = *timeo && !signal_pending(current) &&
			socksplice_chan_progress(c) - progress >= c->ring_limit / 8;
	}
	sleep_end(sk, c, &wait);
	return again;
}

/* Lets go of the CPU for a moment: the reader may want it. */
static void sleep_moment(struct sock *sk, struct socksplice_chan *c,
			 struct socksplice_chan *peer, bool between, bool behind)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	sleep_begin(sk, c, &wait);
	if (!behind) {
		WRITE_ONCE(c->want_space, 1);
		smp_mb();	/* as in sleep_until_space() */
	}
	release_sock(sk);
	/* On its way to sleep before the look at the mark that who wakes it leaves: pairs with
	 * the barrier in woken_wake_function(). Whoever it was, one look is enough.
	 */
	set_current_state(TASK_INTERRUPTIBLE);
	if (!(READ_ONCE(wait.flags) & WQ_FLAG_WOKEN) &&
	    (behind || !space_or_end(sk, c, peer, between)))
		socksplice_moment_sleep();
	__set_current_state(TASK_RUNNING);
	lock_sock(sk);
	sleep_end(sk, c, &wait);
}

static void judge_moment(struct socksplice_chan *c, u32 took, s64 spent, bool drained)
{
	/* Cut short: by a signal, say, or by bytes for us. */
	if (!took && spent < SPIN_WAIT)
		return;
	if (!drained && (!took || took + VAIN_GRACE < spent / 2))
		c->vain_run = min(2 * c->vain_run + 1, VAIN_RUN_MAX);
	else
		c->vain_run = 0;
	c->vain_skips = c->vain_run;
}

/* For a writer that does not block. A real-time task is not made to give up its CPU. */
static bool wait_moment(struct sock *sk, struct socksplice_chan *c,
			struct socksplice_chan *peer, struct tx_wait *w, size_t left, bool between)
{
	const bool behind = socksplice_tx_is_behind(sk, c, peer);
	const u32 progress = socksplice_chan_progress(c);
	const u64 began = local_clock();
	bool done = false;
	s64 spent;
	u32 len;

	if (may_spin())
		done = spin(sk, c, peer, between, behind);
	if (!done && !single_task_running() && !rt_or_dl_task(current))
		sleep_moment(sk, c, peer, between, behind);
	spent = local_clock() - began;
	w->moments += max(spent, 0);
	len = ring_len(&c->ring);
	judge_moment(c, socksplice_chan_progress(c) - progress, spent,
		     !behind && !len);
	if (behind)
		return !socksplice_tx_is_behind(sk, c, peer);
	return len + min_t(size_t, left, c->ring_limit / 8) <= c->ring_limit;
}

bool socksplice_tx_wait(struct sock *sk, struct socksplice_chan *c, struct tx_wait *w, size_t left,
			bool between)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);
	bool again;

	sock_owned_by_me(sk);
	if (between && c->tx_turns)
		return false;
	if (!w->timeo && w->moments >= MOMENTS_MAX)
		return false;
	if (!w->timeo && c->vain_skips) {
		c->vain_skips--;
		return false;
	}
	socksplice_chan_pin(sk, c);
	if (between)
		WRITE_ONCE(c->tx_between, true);
	if (!w->timeo)
		again = wait_moment(sk, c, peer, w, left, between);
	else
		again = (may_spin() && spin(sk, c, peer, between, false)) ||
			sleep_until_space(sk, c, peer, &w->timeo, between);
	if (between) {
		WRITE_ONCE(c->tx_between, false);
		if (c->tx_turns) {
			smp_mb();	/* before wake_up_var() looks for waiters */
			wake_up_var(&c->tx_between);
			again = false;
		}
	}
	socksplice_chan_unpin(sk, c);
	return again;
}
