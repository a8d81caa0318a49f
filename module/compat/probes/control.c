// SPDX-License-Identifier: GPL-2.0
/* Compiles on every kernel: proves that the other probes fail for their own reason. */
#include <linux/module.h>
#include <linux/skmsg.h>
#include <net/tcp.h>

int probe(struct sock *sk);
int probe(struct sock *sk)
{
	return tcp_sk(sk)->rcv_nxt;
}
