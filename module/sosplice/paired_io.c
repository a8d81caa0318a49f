// SPDX-License-Identifier: GPL-2.0
#include <linux/sched/mm.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "datapath/rx.h"
#include "datapath/tx.h"
#include "pair/end.h"
#include "pair/look.h"
#include "sosplice/paired_io.h"

bool sks_paired_io_enter(struct sock *sk)
{
	struct pair_end *paired = live_end(sk);

	sock_owned_by_me(sk);
	if (!paired)
		return true;
	/* Another reader has looked, and reads up to the place of the ring at that time. Or it
	 * waits to, and may have the first part of what it reads.
	 */
	if (paired->rx_mid_read || paired->rx_taking)
		return false;
	if (rcu_access_pointer(sk->sk_wq))
		sks_rx_mark_ready(sk, paired);
	return true;
}

bool sks_paired_io_cap(const struct sock *sk, u32 *limit)
{
	const struct pair_end *paired = live_end(sk);
	struct rx_readable l;

	sock_owned_by_me(sk);
	if (!paired)
		return false;
	rx_readable(sk, paired, &l);
	*limit = min(*limit, l.tcp ?: l.ring);
	return !l.tcp && l.ring;
}

unsigned int sks_paired_io_fill(const struct sock *sk, struct bio_vec *bv, unsigned int max,
				u32 limit, u32 *len)
{
	struct ring *r = &sks_end_peer(live_end(sk))->ring;
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

void sks_paired_io_ring_done(struct sock *sk, u32 n)
{
	sks_rx_consume(sk, live_end(sk), n);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_from_ring_bytes, n);
}

void sks_paired_io_tcp_done(struct sock *sk, u32 n)
{
	struct pair_end *paired = live_end(sk), *peer;

	sock_owned_by_me(sk);
	tcp_read_done(sk, n);
	if (!paired)
		return;
	peer = sks_end_peer(paired);
	WRITE_ONCE(peer->tcp_taken, peer->tcp_taken + n);
}

u32 sks_paired_io_unread(const struct sock *sk)
{
	const struct pair_end *paired = live_end(sk);

	sock_owned_by_me(sk);
	return paired ? sks_look_ring_unread(sk, paired) : 0;
}

bool sks_paired_io_must_wait(struct sock *sk)
{
	struct pair_end *paired = live_end(sk);

	sock_owned_by_me(sk);
	return paired && (paired->tx_mid_message || paired->disconnecting);
}

int sks_paired_io_send(struct sock *sk, struct msghdr *msg, size_t len, struct mem_cgroup *memcg)
{
	struct pair_end *paired = live_end(sk);
	struct mem_cgroup *old;
	u64 before;
	int ret;

	sock_owned_by_me(sk);
	if (!paired)
		return tcp_sendmsg_locked(sk, msg, len);
	before = paired->ring_bytes;	/* no wait: the lock is kept, and so is @paired */
	old = set_active_memcg(memcg);
	ret = sks_tx_sendmsg_locked(sk, msg, false);	/* false: no wait, because the source is
							 * locked, too
							 */
	set_active_memcg(old);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_to_ring_bytes, paired->ring_bytes - before);
	return ret;
}
