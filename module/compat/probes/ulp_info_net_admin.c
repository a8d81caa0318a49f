// SPDX-License-Identifier: GPL-2.0
/* Since 6.19 a ULP's get_info gets an argument: whether the reader has CAP_NET_ADMIN. */
#include <net/tcp.h>

size_t probe(struct tcp_ulp_ops *ops, struct sock *sk, struct sk_buff *skb);
size_t probe(struct tcp_ulp_ops *ops, struct sock *sk, struct sk_buff *skb)
{
	return ops->get_info(sk, skb, true) + ops->get_info_size(sk, true);
}
