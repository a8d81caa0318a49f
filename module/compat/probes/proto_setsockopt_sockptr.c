// SPDX-License-Identifier: GPL-2.0
/* proto.setsockopt takes its value as a sockptr_t. */
#include <net/sock.h>

int probe(struct proto *p, struct sock *sk, sockptr_t val);
int probe(struct proto *p, struct sock *sk, sockptr_t val)
{
	return p->setsockopt(sk, 0, 0, val, 4u);
}
