// SPDX-License-Identifier: GPL-2.0
/*
 * Writers that wait for space.
 *
 * A blocking writer waits for as long as its reader takes a good part of the ring every now and
 * then.
 *
 * A writer that does not block must not get EAGAIN where TCP, whose buffers hold more, would have
 * taken its bytes. Nor may the call block. But sending by TCP costs time, too. So the writer gets
 * a short wait, about as long as TCP's way takes: it spins, or naps (core/nap.h). It waits only if
 * the reader has shown that it takes at least as much in that time as TCP would have carried.
 * Without short waits the writer would go on over TCP ever more often: a reader that takes bytes
 * from both ring and TCP is slower.
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
#include "datapath/disconnect.h"
#include "datapath/tx_wait.h"
#include "pair/end.h"
#include "pair/wake.h"

/* How long a blocking writer waits for a reader that takes next to nothing. Then it goes on over
 * TCP, whose buffers hold more than the ring.
 */
#define SPILL_WAIT	max(HZ / 100, 2)

#define SPIN_WAIT	(30 * NSEC_PER_USEC)

/* Limit of all short waits of a call. The wait in which it is reached may exceed it. */
#define NAPPED_MAX	(500 * NSEC_PER_USEC)

/* A short wait was in vain if the reader has taken nothing, or less than this many bytes plus one
 * byte in 2 ns. That is slower than TCP carries them. It was not in vain if the reader has emptied
 * the ring.
 */
#define VAIN_GRACE	16384U

/* After a short wait in vain the next one is left out, then three, seven ..., and at most this
 * many.
 */
#define VAIN_RUN_MAX	255

bool sks_tx_is_behind(const struct sock *sk, const struct pair_end *end,
		      const struct pair_end *peer)
{
	const struct sock *psk;
	u32 unread = 0;

	if (!READ_ONCE(end->spilled))
		return false;
	if (ring_len(&end->ring))
		return true;
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		unread = READ_ONCE(tcp_sk(sk)->write_seq) - READ_ONCE(tcp_sk(psk)->copied_seq);
	rcu_read_unlock();
	return unread > READ_ONCE(end->ring_limit) / 2;
}

static bool space_or_end(struct sock *sk, struct pair_end *end, struct pair_end *peer, bool between)
{
	return ring_len(&end->ring) <= READ_ONCE(end->ring_limit) / 2 || READ_ONCE(sk->sk_err) ||
	       (READ_ONCE(sk->sk_shutdown) & SEND_SHUTDOWN) ||
	       test_bit(END_RX_CLOSED, &peer->flags) || test_bit(END_TX_CLOSED, &end->flags) ||
	       (between && READ_ONCE(end->tx_turns));
}

/* Another task has part of its message in the ring. It waits, without the lock, for space where
 * TCP, whose buffer is larger, would have taken the whole message. Our bytes must not come
 * between. So we make that task go on over TCP at once, and wait for it as for the lock, which it
 * would hold on TCP: however the socket blocks, and whatever signal comes. May drop the lock.
 */
static noinline void wait_turn(struct sock *sk, struct pair_end *end)
{
	struct pair_end *peer;

	do {
		peer = sks_end_hold(end);
		/* While this is not zero, no task sets tx_mid_message. */
		WRITE_ONCE(end->tx_turns, end->tx_turns + 1);
		sks_wake_sleepers(sk);
		release_sock(sk);
		wait_var_event(&end->tx_mid_message, !READ_ONCE(end->tx_mid_message));
		lock_sock(sk);
		WRITE_ONCE(end->tx_turns, end->tx_turns - 1);
		sks_end_put(end, peer);
		end = sks_end_get(sk);
	} while (end && end->tx_mid_message);
}

void sks_tx_wait_turn(struct sock *sk)
{
	struct pair_end *end = sks_end_get(sk);

	while (unlikely(end && (end->tx_mid_message || end->disconnecting))) {
		if (end->tx_mid_message)
			wait_turn(sk, end);
		sks_disconnect_wait(sk);
		end = sks_end_get(sk);
	}
}

static bool may_spin(void)
{
	return num_online_cpus() > 1 && single_task_running();
}

/* Looks for space for SPIN_WAIT before the writer sleeps, as a mutex spins while its owner runs.
 * The reader usually runs on another CPU, and takes half a ring in microseconds. Stops if another
 * task wants this CPU, because that may be the reader. The lock is dropped meanwhile. @behind:
 * waits for a ring that may be opened again, instead of space. True if that has come.
 */
static bool spin(struct sock *sk, struct pair_end *end, struct pair_end *peer, bool between,
		 bool behind)
{
	bool space = false;
	u64 until;

	release_sock(sk);
	until = local_clock() + SPIN_WAIT;
	while (single_task_running() && !need_resched() && !signal_pending(current) &&
	       local_clock() < until) {
		space = behind ? !sks_tx_is_behind(sk, end, peer) :
				 space_or_end(sk, end, peer, between);
		if (space)
			break;
		cpu_relax();
	}
	lock_sock(sk);
	return space;
}

static void sleep_begin(struct sock *sk, struct pair_end *end, struct wait_queue_entry *wait)
{
	sock_owned_by_me(sk);
	sks_stat_inc(SOCKSPLICE_STAT_writer_waits);
	end->sleepers++;
	end->space_waiters++;
	add_wait_queue(sk_sleep(sk), wait);
}

static void sleep_end(struct sock *sk, struct pair_end *end, struct wait_queue_entry *wait)
{
	sock_owned_by_me(sk);
	remove_wait_queue(sk_sleep(sk), wait);
	end->sleepers--;
	if (!--end->space_waiters)
		WRITE_ONCE(end->want_space, 0);
}

/* Sleeps until there is space. False once the reader no longer takes a good part of the ring every
 * now and then, or once *@timeo is over. Similar to sk_stream_wait_memory(). Shortens *@timeo by
 * the time spent.
 */
static bool sleep_until_space(struct sock *sk, struct pair_end *end, struct pair_end *peer,
			      long *timeo, bool between)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	bool again = true;

	sleep_begin(sk, end, &wait);
	while (again) {
		u32 progress = sks_end_progress(end);
		long slice = min_t(long, *timeo, SPILL_WAIT), t = slice;

		do {
			WRITE_ONCE(end->want_space, 1);
			/* Set the wish before reading the tail. Pairs with the barrier in
			 * sks_rx_consume().
			 */
			smp_mb();
			if (sk_wait_event(sk, &t, space_or_end(sk, end, peer, between), &wait))
				break;
		} while (t && !signal_pending(current));
		if (*timeo != MAX_SCHEDULE_TIMEOUT)
			*timeo -= slice - t;
		if (t && !signal_pending(current))
			break;
		again = *timeo && !signal_pending(current) &&
			sks_end_progress(end) - progress >= end->ring_limit / 8;
	}
	sleep_end(sk, end, &wait);
	return again;
}

/* Naps, because the reader may want this CPU. */
static void take_nap(struct sock *sk, struct pair_end *end, struct pair_end *peer, bool between,
		     bool behind)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	sleep_begin(sk, end, &wait);
	if (!behind) {
		WRITE_ONCE(end->want_space, 1);
		smp_mb();	/* as in sleep_until_space() */
	}
	release_sock(sk);
	/* Set the task's state before reading the mark that a wake-up leaves. Pairs with the
	 * barrier in woken_wake_function(). After any wake-up one look at the ring is enough.
	 */
	set_current_state(TASK_INTERRUPTIBLE);
	if (!(READ_ONCE(wait.flags) & WQ_FLAG_WOKEN) &&
	    (behind || !space_or_end(sk, end, peer, between)))
		sks_nap();
	__set_current_state(TASK_RUNNING);
	lock_sock(sk);
	sleep_end(sk, end, &wait);
}

static void judge_nap(struct pair_end *end, u32 took, s64 spent, bool drained)
{
	/* The wait was cut short: by a signal, say, or by bytes that this socket received. */
	if (!took && spent < SPIN_WAIT)
		return;
	if (!drained && (!took || took + VAIN_GRACE < spent / 2))
		end->wait_backoff = min(2 * end->wait_backoff + 1, VAIN_RUN_MAX);
	else
		end->wait_backoff = 0;
	end->wait_skips_left = end->wait_backoff;
}

/* The short wait of a writer that does not block. A real-time task does not nap: it is not made to
 * give up its CPU. True if the writer should look at the ring again.
 */
static bool wait_napping(struct sock *sk, struct pair_end *end, struct pair_end *peer,
			 struct tx_wait *w, size_t left, bool between)
{
	const bool behind = sks_tx_is_behind(sk, end, peer);
	const u32 progress = sks_end_progress(end);
	const u64 began = local_clock();
	bool done = false;
	s64 spent;
	u32 len;

	if (may_spin())
		done = spin(sk, end, peer, between, behind);
	if (!done && !single_task_running() && !rt_or_dl_task(current))
		take_nap(sk, end, peer, between, behind);
	spent = local_clock() - began;
	w->napped += max(spent, 0);
	len = ring_len(&end->ring);
	judge_nap(end, sks_end_progress(end) - progress, spent, !behind && !len);
	if (behind)
		return !sks_tx_is_behind(sk, end, peer);
	return len + min_t(size_t, left, end->ring_limit / 8) <= end->ring_limit;
}

bool sks_tx_wait(struct sock *sk, struct pair_end *end, struct tx_wait *w, size_t left,
		 bool between)
{
	struct pair_end *peer = sks_end_peer(end);
	bool again;

	sock_owned_by_me(sk);
	if (between && end->tx_turns)
		return false;
	if (!w->timeo && w->napped >= NAPPED_MAX)
		return false;
	if (!w->timeo && end->wait_skips_left) {
		end->wait_skips_left--;
		return false;
	}
	sks_end_pin(sk, end);
	if (between)
		WRITE_ONCE(end->tx_mid_message, true);
	if (!w->timeo)
		again = wait_napping(sk, end, peer, w, left, between);
	else
		again = (may_spin() && spin(sk, end, peer, between, false)) ||
			sleep_until_space(sk, end, peer, &w->timeo, between);
	if (between) {
		WRITE_ONCE(end->tx_mid_message, false);
		if (end->tx_turns) {
			smp_mb();	/* before wake_up_var() looks for waiters */
			wake_up_var(&end->tx_mid_message);
			again = false;
		}
	}
	sks_end_unpin(sk, end);
	return again;
}
