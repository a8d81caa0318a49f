// SPDX-License-Identifier: GPL-2.0
#include <linux/mutex.h>
#include <linux/wait_bit.h>
#include <net/tcp.h>

#include "datapath/disconnect.h"
#include "pair/end.h"
#include "pair/look.h"

struct pair_end *sks_disconnect_wait(struct sock *sk)
{
	struct pair_end *end, *peer;

	sock_owned_by_me(sk);
	while ((end = live_end(sk)) && unlikely(end->disconnecting)) {
		peer = sks_end_hold(end);
		release_sock(sk);
		wait_var_event(&end->disconnecting, !READ_ONCE(end->disconnecting));
		lock_sock(sk);
		sks_end_put(end, peer);
	}
	return end;
}

/* Waits for the reader that has the turn, and for those that wait for it. A later one waits for
 * us. A sender that is in the middle of its call notices the disconnect when it has the lock
 * again.
 */
static void wait_for_readers(struct sock *sk, struct pair_end *end)
{
	sock_owned_by_me(sk);
	WRITE_ONCE(end->disconnecting, true);
	end->rx_taking++;
	while (live_end(sk) == end && end->rx_mid_read) {
		release_sock(sk);
		mutex_lock(&end->rx_mutex);
		mutex_unlock(&end->rx_mutex);
		lock_sock(sk);
	}
	end->rx_taking--;
	/* The core has counted the disconnect already. A task that went to sleep in TCP's own
	 * functions since then has to notice it, too.
	 */
	sk->sk_disconnects++;
}

int sks_disconnect(struct sock *sk, int flags, void (*prepare)(struct sock *sk))
{
	struct pair_end *end = live_end(sk), *peer = NULL;
	int ret;

	/* Another task's disconnect comes first. The socket may be in another connection then, with
	 * other functions, and what has begun there has to notice this disconnect. As nobody
	 * disconnects it now, the call below does not come here again.
	 */
	if (end && end->disconnecting) {
		sks_disconnect_wait(sk);
		sk->sk_disconnects++;
		return READ_ONCE(sk->sk_prot)->disconnect(sk, flags);
	}
	if (end && end->rx_mid_read) {
		peer = sks_end_hold(end);
		wait_for_readers(sk, end);
	}
	if (prepare)
		prepare(sk);
	if (sks_end_get(sk))
		sks_end_detach(sk);
	ret = tcp_prot.disconnect(sk, flags);
	if (peer) {
		WRITE_ONCE(end->disconnecting, false);
		smp_mb();	/* before wake_up_var() looks for waiters */
		wake_up_var(&end->disconnecting);
		sks_end_put(end, peer);
	}
	return ret;
}
