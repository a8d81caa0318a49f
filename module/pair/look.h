/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a reader may take now, in order. Shared by rx.c and splice_read.c.
 */
#ifndef SOCKSPLICE_RX_LOOK_H
#define SOCKSPLICE_RX_LOOK_H

#include <net/tcp.h>

#include "pair/end.h"

struct rx_look {
	u32 tcp;	/* first, from TCP; a FIN counts as one */
	u32 ring;	/* then, from the ring; 0 if it is out of reach */
	u32 after;	/* then, from TCP; 0 while ring is */
};

static inline bool rx_chan_is_live(const struct socksplice_chan *c)
{
	return socksplice_chan_peer(c) && !test_bit(CHAN_SHADOW, &c->flags);
}

/* The chan of a locked socket if it is paired and moves data, else NULL. */
static inline struct socksplice_chan *rx_chan(const struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);

	return c && rx_chan_is_live(c) ? c : NULL;
}

/* Exact with the socket locked; without it a snapshot, good for a wake-up. */
static inline void rx_look(const struct sock *sk, const struct socksplice_chan *c,
			   struct rx_look *l)
{
	const struct socksplice_chan *peer = socksplice_chan_peer(c);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 rcv_nxt = READ_ONCE(tp->rcv_nxt);
	u32 copied, used;
	s32 tcp, gap;

	/* rcv_nxt before the ring: what TCP delivers later may be younger than
	 * bytes that a ring seen empty here holds by then. Pairs with the barrier
	 * after the publish in tx_append(): the peer publishes before it hands TCP
	 * anything younger, and the softirq that delivers that is a third party,
	 * to which the release of the head means nothing.
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

static inline u32 rx_look_total(const struct rx_look *l)
{
	return l->tcp + l->ring + l->after;
}

/* True if TCP's next @n bytes hold the urgent mark, which is not read in line:
 * what comes after it does not count as readable yet, as in tcp_inq().
 */
static inline bool socksplice_rx_mark_before(const struct sock *sk, u32 n)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return unlikely(tp->urg_data) && !sock_flag(sk, SOCK_URGINLINE) &&
	       tp->urg_seq - tp->copied_seq < n;
}

/* rx.c and rx_wait.c */

/* A reader that knows of the ring is here: the peer may use the ring, if no call that began
 * before sk_prot was ours is still inside TCP's own functions. Such a call would read past
 * the ring. That nobody is inside is known in one of two ways: nobody was when sk_prot
 * became ours (CHAN_RX_KNOWN), or the current call is the only one on the socket's file
 * (caller.c). Otherwise the peer sends by TCP, and the next reader tries again. Nor is the
 * ring used while the reader is the kernel. The socket is locked, and no reader has its turn.
 */
void socksplice_rx_mark_ready(struct sock *sk, struct socksplice_chan *c);

/* Takes @n bytes off the ring and wakes a writer that waits for them. */
void socksplice_rx_consume(struct sock *sk, struct socksplice_chan *c, u32 n);

/* Until no reader has a turn, see rx.c; returns rx_chan() then. May drop the lock. */
struct socksplice_chan *socksplice_rx_turn_wait(struct sock *sk);

/* Instead of a number of bytes: what TCP wakes a reader for, which is as many as SO_RCVLOWAT
 * says, or fewer where there is no room for more (tcp_epollin_ready()).
 */
#define SOCKSPLICE_RX_MARK	U32_MAX

/* Other than @pos bytes, or the end. Exact with the socket locked. */
bool socksplice_rx_has_more(const struct sock *sk, const struct socksplice_chan *c, u32 pos);

/* Sleeps, after spinning, until there are other than @pos bytes or the end has
 * come; similar to sk_wait_data(). A spurious wake-up ends it, too. Drops the
 * lock: @c may be detached on return. -EPIPE after a disconnect.
 */
int socksplice_rx_wait(struct sock *sk, struct socksplice_chan *c, long *timeo, u32 pos);

/* With nothing to read: what to return, or 1 to wait. */
int socksplice_rx_end(struct sock *sk, long timeo);

/* The same of splice(2) at the urgent mark, which does not wait: no signal counts. */
int socksplice_rx_end_at_mark(struct sock *sk, long timeo);

#endif /* SOCKSPLICE_RX_LOOK_H */
