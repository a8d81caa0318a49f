// SPDX-License-Identifier: GPL-2.0
/* Newer kernels tell a ULP's get_info whether the reader has CAP_NET_ADMIN. */
#include <net/tcp.h>

size_t probe(struct tcp_ulp_ops *ops, struct sock *sk, struct sk_buff *skb);
size_t probe(struct tcp_ulp_ops *ops, struct sock *sk, struct sk_buff *skb)
{
	return ops->get_info(sk, skb, true) + ops->get_info_size(sk, true);
}
