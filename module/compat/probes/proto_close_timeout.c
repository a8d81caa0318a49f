// SPDX-License-Identifier: GPL-2.0
/* proto.close has a timeout argument. */
#include <net/sock.h>

void probe(struct proto *p, struct sock *sk);
void probe(struct proto *p, struct sock *sk)
{
	p->close(sk, 0L);
}
