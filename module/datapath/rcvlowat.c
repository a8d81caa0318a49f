// SPDX-License-Identifier: GPL-2.0
#include <linux/llist.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "core/throttle.h"
#include "datapath/rcvlowat.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/wake.h"

#define KICK_INTERVAL	2UL	/* jiffies */

static LLIST_HEAD(pending);	/* chans with CHAN_KICKED; each entry holds the chan and its peer */
static unsigned long interval = KICK_INTERVAL;	/* written by kick_work() only */

static void kick_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(kick, kick_work);

/* True if TCP may leave the reader asleep although ring and TCP together reach its mark. With
 * bytes in the ring this counts even at a mark of one: SO_RCVLOWAT may still be raised before
 * the data in flight arrive.
 */
static bool is_at_stake(const struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	const struct sock *psk;
	bool mark;

	if (ring_len(&c->ring))
		return true;
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	mark = psk && READ_ONCE(psk->sk_rcvlowat) > 1;
	rcu_read_unlock();
	return mark;
}

/* True if bytes that @c has sent by TCP may not have reached the reader's TCP yet. */
static bool in_flight(const struct socksplice_chan *c)
{
	const struct sock *sk;
	bool flight;

	rcu_read_lock();
	sk = rcu_dereference(c->sk);
	/* A reset leaves the sequence numbers as they were. */
	flight = sk && READ_ONCE(sk->sk_state) != TCP_CLOSE &&
		 READ_ONCE(tcp_sk(sk)->snd_una) != READ_ONCE(tcp_sk(sk)->write_seq);
	rcu_read_unlock();
	smp_rmb();	/* snd_una before the caller's look at rcv_nxt */
	return flight;
}

static void kick_later(struct socksplice_chan *c)
{
	if (llist_add(&c->kick, &pending))
		schedule_delayed_work(&kick, READ_ONCE(interval));
}

static void kick_work(struct work_struct *work)
{
	struct llist_node *list = llist_del_all(&pending);
	struct socksplice_chan *c, *next;
	const u64 began = ktime_get_ns();

	llist_for_each_entry_safe(c, next, list, kick) {
		struct socksplice_chan *peer = socksplice_chan_peer(c);
		/* Read before the bit is cleared. A poller that sets the bit next relies on the
		 * look below for everything that arrived before its own look.
		 */
		const u32 known = READ_ONCE(c->kick_known);
		bool again, others, told = false;
		u32 seq = known;

		/* Clear the bit before the look. A sender that still found the bit set
		 * has its bytes seen here. A sender that did not queues the chan again.
		 */
		smp_mb__before_atomic();	/* @known, @next */
		clear_bit(CHAN_KICKED, &c->flags);
		smp_mb__after_atomic();
		again = in_flight(c) && is_at_stake(c, peer);
		socksplice_look_at_tcp(peer, &seq, &told);
		others = again && test_and_set_bit(CHAN_KICKED, &c->flags);
		/* Also for what arrived between this look and that of the task that set the bit. */
		if (others)
			socksplice_look_at_tcp(peer, &seq, &told);
		if (seq != known && !told)
			socksplice_wake_reader(peer);
		if (again && !others) {
			WRITE_ONCE(c->kick_known, seq);
			kick_later(c);
		} else {
			socksplice_chan_put(c, peer);
		}
		cond_resched();
	}
	WRITE_ONCE(interval, socksplice_rest(began, KICK_INTERVAL));
}

/* Sets the bit; true if it was clear. The caller has passed a full barrier since it last sent
 * or appended.
 */
static bool kick_begin(struct socksplice_chan *c)
{
	/* Test first: the other end reads this cache line for each message. */
	if (test_bit_acquire(CHAN_KICKED, &c->flags) || test_and_set_bit(CHAN_KICKED, &c->flags))
		return false;
	socksplice_chan_hold(c);
	return true;
}

void socksplice_kick_sent(struct socksplice_chan *c, u32 before)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);
	bool begun, told = true;
	u32 seq = before;

	smp_mb();	/* the sent bytes before the look at the mark; pairs with _kick_poller() */
	if (!is_at_stake(c, peer))
		return;
	begun = kick_begin(c);
	/* Look after the bit: if a poller has set it, this covers what arrived before its look. */
	socksplice_look_at_tcp(peer, &seq, &told);
	if (seq != before && !told)
		socksplice_wake_reader(peer);
	/* If the work is queued already, it tells of what arrived before. */
	if (begun || seq != before)
		WRITE_ONCE(c->kick_known, seq);
	if (begun)
		kick_later(c);
}

void socksplice_kick_appended(struct socksplice_chan *c)
{
	const bool begun = kick_begin(c);
	const u32 seq = socksplice_look_rcv_nxt(socksplice_chan_peer(c));

	WRITE_ONCE(c->kick_known, seq);
	if (begun)
		kick_later(c);
}

void socksplice_kick_poller(struct socksplice_chan *c)
{
	u32 seq;

	/* The mark before the look. A sender that sends later sees the mark. */
	smp_mb();
	if (!ring_len(&c->ring) || !in_flight(c))
		return;
	seq = socksplice_look_rcv_nxt(socksplice_chan_peer(c));
	if (!kick_begin(c))
		return;
	/* The caller looks for itself next. Every other waiter is told of what arrived before
	 * this: by the holder of the bit until now, by the work, which finds this bit, or by a
	 * sender that has yet to reach the bit.
	 */
	WRITE_ONCE(c->kick_known, seq);
	kick_later(c);
}

void socksplice_kick_marked(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get_rcu(sk), *peer;
	const struct tcp_sock *tp = tcp_sk(sk);

	smp_mb();	/* the mark before the look; pairs with the sender's is_below_mark() */
	peer = c ? socksplice_chan_peer(c) : NULL;
	/* TCP has told of these bytes if they reach the mark by themselves. */
	if (!peer || !socksplice_look_ring_unread(sk, c) || sock_flag(sk, SOCK_DONE) ||
	    (int)(tp->rcv_nxt - tp->copied_seq) >= sk->sk_rcvlowat)
		return;
	socksplice_wake_reader(c);
	WRITE_ONCE(peer->kick_known, tp->rcv_nxt);
}

void socksplice_kick_exit(void)
{
	synchronize_rcu();	/* pollers */
	/* Detached sockets count as having nothing in flight, so the work ends. */
	flush_delayed_work(&kick);
}
