/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the reader of a socket may take now, in order, and what the socket's TCP has received.
 */
#ifndef SOCKSPLICE_LOOK_H
#define SOCKSPLICE_LOOK_H

#include <net/tcp.h>

#include "core/params.h"
#include "pair/end.h"

struct rx_readable {
	u32 tcp;	/* comes first, from TCP; a FIN counts as one byte */
	u32 ring;	/* comes next, from the ring; 0 if that is out of reach */
	u32 after;	/* comes last, from TCP; 0 while @ring is */
};

static inline bool end_is_live(const struct pair_end *end)
{
	return sks_end_peer(end) && !test_bit(END_SHADOW, &end->flags);
}

/* The end of @sk, which is locked, if it is paired and moves data, else NULL. */
static inline struct pair_end *live_end(const struct sock *sk)
{
	struct pair_end *end = sks_end_get(sk);

	return end && end_is_live(end) ? end : NULL;
}

/* Exact if the socket is locked. Without the lock a snapshot, which is enough for a wake-up. */
static inline void rx_readable(const struct sock *sk, const struct pair_end *end,
			       struct rx_readable *l)
{
	const struct pair_end *peer = sks_end_peer(end);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 rcv_nxt = READ_ONCE(tp->rcv_nxt);
	u32 copied, used;
	s32 tcp, gap;

	/* Load rcv_nxt before the ring. Otherwise bytes that TCP delivers between the loads could
	 * be younger than bytes in a ring that looked empty here. Pairs with the barrier after the
	 * publish in tx_append(): the peer publishes before it gives TCP anything younger. A
	 * release of the head would not do, because the softirq that delivers the younger bytes is
	 * a third party.
	 */
	smp_rmb();
	used = ring_len(&peer->ring);
	copied = READ_ONCE(tp->copied_seq);
	tcp = max_t(s32, rcv_nxt - copied, 0);
	l->ring = 0;
	l->after = 0;
	if (!used) {
		l->tcp = tcp;
		return;
	}
	gap = max_t(s32, READ_ONCE(peer->seq) - copied, 0);
	if (tcp < gap) {
		l->tcp = tcp;
		return;
	}
	l->tcp = gap;
	l->ring = used;
	l->after = tcp - gap;
}

static inline u32 rx_readable_total(const struct rx_readable *l)
{
	return l->tcp + l->ring + l->after;
}

/* Unread bytes in the ring that @end reads, as far as the reader can reach them. */
static inline u32 sks_look_ring_unread(const struct sock *sk, const struct pair_end *end)
{
	struct rx_readable l;

	rx_readable(sk, end, &l);
	return l.ring;
}

/* Bytes that recv(2) would find now, in ring and TCP together. A FIN counts as one. Exact if the
 * socket is locked, else a snapshot.
 */
static inline u32 sks_look_available(const struct sock *sk, const struct pair_end *end)
{
	struct rx_readable l;

	rx_readable(sk, end, &l);
	return rx_readable_total(&l);
}

/* Like sks_look_available(), but as FIONREAD counts: without a FIN, and up to the urgent mark. The
 * socket is locked.
 */
int sks_look_inq(struct sock *sk, const struct pair_end *end);

/* Like sks_look_available(), but as TCP_INQ counts: every byte that has arrived, and a FIN as one.
 * @end may be NULL. The socket is locked.
 */
int sks_look_inq_hint(const struct sock *sk, const struct pair_end *end);

/* The rcv_nxt of @sk. @told: TCP itself has notified its waiters of everything up to there,
 * because its bytes reach the mark or the stream has ended. Under RCU.
 */
u32 sks_look_received(const struct sock *sk, bool *told);

/* Like sks_look_received(), for the socket of @peer. False if that socket is gone. */
bool sks_look_at_tcp(const struct pair_end *peer, u32 *seq, bool *told);

/* The rcv_nxt of the socket of @peer. A sender notes it before it sends by TCP. */
u32 sks_look_rcv_nxt(const struct pair_end *peer);

/* True if the state of @sk lets it send probes (upkeep/probe.h). In any other state it receives
 * nothing new.
 */
static inline bool sks_path_asks(const struct sock *sk)
{
	return (1 << READ_ONCE(sk->sk_state)) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

/* True if a packet from @sk's peer has arrived within the last sks_path_timeout seconds. @sk need
 * not be locked.
 */
static inline bool sks_path_is_fresh(const struct sock *sk)
{
	return tcp_jiffies32 - READ_ONCE(tcp_sk(sk)->rcv_tstamp) <=
	       READ_ONCE(sks_path_timeout) * HZ;
}

#endif /* SOCKSPLICE_LOOK_H */
