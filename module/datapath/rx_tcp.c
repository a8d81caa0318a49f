// SPDX-License-Identifier: GPL-2.0
#include <linux/sched/signal.h>
#include <net/compat.h>
#include <net/tcp.h>

#include "core/hook.h"
#include "core/params.h"
#include "datapath/rx.h"
#include "datapath/rx_tcp.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/look.h"

/* TCP has something to report that it had not when rcv_nxt was @seen. */
static bool tcp_has_news(const struct sock *sk, u32 seen)
{
	return tcp_sk(sk)->rcv_nxt != seen || sk->sk_err || sock_flag(sk, SOCK_DONE) ||
	       (sk->sk_shutdown & RCV_SHUTDOWN) || sk->sk_state == TCP_CLOSE;
}

bool sks_rx_tcp_is_over(const struct sock *sk, const struct rx_turn *turn, size_t len, u32 seen)
{
	return !len && turn->slept &&
	       (!turn->timeo || signal_pending(current) || tcp_has_news(sk, seen));
}

void sks_rx_put_inq(struct sock *sk, struct msghdr *msg, int inq, bool control)
{
	/* As in tcp_inq_hint(): 1 has the application read on, and find the end of the stream. */
	if (!inq && sock_flag(sk, SOCK_DONE))
		inq = 1;
	msg->msg_inq = inq;
	if (control)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(inq), &inq);
}

void sks_rx_unput_inq(struct msghdr *msg, const struct rx_turn *turn)
{
	const size_t odd = turn->controllen % sizeof(long);
	size_t space = CMSG_SPACE(sizeof(int)), what = offsetof(struct cmsghdr, cmsg_level);
	int is[2];	/* level and type */
	void *at;

	BUILD_BUG_ON(offsetof(struct cmsghdr, cmsg_type) - offsetof(struct cmsghdr, cmsg_level) !=
		     sizeof(int));
	/* put_cmsg() leaves out padding that has no room. */
	if (!msg->msg_controllen && odd)
		space -= sizeof(long) - odd;
#ifdef CONFIG_COMPAT
	if (msg->msg_flags & MSG_CMSG_COMPAT) {
		space = sizeof(struct compat_cmsghdr) + sizeof(int);
		what = offsetof(struct compat_cmsghdr, cmsg_level);
	}
#endif
	if (turn->controllen < msg->msg_controllen + space)
		return;
	at = msg->msg_control - space;
	if (!msg->msg_control_is_user)
		memcpy(is, at + what, sizeof(is));
	else if (copy_from_user(is, (void __user *)(at + what), sizeof(is)))
		return;
	if (is[0] != SOL_TCP || is[1] != TCP_CM_INQ)
		return;
	msg->msg_control = at;
	msg->msg_controllen += space;
}

/* For a call that has read nothing: restarts its system call if that would find another
 * recvmsg than ours. It would not if another part of the kernel has put ours back, which it
 * had saved. Returns 0 if the call goes on.
 */
static int enter_again(const struct sock *sk)
{
	return READ_ONCE(sk->sk_prot)->recvmsg == sks_rx_recvmsg ? 0 : sks_hook_restart(sk);
}

/* The call has no time-out. A time-out would begin anew in a call that is restarted. */
static bool is_endless(const struct sock *sk, const struct rx_turn *turn)
{
	return turn->timeo == MAX_SCHEDULE_TIMEOUT &&
	       READ_ONCE(sk->sk_rcvtimeo) == MAX_SCHEDULE_TIMEOUT;
}

/* Waits until TCP has something to report, for what is left of the time-out. Returns 0 if TCP
 * is to be called, 1 if a receive of no bytes is over, or what a call that has read nothing
 * returns. Similar to the loop of tcp_splice_read().
 *
 * A reader that sleeps here holds the module for as long as its peer is silent. So it looks once
 * a second whether the socket is still ours. If not, it restarts its system call, which
 * finds TCP's function. A call with a time-out does so only once pairing is switched off.
 */
static int wait_unpaired(struct sock *sk, struct rx_turn *turn, size_t len, u32 seen)
{
	sock_owned_by_me(sk);
	if (sk->sk_disconnects != turn->disconnects)
		return -EPIPE;
	for (;;) {
		const long slice = min_t(long, turn->timeo, HZ);
		long left = slice;
		int ret = 0;

		if (sks_rx_tcp_is_over(sk, turn, len, seen))
			return 1;
		if (tcp_has_news(sk, seen))
			return 0;
		if (!turn->timeo)
			return -EAGAIN;
		if (signal_pending(current))
			return sock_intr_errno(turn->timeo);
		if (!READ_ONCE(sks_pairing) || is_endless(sk, turn))
			ret = enter_again(sk);
		if (!ret)
			ret = min(sk_wait_data(sk, &left, skb_peek_tail(&sk->sk_receive_queue)), 0);
		if (ret)
			return ret;
		turn->slept = true;
		if (turn->timeo != MAX_SCHEDULE_TIMEOUT)
			turn->timeo -= slice - left;
	}
}

/* Calls TCP's function for what is left of the call's time-out, which would begin anew there:
 * the wait is ours, and TCP's function does not block. What ended the wait may be gone by
 * then, or be nothing for this reader: then the reader waits again. A call that wants more than
 * a byte waits for the first one here and for the rest in TCP's function.
 */
static int recvmsg_in_time(struct sock *sk, struct msghdr *msg, size_t len,
			   int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	const bool any = sock_rcvlowat(sk, flags & MSG_WAITALL, len) == 1;
	int ret, inq;
	u32 seen;

	lock_sock(sk);
	seen = tcp_sk(sk)->copied_seq;
	for (;;) {
		ret = wait_unpaired(sk, turn, len, seen);
		seen = tcp_sk(sk)->rcv_nxt;
		inq = sks_look_inq_hint(sk, NULL);
		release_sock(sk);
		if (ret)
			break;
		ret = tcp_prot.recvmsg(sk, msg, len,
				       any ? flags | MSG_DONTWAIT : flags COMPAT_ADDR_LEN_ARG);
		/* TCP's function looks at the state before it drops the lock. So the socket was
		 * disconnected between our sleep and its look.
		 */
		if (ret == -ENOTCONN && READ_ONCE(sk->sk_disconnects) != turn->disconnects)
			return -EPIPE;
		if (!any || ret != -EAGAIN)
			return ret;
		/* With a signal pending, TCP takes nothing at the urgent mark, not even the mark.
		 * What follows the mark, a FIN for example, would be news for ever.
		 */
		if (signal_pending(current))
			return turn->timeo ? sock_intr_errno(turn->timeo) : ret;
		lock_sock(sk);
	}
	if (ret < 0)
		return ret;
	if (turn->inq_control || msg->msg_get_inq)
		sks_rx_put_inq(sk, msg, inq, turn->inq_control);
	return 0;
}

/* In TCP's function the call would sleep with our frame below it, and a silent peer would hold
 * the module for ever. So the call sleeps in our function, which it can leave once the socket
 * is no longer ours. Three kinds of calls go to TCP's function at once: one that does not block;
 * one under TCP_REPAIR, for which TCP's function does not sleep; and one with a time-out that
 * wants more than a byte, because only TCP's function counts the time of all its parts.
 */
int sks_rx_tcp_unpaired(struct sock *sk, struct pair_end *end, struct msghdr *msg, size_t len,
			int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	const bool in_parts = sock_rcvlowat(sk, flags & MSG_WAITALL, len) != 1;
	const bool in_ours = turn->timeo && !tcp_sk(sk)->repair &&
			     !(in_parts && turn->timeo != MAX_SCHEDULE_TIMEOUT);
	struct pair_end *peer = sks_end_hold(end);
	int ret;

	sock_owned_by_me(sk);
	end->tcp_readers++;
	release_sock(sk);
	if (in_ours)
		ret = recvmsg_in_time(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, turn);
	else
		ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	lock_sock(sk);
	end->tcp_readers--;
	sks_end_put(end, peer);
	sks_end_detach_if_unmatched(sk);
	return ret;
}

/* A call without a time-out is restarted and finds TCP's function. */
int sks_rx_tcp_pass(struct sock *sk, struct msghdr *msg, size_t len,
		    int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	int ret = 0;

	if (turn->timeo && !is_endless(sk, turn))
		return recvmsg_in_time(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, turn);
	if (!turn->timeo)
		flags |= MSG_DONTWAIT;
	else
		ret = enter_again(sk);
	return ret ?: tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
}

int sks_rx_tcp_urgent(struct sock *sk, struct rx_turn *turn, struct msghdr *msg, size_t len,
		      int flags COMPAT_ADDR_LEN_PARAM)
{
	const bool told = tcp_sk(sk)->recvmsg_inq;
	struct pair_end *end;
	int ret, inq;

	/* TCP does not wait for an urgent byte. But where SO_BUSY_POLL says so, it would spin. */
	flags |= MSG_DONTWAIT;
	ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	lock_sock(sk);
	end = live_end(sk);
	inq = sks_look_inq_hint(sk, end);
	if (end)
		sks_unpair_end(end, "urgent");
	release_sock(sk);
	if (end && ret >= 0 && (told || msg->msg_get_inq)) {
		if (told && !(msg->msg_flags & MSG_CTRUNC))
			sks_rx_unput_inq(msg, turn);
		sks_rx_put_inq(sk, msg, inq, told);
	}
	return ret;
}
