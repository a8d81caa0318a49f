// SPDX-License-Identifier: GPL-2.0
#include <linux/llist.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "core/throttle.h"
#include "datapath/rcvlowat.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/wake.h"

#define RCVLOWAT_INTERVAL	2UL	/* jiffies */

/* The ends with END_LOWAT_QUEUED. The list holds each of them and its peer. */
static LLIST_HEAD(pending);
static unsigned long interval = RCVLOWAT_INTERVAL;	/* rcvlowat_work() alone writes it */

static void rcvlowat_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(rcvlowat, rcvlowat_work);

/* True if TCP may leave the reader asleep although ring and TCP together reach its mark. With
 * bytes in the ring this counts even at a mark of one: SO_RCVLOWAT may still be raised before
 * the data in flight arrive.
 */
static bool tcp_may_not_wake(const struct pair_end *end, const struct pair_end *peer)
{
	const struct sock *psk;
	bool mark;

	if (ring_len(&end->ring))
		return true;
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	mark = psk && READ_ONCE(psk->sk_rcvlowat) > 1;
	rcu_read_unlock();
	return mark;
}

/* True if bytes that @end has sent by TCP may not have reached the reader's TCP yet. */
static bool in_flight(const struct pair_end *end)
{
	const struct sock *sk;
	bool flight;

	rcu_read_lock();
	sk = rcu_dereference(end->sk);
	/* A reset leaves the sequence numbers as they were. */
	flight = sk && READ_ONCE(sk->sk_state) != TCP_CLOSE &&
		 READ_ONCE(tcp_sk(sk)->snd_una) != READ_ONCE(tcp_sk(sk)->write_seq);
	rcu_read_unlock();
	smp_rmb();	/* read snd_una before the caller reads rcv_nxt */
	return flight;
}

static void queue_later(struct pair_end *end)
{
	if (llist_add(&end->lowat_node, &pending))
		schedule_delayed_work(&rcvlowat, READ_ONCE(interval));
}

static void rcvlowat_work(struct work_struct *work)
{
	struct llist_node *list = llist_del_all(&pending);
	struct pair_end *end, *next;
	const u64 began = ktime_get_ns();

	llist_for_each_entry_safe(end, next, list, lowat_node)
	{
		struct pair_end *peer = sks_end_peer(end);
		/* Read before the bit is cleared. A poller that sets the bit next relies on the
		 * look below for everything that arrived before its own look.
		 */
		const u32 known = READ_ONCE(end->lowat_known);
		bool again, others, told = false;
		u32 seq = known;

		/* Clear the bit before the look. A sender that still found the bit set
		 * has its bytes seen here. A sender that did not queues the end again.
		 */
		smp_mb__before_atomic();	/* @known, @next */
		clear_bit(END_LOWAT_QUEUED, &end->flags);
		smp_mb__after_atomic();
		again = in_flight(end) && tcp_may_not_wake(end, peer);
		sks_look_at_tcp(peer, &seq, &told);
		others = again && test_and_set_bit(END_LOWAT_QUEUED, &end->flags);
		/* Look again, for what arrived before the other task set the bit. */
		if (others)
			sks_look_at_tcp(peer, &seq, &told);
		if (seq != known && !told)
			sks_wake_reader(peer);
		if (again && !others) {
			WRITE_ONCE(end->lowat_known, seq);
			queue_later(end);
		} else {
			sks_end_put(end, peer);
		}
		cond_resched();
	}
	WRITE_ONCE(interval, sks_throttle(began, RCVLOWAT_INTERVAL));
}

/* Sets the bit; true if it was clear. The caller has passed a full barrier since it last sent
 * or appended.
 */
static bool queue_begin(struct pair_end *end)
{
	/* Test first: the other end reads this cache line for each message. */
	if (test_bit_acquire(END_LOWAT_QUEUED, &end->flags) ||
	    test_and_set_bit(END_LOWAT_QUEUED, &end->flags))
		return false;
	sks_end_hold(end);
	return true;
}

void sks_rcvlowat_sent(struct pair_end *end, u32 before)
{
	struct pair_end *peer = sks_end_peer(end);
	bool begun, told = true;
	u32 seq = before;

	smp_mb();	/* send before reading the mark; pairs with sks_rcvlowat_poller() */
	if (!tcp_may_not_wake(end, peer))
		return;
	begun = queue_begin(end);
	/* Look after the bit: if a poller has set it, this covers what arrived before its look. */
	sks_look_at_tcp(peer, &seq, &told);
	if (seq != before && !told)
		sks_wake_reader(peer);
	/* If the work was queued already, it notifies the reader of what arrived before. */
	if (begun || seq != before)
		WRITE_ONCE(end->lowat_known, seq);
	if (begun)
		queue_later(end);
}

void sks_rcvlowat_appended(struct pair_end *end)
{
	const bool begun = queue_begin(end);
	const u32 seq = sks_look_rcv_nxt(sks_end_peer(end));

	WRITE_ONCE(end->lowat_known, seq);
	if (begun)
		queue_later(end);
}

void sks_rcvlowat_poller(struct pair_end *end)
{
	u32 seq;

	/* Set the mark before the look. A sender that sends later sees the mark. */
	smp_mb();
	if (!ring_len(&end->ring) || !in_flight(end))
		return;
	seq = sks_look_rcv_nxt(sks_end_peer(end));
	if (!queue_begin(end))
		return;
	/* The caller looks for itself next. Every other waiter is notified of what arrived before
	 * this. The holder of the bit until now does so, or the work, which finds this bit. Or it
	 * is a sender that has yet to reach the bit.
	 */
	WRITE_ONCE(end->lowat_known, seq);
	queue_later(end);
}

void sks_rcvlowat_marked(struct sock *sk)
{
	struct pair_end *end = sks_end_get_rcu(sk), *peer;
	const struct tcp_sock *tp = tcp_sk(sk);

	smp_mb();	/* set the mark before the look; pairs with the sender's is_below_mark() */
	peer = end ? sks_end_peer(end) : NULL;
	/* If TCP's bytes reach the mark by themselves, TCP has notified the reader. */
	if (!peer || !sks_look_ring_unread(sk, end) || sock_flag(sk, SOCK_DONE) ||
	    (int)(tp->rcv_nxt - tp->copied_seq) >= sk->sk_rcvlowat)
		return;
	sks_wake_reader(end);
	WRITE_ONCE(peer->lowat_known, tp->rcv_nxt);
}

void sks_rcvlowat_exit(void)
{
	synchronize_rcu();	/* waits for pollers */
	/* Detached sockets count as having nothing in flight, so the work ends. */
	flush_delayed_work(&rcvlowat);
}
