// SPDX-License-Identifier: GPL-2.0
#include <net/sock.h>

#include "pair/guest.h"

const struct guest_ops *sks_guest_ops __ro_after_init;

void __init sks_guest_register(const struct guest_ops *ops)
{
	sks_guest_ops = ops;
}

static bool are_known(const struct pair_end *end, const struct sock *sk)
{
	struct splice_endpoint *guest = guest_of(end);

	return (READ_ONCE(sk->sk_data_ready) == end->data_ready && !READ_ONCE(sk->sk_user_data)) ||
	       (guest && sks_guest_ops->has_callbacks(sk, guest));
}

bool sks_guest_has_callbacks(const struct pair_end *end, const struct sock *sk)
{
	struct sock *lock = (struct sock *)sk;
	bool known = are_known(end, sk);

	if (likely(known))
		return true;
	/* A splice may be replacing the callbacks, or putting TCP's back. Look again under the
	 * lock.
	 */
	read_lock_bh(&lock->sk_callback_lock);
	known = are_known(end, sk);
	read_unlock_bh(&lock->sk_callback_lock);
	return known;
}
