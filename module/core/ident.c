// SPDX-License-Identifier: GPL-2.0
#include <linux/netdevice.h>
#include <net/dst.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "core/ident.h"

void sks_ident_addresses(const struct sock *sk, struct ident *id)
{
	const struct inet_sock *inet = inet_sk(sk);

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		id->saddr = sk->sk_v6_rcv_saddr;
		id->daddr = sk->sk_v6_daddr;
	} else
#endif
	{
		ipv6_addr_set_v4mapped(sk->sk_rcv_saddr, &id->saddr);
		ipv6_addr_set_v4mapped(sk->sk_daddr, &id->daddr);
	}
	id->sport = ntohs(inet->inet_sport);
	id->dport = ntohs(inet->inet_dport);
}

/*
 * The initial sequence numbers are not stored. They follow from the state after the first
 * acknowledgement. tcp_ack() counts an active opener's SYN in bytes_acked. A child starts with
 * snd_una one past its SYN and counts none. With data in the handshake a child's number may come
 * out wrong. It then mirrors no other end's.
 */
bool sks_ident_read(const struct sock *sk, bool active, struct ident *id)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 acked = (u32)tp->bytes_acked;

	if (active && !acked)
		return false;	/* the connect failed: nothing was acknowledged */

	id->iss = tp->snd_una - max(acked, 1U);
	id->irs = tp->rcv_nxt - (u32)tp->bytes_received - 1;
	if (id->iss == id->irs)
		return false;	/* only a socket that is connected to itself has equal numbers */

	id->txhash = READ_ONCE(sk->sk_txhash);
#ifdef CONFIG_RPS
	id->rxhash = READ_ONCE(sk->sk_rxhash);
#else
	id->rxhash = 0;
#endif
	id->net = sock_net(sk);
	id->bound_dev_if = sk->sk_bound_dev_if;
	id->transparent = inet_test_bit(TRANSPARENT, sk);
	sks_ident_addresses(sk, id);
	return true;
}

bool sks_ident_is_local(const struct sock *sk)
{
	const struct dst_entry *dst;
	bool local;

	rcu_read_lock();
	dst = __sk_dst_get(sk);
	/* The route to an own address leads to the loopback device, or to the VRF itself. */
	local = dst && (dst->dev->flags & IFF_LOOPBACK || netif_is_l3_master(dst->dev));
	rcu_read_unlock();
	return local;
}
