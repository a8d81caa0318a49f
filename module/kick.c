// SPDX-License-Identifier: GPL-2.0
#include <linux/llist.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "chan.h"
#include "kick.h"
#include "rest.h"
#include "rx.h"
#include "tx.h"

#define KICK_INTERVAL	2UL	/* jiffies */

static LLIST_HEAD(pending);	/* chans with CHAN_KICKED, each held with its peer */
static unsigned long interval = KICK_INTERVAL;	/* written by kick_work() only */

static void kick_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(kick, kick_work);

/* Whether TCP may leave the reader asleep though there is enough. If its mark is one, that may
 * change before what is on its way has come.
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

u32 socksplice_kick_received(const struct sock *sk, bool *told)
{
	const u32 seq = READ_ONCE(tcp_sk(sk)->rcv_nxt);
	int mark;

	/* What is unread gets less until more is received, and a lower mark has TCP look
	 * again: so this held when the last of it came, too, or has been made good.
	 */
	smp_rmb();
	mark = READ_ONCE(sk->sk_rcvlowat);
	*told = mark <= 1 || (int)(seq - READ_ONCE(tcp_sk(sk)->copied_seq)) >= mark ||
		sock_flag(sk, SOCK_DONE);
	return seq;
}

/* The same for the end @peer; false if its socket is gone. */
static bool look_at_tcp(const struct socksplice_chan *peer, u32 *seq, bool *told)
{
	const struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		*seq = socksplice_kick_received(psk, told);
	rcu_read_unlock();
	return psk;
}

/* What is not, the reader's TCP has received. */
static bool in_flight(const struct socksplice_chan *c)
{
	const struct sock *sk;
	bool flight;

	rcu_read_lock();
	sk = rcu_dereference(c->sk);
	/* A connection that was reset keeps its numbers. */
	flight = sk && READ_ONCE(sk->sk_state) != TCP_CLOSE &&
		 READ_ONCE(tcp_sk(sk)->snd_una) != READ_ONCE(tcp_sk(sk)->write_seq);
	rcu_read_unlock();
	smp_rmb();	/* before the caller's look at rcv_nxt */
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
		/* Before the bit is cleared: a poller that sets it next counts on the look
		 * below for what came until its own.
		 */
		const u32 known = READ_ONCE(c->kick_known);
		bool again, others, told = false;
		u32 seq = known;

		/* The bit before the look: a sender that finds the bit set has
		 * its bytes seen here, one that does not comes back itself.
		 */
		smp_mb__before_atomic();	/* @known, @next */
		clear_bit(CHAN_KICKED, &c->flags);
		smp_mb__after_atomic();
		again = in_flight(c) && is_at_stake(c, peer);
		look_at_tcp(peer, &seq, &told);
		others = again && test_and_set_bit(CHAN_KICKED, &c->flags);
		/* And what came between this look and that of who has just set it. */
		if (others)
			look_at_tcp(peer, &seq, &told);
		if (seq != known && !told)
			socksplice_tx_wake_reader(peer);
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

/* After a full barrier since the caller has sent or appended anything. */
static bool kick_begin(struct socksplice_chan *c)
{
	/* The bit is on a line that the other end reads for each message. */
	if (test_bit_acquire(CHAN_KICKED, &c->flags) || test_and_set_bit(CHAN_KICKED, &c->flags))
		return false;
	socksplice_chan_hold(c);
	return true;
}

u32 socksplice_kick_before(const struct socksplice_chan *peer)
{
	bool told;
	u32 seq = 0;

	look_at_tcp(peer, &seq, &told);
	return seq;
}

void socksplice_kick_sent(struct socksplice_chan *c, u32 before)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);
	bool begun, told = true;
	u32 seq = before;

	smp_mb();	/* what was sent before the mark; pairs with that in _kick_poller() */
	if (!is_at_stake(c, peer))
		return;
	begun = kick_begin(c);
	/* After the bit: if a poller has set it, this is for what came until its look. */
	look_at_tcp(peer, &seq, &told);
	if (seq != before && !told)
		socksplice_tx_wake_reader(peer);
	/* What came before is the work's to tell of, if it is on its way. */
	if (begun || seq != before)
		WRITE_ONCE(c->kick_known, seq);
	if (begun)
		kick_later(c);
}

void socksplice_kick_appended(struct socksplice_chan *c)
{
	const bool begun = kick_begin(c);
	const u32 seq = socksplice_kick_before(socksplice_chan_peer(c));

	WRITE_ONCE(c->kick_known, seq);
	if (begun)
		kick_later(c);
}

void socksplice_kick_poller(struct socksplice_chan *c)
{
	u32 seq;

	/* The mark before the look; who sends later sees the mark. */
	smp_mb();
	if (!ring_len(&c->ring) || !in_flight(c))
		return;
	seq = socksplice_kick_before(socksplice_chan_peer(c));
	if (!kick_begin(c))
		return;
	/* The caller looks for itself next. All others who wait were told of what came before
	 * by who had the bit until now, or are: by the work, which finds this bit, or by a
	 * sender that has yet to come to it.
	 */
	WRITE_ONCE(c->kick_known, seq);
	kick_later(c);
}

void socksplice_kick_marked(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get_rcu(sk), *peer;
	const struct tcp_sock *tp = tcp_sk(sk);

	smp_mb();	/* the mark before the look; pairs with is_below_mark() of who appends */
	peer = c ? socksplice_chan_peer(c) : NULL;
	/* What tcp_data_ready() has told of it may tell again only where memory was short. */
	if (!peer || !socksplice_rx_ring_unread(sk, c) || sock_flag(sk, SOCK_DONE) ||
	    (int)(tp->rcv_nxt - tp->copied_seq) >= sk->sk_rcvlowat)
		return;
	socksplice_tx_wake_reader(c);
	WRITE_ONCE(peer->kick_known, tp->rcv_nxt);
}

void socksplice_kick_leave(struct socksplice_chan *c)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);

	WRITE_ONCE(peer->left_known, socksplice_kick_before(peer));
	smp_wmb();	/* before c->sk is cleared; pairs with tell_of_arrivals() in drop.c */
}

void socksplice_kick_exit(void)
{
	synchronize_rcu();	/* pollers */
	/* Detached sockets have nothing in flight, so it does not start again. */
	flush_delayed_work(&kick);
}
