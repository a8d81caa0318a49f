/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The guest of an end: the endpoint of a splice (SO_SPLICE) on a socket that is paired. The
 * socket's ULP slot holds the end. So pair/ calls the guest when the socket dies or data arrive.
 */
#ifndef SOCKSPLICE_GUEST_H
#define SOCKSPLICE_GUEST_H

#include "pair/end.h"

struct guest_ops {
	/* The end is detached and the socket lives on. Takes the slot, and gives the socket a
	 * struct proto that knows of no ring. The socket is locked.
	 */
	void (*inherit)(struct sock *sk, struct splice_endpoint *guest);

	/* The socket is being destroyed. Any context. */
	void (*release)(struct sock *sk, struct splice_endpoint *guest);

	/* Bytes were appended to the ring that @end reads. True if a splice takes them. Called
	 * under RCU.
	 */
	bool (*takes_data)(const struct pair_end *end);

	/* True if the socket's callbacks are the guest's. Exact under sk_callback_lock. */
	bool (*has_callbacks)(const struct sock *sk, const struct splice_endpoint *guest);
};

/* sks_guest_register() writes it, once, before any socket has a guest. */
extern const struct guest_ops *sks_guest_ops;

void sks_guest_register(const struct guest_ops *ops);

/* sks_endpoint_claim() publishes the complete guest with release, the partner of this acquire. */
static inline struct splice_endpoint *guest_of(const struct pair_end *end)
{
	return smp_load_acquire(&end->guest);
}

static inline bool guest_takes_data(const struct pair_end *end)
{
	return unlikely(guest_of(end)) && sks_guest_ops->takes_data(end);
}

/* The slow path of sks_callbacks_are_known(), for when its test without a lock says no. */
bool sks_guest_has_callbacks(const struct pair_end *end, const struct sock *sk);

/* True if the callbacks of @sk, the socket of @end, are those of its enrolment or those of its
 * guest. Any context.
 */
static inline bool sks_callbacks_are_known(const struct pair_end *end, const struct sock *sk)
{
	return likely(READ_ONCE(sk->sk_data_ready) == end->data_ready &&
		      !READ_ONCE(sk->sk_user_data)) ||
	       sks_guest_has_callbacks(end, sk);
}

#endif /* SOCKSPLICE_GUEST_H */
