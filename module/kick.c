// SPDX-License-Identifier: GPL-2.0
#include <linux/llist.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "chan.h"
#include "kick.h"
#include "rest.h"
#include "tx.h"

#define KICK_INTERVAL	2UL	/* jiffies */

static LLIST_HEAD(pending);	/* chans with CHAN_KICKED, each held with its peer */
static unsigned long interval = KICK_INTERVAL;	/* written by kick_work() only */

static void kick_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(kick, kick_work);

static bool reader_has_mark(const struct socksplice_chan *peer)
{
	const struct sock *psk;
	bool mark;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	mark = psk && READ_ONCE(psk->sk_rcvlowat) > 1;
	rcu_read_unlock();
	return mark;
}

/* Whether the reader's TCP has received anything since the last look. */
static bool has_moved(struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	const struct sock *psk;
	bool moved = true;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk) {
		u32 rcv_nxt = READ_ONCE(tcp_sk(psk)->rcv_nxt);

		moved = rcv_nxt != c->kick_rcv_nxt;
		c->kick_rcv_nxt = rcv_nxt;
	}
	rcu_read_unlock();
	return moved;
}

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
		bool again, moved;

		/* The bit before the look: a sender that finds the bit set has
		 * its bytes seen here, one that does not comes back itself.
		 */
		clear_bit(CHAN_KICKED, &c->flags);
		smp_mb__after_atomic();
		again = in_flight(c) && reader_has_mark(peer);
		/* After that look: what has arrived by then is seen. */
		moved = has_moved(c, peer);
		if (moved || !again)
			socksplice_tx_wake_reader(peer);
		if (again && !test_and_set_bit(CHAN_KICKED, &c->flags))
			kick_later(c);
		else
			socksplice_chan_put(c, peer);
		cond_resched();
	}
	WRITE_ONCE(interval, socksplice_rest(began, KICK_INTERVAL));
}

void socksplice_kick_reader(struct sock *sk, struct socksplice_chan *c)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);

	sock_owned_by_me(sk);
	if (!peer)
		return;
	smp_mb();	/* what was sent before the mark; pairs with that in _kick_poller() */
	if (!reader_has_mark(peer))
		return;
	socksplice_tx_wake_reader(peer);
	if (!test_and_set_bit(CHAN_KICKED, &c->flags)) {
		socksplice_chan_hold(c);
		kick_later(c);
	}
}

void socksplice_kick_poller(struct socksplice_chan *c)
{
	/* The mark before the look; who sends later sees the mark. */
	smp_mb();
	if (ring_len(&c->ring) && in_flight(c) && !test_and_set_bit(CHAN_KICKED, &c->flags)) {
		socksplice_chan_hold(c);
		kick_later(c);
	}
}

void socksplice_kick_exit(void)
{
	synchronize_rcu();	/* pollers */
	/* Detached sockets have nothing in flight, so it does not start again. */
	flush_delayed_work(&kick);
}
