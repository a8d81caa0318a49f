// SPDX-License-Identifier: GPL-2.0
/*
 * The functions of the struct proto that enrolled sockets have. They do what the kernel's own
 * functions do, and take care of the ring.
 *
 * The kernel's functions are taken from tcp_prot, because most of them are not exported.
 * tcpv6_prot has the same ones (sks_clone_init() makes sure of that).
 */
#include <asm/ioctls.h>
#include <linux/sched/signal.h>
#include <linux/sockios.h>
#include <net/tcp.h>

#include "core/inflight.h"
#include "core/slot.h"
#include "datapath/disconnect.h"
#include "datapath/proto.h"
#include "datapath/rx.h"
#include "datapath/tx.h"
#include "datapath/tx_wait.h"
#include "datapath/unpair.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/totals.h"
#include "pair/wake.h"

/* Closes the socket. Unread bytes are lost, and TCP says so with a reset (RFC 2525, 2.17). TCP
 * does not know of unread bytes in the ring. For these we make __tcp_close() send the reset, by a
 * linger time of zero.
 */
static void proto_close(struct sock *sk, long timeout)
{
	struct pair_end *end;
	bool unread = false;

	sks_enter();
	lock_sock(sk);
	end = live_end(sk);
	if (end) {
		set_bit(END_RX_CLOSED, &end->flags);
		/* Set RX_CLOSED before the look at the ring. Pairs with tx_append(). */
		smp_mb__after_atomic();
		unread = sks_look_ring_unread(sk, end);
	}
	release_sock(sk);
	if (unread)
		sock_no_linger(sk);
	tcp_prot.close(sk, timeout);
	sks_leave();
}

/* Called with the socket locked, as tcp_disconnect(). The peer can still read what we sent, as it
 * could what TCP has delivered. What we have not read is gone.
 */
static int proto_disconnect(struct sock *sk, int flags)
{
	int ret;

	sks_enter();
	ret = sks_disconnect(sk, flags, NULL);
	sks_leave();
	return ret;
}

/* Like tcp_ioctl(), but counts the ring's bytes, too. */
static int proto_ioctl(struct sock *sk, int cmd, int *karg)
{
	struct pair_end *end;
	struct rx_readable l;
	int ret;

	sks_enter();
	ret = tcp_prot.ioctl(sk, cmd, karg);
	if (!ret && (cmd == SIOCINQ || cmd == SIOCATMARK)) {
		lock_sock(sk);
		end = live_end(sk);
		if (end) {
			rx_readable(sk, end, &l);
			if (cmd == SIOCATMARK)	/* the mark stands behind the ring */
				*karg = *karg && !l.ring;
			else	/* TCP's part anew, under the same lock */
				*karg = sks_look_inq(sk, end);
		}
		release_sock(sk);
	}
	sks_leave();
	return ret;
}

/*
 * Makes the peer of @end send by TCP from now on. The peer's ring may be closed only while the
 * peer is not in the middle of an append. We cannot take the peer's lock, because a task may hold
 * it across a page fault that never ends. So we set the bit as a softirq would, while no task owns
 * the peer's socket. 0, or -EINTR.
 */
static int close_peers_ring(struct pair_end *end)
{
	struct pair_end *peer = sks_end_peer(end);
	struct sock *psk;

	for (;;) {
		psk = sks_end_trylock(peer);
		if (!psk) {
			smp_rmb();	/* detached, so closed; as in close_ring() of unpair.c */
			return 0;
		}
		if (!IS_ERR(psk)) {
			set_bit(END_TX_CLOSED, &peer->flags);
			sks_end_unlock(psk);
			return 0;
		}
		if (signal_pending(current))
			return -EINTR;
		schedule_timeout_interruptible(1);
	}
}

/* As proto_unpair(), or returns 1 if the socket was connected anew and paired meanwhile. */
static int unpair_once(struct sock *sk)
{
	struct pair_end *end, *peer;
	int err;

	lock_sock(sk);
	end = live_end(sk);
	if (!end) {
		if (sks_end_get(sk))
			sks_end_detach(sk);
		release_sock(sk);
		return 0;
	}
	peer = sks_end_hold(end);
	release_sock(sk);

	err = close_peers_ring(end);
	if (!err) {
		lock_sock(sk);
		sks_tx_wait_turn(sk);	/* on TCP this would wait for the lock */
		if (live_end(sk) != end)
			err = sks_end_get(sk) ? 1 : 0;
		else if (sks_end_is_done(sk, end, peer))
			sks_end_detach(sk);
		else
			err = -EBUSY;
		release_sock(sk);
		/* The peer follows when it has read what we sent it. */
		if (err <= 0)
			sks_unpair_end(end, "setsockopt");
		/* Readers that sleep in our recvmsg wake up, and go on in TCP's. */
		if (!err)
			sks_wake_sleepers(sk);
	}
	sks_end_put(end, peer);
	return err;
}

/*
 * Takes the socket back to plain TCP, for an option that cannot work beside a ring. What the peer
 * has yet to read of our ring stays there for it, before all that TCP carries from now on. What we
 * have yet to read cannot be put back into TCP's queue. So this returns -EBUSY until the
 * application has read it, and while another thread is in the middle of a read. It may also return
 * -EINTR. In any case the pair is on its way back to TCP from here on. May sleep. The socket is
 * not locked.
 */
static int proto_unpair(struct sock *sk)
{
	int err;

	do {
		err = unpair_once(sk);
	} while (err > 0);
	return err;
}

bool sks_proto_wants_plain(const struct sock *sk, int level, int optname, unsigned int optlen)
{
	if (level == SOL_IPV6)
		return optname == IPV6_ADDRFORM && sk->sk_family == AF_INET6 &&
		       optlen >= sizeof(int);
	if (level != SOL_TCP)
		return false;
	return optname == TCP_ULP || (optname == TCP_REPAIR && optlen >= sizeof(int) &&
				      ns_capable_noaudit(sock_net(sk)->user_ns, CAP_NET_ADMIN));
}

static int proto_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			    unsigned int optlen)
{
	int ret = 0;

	sks_enter();
	if (sks_proto_wants_plain(sk, level, optname, optlen))
		ret = proto_unpair(sk);
	if (!ret)
		ret = tcp_prot.setsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

#ifdef CONFIG_MMU
/* TCP_CMSG_TS: the only bit of msg_flags that TCP accepts. */
#define ZEROCOPY_CMSG_TS	2

/* Checks the argument as do_tcp_getsockopt() and tcp_zerocopy_receive() do. It has @len bytes, at
 * least its first three fields. Returns how many of the bytes count, or an error.
 */
static int zerocopy_argument(struct tcp_zerocopy_receive *zc, char __user *optval, int len,
			     int __user *optlen)
{
	int err;

	if (len > (int)sizeof(*zc)) {
		err = check_zeroed_user(optval + sizeof(*zc), len - sizeof(*zc));
		if (err < 1)
			return err ?: -EINVAL;
		len = sizeof(*zc);
		if (put_user(len, optlen))
			return -EFAULT;
	}
	if (copy_from_user(zc, optval, len))
		return -EFAULT;
	if (zc->reserved || (zc->msg_flags & ~ZEROCOPY_CMSG_TS) || !PAGE_ALIGNED(zc->address))
		return -EINVAL;
	return len;
}

/*
 * TCP would map its own pages and skip the ring. So the ring is closed. While it holds bytes, the
 * answer tells the application to read them with recv(2): nothing was mapped, and recv_skip_hint
 * bytes are to be read. Returns 1 if TCP may answer.
 */
static int getsockopt_zerocopy(struct sock *sk, char __user *optval, int __user *optlen)
{
	struct pair_end *end, *peer;
	struct tcp_zerocopy_receive zc = {};
	int len, err;

	if (get_user(len, optlen))
		return -EFAULT;
	if (len < (int)offsetofend(struct tcp_zerocopy_receive, length))
		return 1;

	lock_sock(sk);
	end = sks_rx_turn_wait(sk);
	if (!end) {
		end = sks_end_get(sk);
		if (end)	/* TCP's own function may take bytes after the peer has come */
			set_bit(END_RX_EARLY, &end->flags);
		release_sock(sk);
		return 1;
	}
	peer = sks_end_hold(end);
	release_sock(sk);
	err = close_peers_ring(end);
	if (!err && !ring_len(&peer->ring))
		err = 1;
	if (!err) {
		len = zerocopy_argument(&zc, optval, len, optlen);
		err = min(len, 0);
	}
	if (!err) {
		lock_sock(sk);
		if (live_end(sk) == end) {
			zc.recv_skip_hint = sks_look_inq(sk, end);
			zc.inq = sks_look_inq_hint(sk, end);
		} else {
			err = 1;	/* un-paired, and perhaps in another connection now */
		}
		release_sock(sk);
	}
	sks_end_put(end, peer);
	if (err)
		return err;

	zc.length = 0;
	zc.copybuf_len = 0;
	zc.msg_flags = 0;
	if (len >= (int)offsetofend(struct tcp_zerocopy_receive, err))
		zc.err = sock_error(sk);
	if (copy_to_user(optval, &zc, len))
		return -EFAULT;
	return 0;
}
#endif

/* TCP's answer and what went by ring. Returns 1 if the socket is not paired: TCP may answer. */
static int getsockopt_info(struct sock *sk, char __user *optval, int __user *optlen)
{
	struct tcp_info info;
	struct pair_end *end;
	int len;

	if (get_user(len, optlen))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	tcp_get_info(sk, &info);
	lock_sock(sk);
	/* An end that is detached meanwhile has given its totals to TCP. */
	end = live_end(sk);
	if (end)
		sks_totals_add(end, &info);
	release_sock(sk);
	if (!end)
		return 1;
	len = min_t(unsigned int, len, sizeof(info));
	if (put_user(len, optlen) || copy_to_user(optval, &info, len))
		return -EFAULT;
	return 0;
}

static int proto_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			    int __user *optlen)
{
	int ret = 1;

	sks_enter();
	if (level == SOL_TCP && optname == TCP_ULP)
		ret = sks_slot_getsockopt(sk, optval, optlen);
	else if (level == SOL_TCP && optname == TCP_INFO)
		ret = getsockopt_info(sk, optval, optlen);
#ifdef CONFIG_MMU
	else if (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE)
		ret = getsockopt_zerocopy(sk, optval, optlen);
#endif
	if (ret == 1)
		ret = tcp_prot.getsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

static void fill(struct proto *clone)
{
	clone->sendmsg = sks_tx_sendmsg;
	clone->recvmsg = sks_rx_recvmsg;
	clone->close = proto_close;
	clone->disconnect = proto_disconnect;
	clone->ioctl = proto_ioctl;
	clone->setsockopt = proto_setsockopt;
	clone->getsockopt = proto_getsockopt;
	clone->sock_is_readable = sks_rx_is_readable;
#ifdef CONFIG_BPF_SYSCALL
	/* A sockmap would replace sk_prot behind our back. With NULL it gets -EOPNOTSUPP. */
	clone->psock_update_sk_prot = NULL;
#endif
}

int __init sks_proto_init(void)
{
	return sks_clone_init(fill);
}
