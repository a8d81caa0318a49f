// SPDX-License-Identifier: GPL-2.0
/* Until 7.x proto.recvmsg has an addr_len argument. */
#include <net/sock.h>

int probe(struct proto *p, struct sock *sk, struct msghdr *msg);
int probe(struct proto *p, struct sock *sk, struct msghdr *msg)
{
	int addr_len = 0;

	return p->recvmsg(sk, msg, (size_t)1, 0, &addr_len);
}
