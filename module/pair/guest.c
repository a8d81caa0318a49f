// SPDX-License-Identifier: GPL-2.0
#include <net/sock.h>

#include "pair/guest.h"

const struct guest_ops *socksplice_guest_ops __ro_after_init;

void __init socksplice_guest_register(const struct guest_ops *ops)
{
	socksplice_guest_ops = ops;
}

static bool are_known(const struct socksplice_chan *c, const struct sock *sk)
{
	struct soend *guest = guest_of(c);

	return (READ_ONCE(sk->sk_data_ready) == c->data_ready && !READ_ONCE(sk->sk_user_data)) ||
	       (guest && socksplice_guest_ops->has_callbacks(sk, guest));
}

bool socksplice_guest_has_callbacks(const struct socksplice_chan *c, const struct sock *sk)
{
	struct sock *lock = (struct sock *)sk;
	bool known = are_known(c, sk);

	if (likely(known))
		return true;
	/* A splice may be replacing the callbacks, or putting TCP's back. */
	read_lock_bh(&lock->sk_callback_lock);
	known = are_known(c, sk);
	read_unlock_bh(&lock->sk_callback_lock);
	return known;
}
