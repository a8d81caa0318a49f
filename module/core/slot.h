/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ULP slot of a socket, by which it is ours: icsk_ulp_ops and icsk_ulp_data. Two rooms
 * put something there: pair/ the end of a pair, splice/ the endpoint of a splice.
 */
#ifndef SOCKSPLICE_SLOT_H
#define SOCKSPLICE_SLOT_H

#include <linux/rcupdate.h>
#include <net/inet_connection_sock.h>

/* The first member of whatever icsk_ulp_data points to. A task that looks without the
 * socket's lock may find one where the other was a moment ago.
 */
enum slot_kind {
	SLOT_PAIR,
	SLOT_SPLICE,
	SLOT_KINDS,
};

/* What icsk_ulp_ops of a socket of ours points to. Set by sks_slot_register(), and
 * constant from then on. Never freed: a getsockopt(TCP_ULP) that TCP began before the socket
 * was ours holds no reference, and may stay in a page fault, about to read the name, for as
 * long as its user likes.
 */
extern const struct tcp_ulp_ops *sks_slot_ulp[SLOT_KINDS];

/* Has @ops serve the slots of @kind. 0, or -ENOMEM. Called once, before the first is filled. */
int sks_slot_register(enum slot_kind kind, const struct tcp_ulp_ops *ops);

static inline bool slot_is_ours(const struct tcp_ulp_ops *ops)
{
	return ops == sks_slot_ulp[SLOT_PAIR] || ops == sks_slot_ulp[SLOT_SPLICE];
}

/* What the slot of @sk holds if it is of @kind, else NULL. The socket is locked. */
static inline void *sks_slot_get(const struct sock *sk, enum slot_kind kind)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);

	if (READ_ONCE(icsk->icsk_ulp_ops) != sks_slot_ulp[kind])
		return NULL;
	return (__force void *)rcu_access_pointer(icsk->icsk_ulp_data);
}

/* Fills the empty slot of @sk, which is locked. Data first: a task that sees our ops finds
 * the data.
 */
static inline void sks_slot_fill(struct sock *sk, enum slot_kind kind, void *data)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	rcu_assign_pointer(icsk->icsk_ulp_data, data);
	smp_store_release(&icsk->icsk_ulp_ops, sks_slot_ulp[kind]);
}

/* Empties the slot of @sk, which is locked. Ops before data, for sks_slot_get_rcu().
 * The caller gives TCP's struct proto back after this: a getsockopt(TCP_ULP) that finds TCP's
 * function finds no ULP of ours there.
 */
static inline void sks_slot_clear(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	WRITE_ONCE(icsk->icsk_ulp_ops, NULL);
	smp_wmb();
	RCU_INIT_POINTER(icsk->icsk_ulp_data, NULL);
}

/* What the slot holds, without the socket's lock, under rcu_read_lock(). Once the ops are
 * cleared, the slot may become another ULP's: the data are ours only if the ops are ours
 * before and after. A slot that went to another ULP never comes back. A pair's end hands the
 * slot to its guest by the data alone, so that one of the two is found at any time.
 */
static inline enum slot_kind *sks_slot_get_rcu(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);
	enum slot_kind *slot;

	if (!slot_is_ours(smp_load_acquire(&icsk->icsk_ulp_ops)))	/* pairs with _fill() */
		return NULL;
	slot = (__force void *)rcu_dereference(icsk->icsk_ulp_data);
	smp_rmb();	/* pairs with _clear() */
	return slot_is_ours(READ_ONCE(icsk->icsk_ulp_ops)) ? slot : NULL;
}

#endif /* SOCKSPLICE_SLOT_H */
