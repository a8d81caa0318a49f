/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The guest of a pair: the endpoint of a splice (SO_SPLICE) on a socket that is paired. Its
 * slot is the pair's, so pair/ calls the guest where the socket's end or data concern it.
 */
#ifndef SOCKSPLICE_GUEST_H
#define SOCKSPLICE_GUEST_H

#include "pair/end.h"

struct guest_ops {
	/* The pair has ended and the socket lives on: takes the slot, and gives the socket a
	 * struct proto that knows no ring. The socket is locked.
	 */
	void (*inherit)(struct sock *sk, struct splice_endpoint *guest);

	/* The socket is being destroyed. Any context. */
	void (*release)(struct sock *sk, struct splice_endpoint *guest);

	/* Bytes were appended to the ring towards @end: true if a splice takes them. Under RCU. */
	bool (*takes_data)(const struct pair_end *end);

	/* Whether the socket's callbacks are the guest's. Exact under sk_callback_lock. */
	bool (*has_callbacks)(const struct sock *sk, const struct splice_endpoint *guest);
};

/* Written by sks_guest_register(), once, before any socket has a guest. */
extern const struct guest_ops *sks_guest_ops;

void sks_guest_register(const struct guest_ops *ops);

/* The guest is published whole by the endpoint's claim, with release. */
static inline struct splice_endpoint *guest_of(const struct pair_end *end)
{
	return smp_load_acquire(&end->guest);
}

static inline bool guest_takes_data(const struct pair_end *end)
{
	return unlikely(guest_of(end)) && sks_guest_ops->takes_data(end);
}

/* The same as sks_callbacks_are_known(), where its test without a lock says no. */
bool sks_guest_has_callbacks(const struct pair_end *end, const struct sock *sk);

/* True if the callbacks of @sk, the socket of @end, are those that were found at its enrolment,
 * or those of its guest. Any context.
 */
static inline bool sks_callbacks_are_known(const struct pair_end *end,
					   const struct sock *sk)
{
	return likely(READ_ONCE(sk->sk_data_ready) == end->data_ready &&
		      !READ_ONCE(sk->sk_user_data)) ||
	       sks_guest_has_callbacks(end, sk);
}

#endif /* SOCKSPLICE_GUEST_H */
