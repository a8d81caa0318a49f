// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>
#include <net/tcp.h>
#include <net/transp_v6.h>

#include "pair/clone.h"

static struct proto clone_v4, clone_v6;

void sks_taken_over(void)
{
	__module_get(THIS_MODULE);
	pr_warn_once(
		"a socket of ours was taken over by something in the kernel: the module cannot be unloaded any more\n");
}

struct proto *sks_clone_of(bool v6)
{
	return v6 ? &clone_v6 : &clone_v4;
}

bool sks_clone_knows(const struct proto *prot)
{
	return prot == &tcp_prot || prot == &tcpv6_prot;
}

void sks_clone_set(struct sock *sk)
{
	WRITE_ONCE(sk->sk_prot, sks_clone_of(sk->sk_prot == &tcpv6_prot));
}

void sks_clone_unset(struct sock *sk)
{
	/* Leave a struct proto that other code has put there since. That code has kept ours, and
	 * may call it or put it back at any time (OpenVPN's ovpn does).
	 */
	if (sk->sk_prot == &clone_v6)
		WRITE_ONCE(sk->sk_prot, &tcpv6_prot);
	else if (sk->sk_prot == &clone_v4)
		WRITE_ONCE(sk->sk_prot, &tcp_prot);
	else if (!sks_clone_knows(sk->sk_prot))
		sks_taken_over();
}

int __init sks_clone_init(void (*fill)(struct proto *clone))
{
	if (tcp_prot.sendmsg != tcpv6_prot.sendmsg || tcp_prot.recvmsg != tcpv6_prot.recvmsg ||
	    tcp_prot.close != tcpv6_prot.close || tcp_prot.disconnect != tcpv6_prot.disconnect ||
	    tcp_prot.ioctl != tcpv6_prot.ioctl || tcp_prot.setsockopt != tcpv6_prot.setsockopt ||
	    tcp_prot.getsockopt != tcpv6_prot.getsockopt) {
		pr_err("tcp_prot and tcpv6_prot differ on this kernel: not supported\n");
		return -EOPNOTSUPP;
	}
	clone_v4 = tcp_prot;
	clone_v6 = tcpv6_prot;
	fill(&clone_v4);
	fill(&clone_v6);
	return 0;
}
