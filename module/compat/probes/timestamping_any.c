// SPDX-License-Identifier: GPL-2.0
/* Newer kernels have a socket flag for a reader that wants the time stamps of SO_TIMESTAMPING. */
#include <net/sock.h>

bool probe(const struct sock *sk);
bool probe(const struct sock *sk)
{
	return sock_flag(sk, SOCK_TIMESTAMPING_ANY);
}
