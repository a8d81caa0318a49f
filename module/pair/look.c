// SPDX-License-Identifier: GPL-2.0
#include <net/tcp.h>

#include "pair/look.h"

int sks_look_inq(struct sock *sk, const struct pair_end *end)
{
	sock_owned_by_me(sk);
	return tcp_inq(sk) + sks_look_ring_unread(sk, end);
}

int sks_look_inq_hint(const struct sock *sk, const struct pair_end *end)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	int inq;

	sock_owned_by_me(sk);
	if (!end)
		return tp->rcv_nxt - tp->copied_seq;
	inq = sks_look_available(sk, end);
	/* A reader may have taken the FIN together with TCP's bytes before the ring's. */
	return inq && sock_flag(sk, SOCK_DONE) && tp->rcv_nxt == tp->copied_seq ? inq + 1 : inq;
}

u32 sks_look_received(const struct sock *sk, bool *told)
{
	const u32 seq = READ_ONCE(tcp_sk(sk)->rcv_nxt);
	int mark;

	/* Between two arrivals the number of unread bytes only falls, and TCP looks again when the
	 * mark is lowered. So if the test below holds now, it held when the last byte arrived, or
	 * TCP has notified the reader since.
	 */
	smp_rmb();
	mark = READ_ONCE(sk->sk_rcvlowat);
	*told = mark <= 1 || (int)(seq - READ_ONCE(tcp_sk(sk)->copied_seq)) >= mark ||
		sock_flag(sk, SOCK_DONE);
	return seq;
}

bool sks_look_at_tcp(const struct pair_end *peer, u32 *seq, bool *told)
{
	const struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk)
		*seq = sks_look_received(psk, told);
	rcu_read_unlock();
	return psk;
}

u32 sks_look_rcv_nxt(const struct pair_end *peer)
{
	bool told;
	u32 seq = 0;

	sks_look_at_tcp(peer, &seq, &told);
	return seq;
}
