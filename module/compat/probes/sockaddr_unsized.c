// SPDX-License-Identifier: GPL-2.0
/* Since 6.19 addresses in proto and proto_ops are struct sockaddr_unsized. */
#include <net/sock.h>

int probe(struct proto *p, struct sock *sk, struct sockaddr_unsized *addr);
int probe(struct proto *p, struct sock *sk, struct sockaddr_unsized *addr)
{
	return p->connect(sk, addr, 0) + p->pre_connect(sk, addr, 0);
}
