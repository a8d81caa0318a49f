// SPDX-License-Identifier: GPL-2.0
#include <linux/poll.h>
#include <net/tcp.h>

#include "core/napi.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "pair/wake.h"

/* True if the readable bytes do not reach the low-water mark. SIGIO and poll report nothing then,
 * as in tcp_data_ready().
 */
static bool is_below_mark(const struct sock *psk, const struct pair_end *peer)
{
	if (likely(READ_ONCE(psk->sk_rcvlowat) <= 1))
		return false;
	/* Publish the bytes before reading the mark. A task that lowers the mark looks at the
	 * bytes afterwards. Pairs with sks_rcvlowat_marked().
	 */
	smp_mb();
	return sks_look_available(psk, peer) < READ_ONCE(psk->sk_rcvlowat);
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

void sks_wake_sleepers(struct sock *sk)
{
	rcu_read_lock();
	wake_for_message(sk, true);
	rcu_read_unlock();
}

void sks_wake_writer(struct pair_end *peer)
{
	struct sock *psk;

	WRITE_ONCE(peer->want_space, 0);
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		wake_for_message(psk, false);
	rcu_read_unlock();
}

void sks_wake(struct sock *psk, struct pair_end *peer)
{
	/* A reader that sleeps in recv(2) may hold some bytes already, so fewer may be enough. */
	if (is_below_mark(psk, peer)) {
		sks_wake_sleepers(psk);
	} else {
		sks_napi_mark(psk);
		peer->data_ready(psk);
	}
}

void sks_wake_reader(struct pair_end *peer)
{
	struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk && !guest_takes_data(peer))
		sks_wake(psk, peer);
	rcu_read_unlock();
}

void sks_close_ring(struct sock *sk, struct pair_end *end)
{
	smp_mb__before_atomic();	/* the append before the bit; pairs with close_ring() */
	set_bit(END_TX_CLOSED, &end->flags);
	/* Wakes writers only: any wake-up would end a recv(2) of no bytes. */
	if (end->sleepers)
		sks_wake_sleepers(sk);
}
