// SPDX-License-Identifier: GPL-2.0
#include <linux/poll.h>
#include <net/tcp.h>

#include "pair/guest.h"
#include "pair/look.h"
#include "pair/wake.h"

/* SIGIO and poll report nothing below the mark (tcp_data_ready()). */
static bool is_below_mark(const struct sock *psk, const struct socksplice_chan *peer)
{
	if (likely(READ_ONCE(psk->sk_rcvlowat) <= 1))
		return false;
	/* The bytes before the mark. A task that lowers the mark looks at the bytes then. */
	smp_mb();
	return socksplice_look_available(psk, peer) < READ_ONCE(psk->sk_rcvlowat);
}

static void wake_for_message(struct sock *sk, bool sync)
{
	struct socket_wq *wq = rcu_dereference(sk->sk_wq);

	if (!skwq_has_sleeper(wq))
		return;
	if (sync)
		wake_up_interruptible_sync_poll(&wq->wait, EPOLLMSG);
	else
		wake_up_interruptible_poll(&wq->wait, EPOLLMSG);
}

void socksplice_wake_sleepers(struct sock *sk)
{
	rcu_read_lock();
	wake_for_message(sk, true);
	rcu_read_unlock();
}

void socksplice_wake_writer(struct socksplice_chan *peer)
{
	struct sock *psk;

	WRITE_ONCE(peer->want_space, 0);
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		wake_for_message(psk, false);
	rcu_read_unlock();
}

void socksplice_wake(struct sock *psk, struct socksplice_chan *peer)
{
	/* A reader that sleeps in recv(2) may have taken some bytes already. */
	if (is_below_mark(psk, peer))
		socksplice_wake_sleepers(psk);
	else
		peer->data_ready(psk);
}

void socksplice_wake_reader(struct socksplice_chan *peer)
{
	struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk && !guest_takes_data(peer))
		socksplice_wake(psk, peer);
	rcu_read_unlock();
}

void socksplice_close_ring(struct sock *sk, struct socksplice_chan *c)
{
	smp_mb__before_atomic();	/* after the last append */
	set_bit(CHAN_TX_CLOSED, &c->flags);
	/* Not for readers: a receive of no bytes ends with any wake-up. */
	if (c->sleepers)
		socksplice_wake_sleepers(sk);
}
