/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ULP slot of a socket: icsk_ulp_ops and icsk_ulp_data. A socket whose slot holds ops of ours
 * is ours. Two rooms fill slots: pair/ with the end of a pair, sosplice/ with the endpoint of a
 * splice.
 *
 * The room core/ holds what every other room builds on: the slot, the ring, the hooks, what keeps
 * the module's text, identities, parameters, counters and tracepoints. Every room may call it. It
 * calls no other room: it reaches them through the tables that they register, such as struct
 * hook_client.
 */
#ifndef SOCKSPLICE_SLOT_H
#define SOCKSPLICE_SLOT_H

#include <linux/rcupdate.h>
#include <net/inet_connection_sock.h>

/* The first member of the struct that icsk_ulp_data points to. A task that reads the slot without
 * the socket's lock may find one kind where it found the other before.
 */
enum slot_kind {
	SLOT_PAIR,
	SLOT_SPLICE,
	SLOT_KINDS,
};

/* What icsk_ulp_ops of a socket of ours points to. sks_slot_register() sets it, and it is constant
 * from then on. It is never freed: where getsockopt(TCP_ULP) could not be hooked (hook.h), a call
 * that is in a page fault may read the name much later.
 */
extern const struct tcp_ulp_ops *sks_slot_ulp[SLOT_KINDS];

/* Makes a copy of @ops serve the slots of @kind. Returns 0, or -ENOMEM. Called once, before the
 * first slot is filled.
 */
int sks_slot_register(enum slot_kind kind, const struct tcp_ulp_ops *ops);

/* Serves getsockopt(TCP_ULP) on @sk as do_tcp_getsockopt() would, but reads the slot once. To an
 * application a slot of ours is empty. Not locked; may sleep.
 */
int sks_slot_getsockopt(const struct sock *sk, char __user *optval, int __user *optlen);

static inline bool slot_is_ours(const struct tcp_ulp_ops *ops)
{
	return ops == sks_slot_ulp[SLOT_PAIR] || ops == sks_slot_ulp[SLOT_SPLICE];
}

/* What the slot of @sk holds if that is of @kind, else NULL. The socket is locked. */
static inline void *sks_slot_get(const struct sock *sk, enum slot_kind kind)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);

	if (READ_ONCE(icsk->icsk_ulp_ops) != sks_slot_ulp[kind])
		return NULL;
	return (__force void *)rcu_access_pointer(icsk->icsk_ulp_data);
}

/* Fills the empty slot of @sk, which is locked. The data come first, so a task that sees our ops
 * finds the data.
 */
static inline void sks_slot_fill(struct sock *sk, enum slot_kind kind, void *data)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	rcu_assign_pointer(icsk->icsk_ulp_data, data);
	smp_store_release(&icsk->icsk_ulp_ops, sks_slot_ulp[kind]);
}

/* Empties the slot of @sk, which is locked. The ops go before the data, for sks_slot_get_rcu().
 * Only after this does the caller put TCP's struct proto back. So where getsockopt(TCP_ULP) could
 * not be hooked, a call that finds TCP's function there finds no ULP of ours.
 */
static inline void sks_slot_clear(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	WRITE_ONCE(icsk->icsk_ulp_ops, NULL);
	smp_wmb();
	RCU_INIT_POINTER(icsk->icsk_ulp_data, NULL);
}

/* What the slot holds, read under rcu_read_lock() without the socket's lock. Once the ops are
 * cleared, another ULP may take the slot. So the data are ours only if the ops are ours before and
 * after. A slot that went to another ULP never comes back to us. A pair's end hands the slot to
 * its guest by changing the data alone, so a reader finds one of the two at any time.
 */
static inline enum slot_kind *sks_slot_get_rcu(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);
	enum slot_kind *slot;

	if (!slot_is_ours(smp_load_acquire(&icsk->icsk_ulp_ops)))	/* pairs with
									 * sks_slot_fill()
									 */
		return NULL;
	slot = (__force void *)rcu_dereference(icsk->icsk_ulp_data);
	smp_rmb();	/* pairs with sks_slot_clear() */
	return slot_is_ours(READ_ONCE(icsk->icsk_ulp_ops)) ? slot : NULL;
}

#endif /* SOCKSPLICE_SLOT_H */
