// SPDX-License-Identifier: GPL-2.0
#include <linux/sched/mm.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "datapath/rx.h"
#include "datapath/tx.h"
#include "pair/end.h"
#include "pair/look.h"
#include "sosplice/paired_io.h"

bool socksplice_leg_enter(struct sock *sk)
{
	struct socksplice_chan *c = rx_chan(sk);

	sock_owned_by_me(sk);
	if (!c)
		return true;
	/* He has looked, and reads up to where the ring was then; or waits to, and may
	 * have the first part of what he reads.
	 */
	if (c->rx_between || c->rx_taking)
		return false;
	if (rcu_access_pointer(sk->sk_wq))
		socksplice_rx_mark_ready(sk, c);
	return true;
}

bool socksplice_leg_cap(const struct sock *sk, u32 *limit)
{
	const struct socksplice_chan *c = rx_chan(sk);
	struct rx_look l;

	sock_owned_by_me(sk);
	if (!c)
		return false;
	rx_look(sk, c, &l);
	*limit = min(*limit, l.tcp ? : l.ring);
	return !l.tcp && l.ring;
}

unsigned int socksplice_leg_fill(const struct sock *sk, struct bio_vec *bv, unsigned int max,
				 u32 limit, u32 *len)
{
	struct ring *r = &socksplice_chan_peer(rx_chan(sk))->ring;
	unsigned int n = 0;
	u32 done = 0, seg;

	sock_owned_by_me(sk);
	limit = min(limit, ring_used(r, limit));
	while (done < limit && n < max) {
		void *p = ring_read_seg(r, done, &seg);

		seg = min(seg, limit - done);
		bvec_set_virt(&bv[n++], p, seg);
		done += seg;
	}
	*len = done;
	return n;
}

void socksplice_leg_ring_done(struct sock *sk, u32 n)
{
	socksplice_rx_consume(sk, rx_chan(sk), n);
	socksplice_stat_add(SOCKSPLICE_STAT_so_splice_from_ring_bytes, n);
}

void socksplice_leg_tcp_done(struct sock *sk, u32 n)
{
	struct socksplice_chan *c = rx_chan(sk), *peer;

	sock_owned_by_me(sk);
	tcp_read_done(sk, n);
	if (!c)
		return;
	peer = socksplice_chan_peer(c);
	WRITE_ONCE(peer->tcp_taken, peer->tcp_taken + n);
}

u32 socksplice_leg_unread(const struct sock *sk)
{
	const struct socksplice_chan *c = rx_chan(sk);

	sock_owned_by_me(sk);
	return c ? socksplice_look_ring_unread(sk, c) : 0;
}

bool socksplice_leg_must_wait(struct sock *sk)
{
	struct socksplice_chan *c = rx_chan(sk);

	sock_owned_by_me(sk);
	return c && c->tx_between;
}

int socksplice_leg_send(struct sock *sk, struct msghdr *msg, size_t len,
			struct mem_cgroup *memcg)
{
	struct socksplice_chan *c = rx_chan(sk);
	struct mem_cgroup *old;
	u64 before;
	int ret;

	sock_owned_by_me(sk);
	if (!c)
		return tcp_sendmsg_locked(sk, msg, len);
	before = c->ring_bytes;		/* nobody waits, so the lock is kept, and @c with it */
	old = set_active_memcg(memcg);
	ret = socksplice_tx_sendmsg_locked(sk, msg, false);	/* the source is locked, too */
	set_active_memcg(old);
	socksplice_stat_add(SOCKSPLICE_STAT_so_splice_to_ring_bytes, c->ring_bytes - before);
	return ret;
}
