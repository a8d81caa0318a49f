// SPDX-License-Identifier: GPL-2.0
/*
 * The functions of a socket that has an endpoint.
 *
 * Our proto_ops have the owner of those that they replace. So the close of the socket drops the
 * reference that was taken with the original ones. inflight.h has what keeps our text.
 */
#include <linux/kmemleak.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <net/inet_common.h>
#include <net/tcp.h>
#include <net/transp_v6.h>

#include "compat/compat.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "datapath/disconnect.h"
#include "datapath/proto.h"
#include "datapath/rx.h"
#include "datapath/splice_read.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "sosplice/endpoint.h"
#include "sosplice/endpoint_ops.h"
#include "sosplice/finish.h"
#include "sosplice/splice.h"

/* Init fills these. NULL where there is no IPv6. Ours are never freed. accept() gives a new socket
 * the ops of the socket that it is called on, without a reference on us. Only then does it find
 * out that the socket does not listen.
 */
static const struct proto_ops *base_ops[FAMILIES], *source_ops[FAMILIES], *sink_ops[FAMILIES];
static struct proto prots[2][ROLES][FAMILIES];	/* first index: paired */

/* PAIR's functions. They also serve a socket that is not paired, or no longer. */
static const struct proto *paired_prot;

/* Called while the socket's spinlock is held and the socket is still owned. */
static void endpoint_release_cb(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_get(sk);

	tcp_prot.release_cb(sk);
	if (end && end->wanted) {
		end->wanted = false;
		sks_endpoint_queue(end);
	}
}

/* With a wake function of our own evict.c can tell our sleepers from TCP's. */
static int reader_wake(struct wait_queue_entry *wq, unsigned int mode, int sync, void *key)
{
	return woken_wake_function(wq, mode, sync, key);
}

int sks_endpoint_reader_wait(struct sock *sk, bool nonblock)
{
	DEFINE_WAIT_FUNC(wait, reader_wake);
	struct splice_endpoint *end;
	long timeo;
	int err = 0;

	lock_sock(sk);
	timeo = sock_rcvtimeo(sk, nonblock);
	add_wait_queue(sk_sleep(sk), &wait);
	for (;;) {
		end = sks_endpoint_of(sk);
		if (!end || !end->out)
			break;
		if (!timeo)
			err = -EAGAIN;
		else if (signal_pending(current))
			err = sock_intr_errno(timeo);
		if (err)
			break;
		release_sock(sk);
		timeo = wait_woken(&wait, TASK_INTERRUPTIBLE, timeo);
		lock_sock(sk);
	}
	remove_wait_queue(sk_sleep(sk), &wait);
	release_sock(sk);
	return err || nonblock ? err : sks_hook_restart(sk);
}

/* Has @read, a recvmsg, read once the splice has ended. */
static int read_behind_splice(typeof(tcp_prot.recvmsg) read, struct sock *sk, struct msghdr *msg,
			      size_t len, int flags COMPAT_ADDR_LEN_PARAM)
{
	int ret = 0;

	sks_enter();
	if (!(flags & (MSG_ERRQUEUE | MSG_OOB)))
		ret = sks_endpoint_reader_wait(sk, flags & MSG_DONTWAIT);
	if (!ret)
		ret = read(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	sks_leave();
	return ret;
}

static int source_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			  int flags COMPAT_ADDR_LEN_PARAM)
{
	return read_behind_splice(tcp_prot.recvmsg, sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
}

/* PAIR's function knows of the ring. */
static int paired_source_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
				 int flags COMPAT_ADDR_LEN_PARAM)
{
	return read_behind_splice(sks_rx_recvmsg, sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
}

static ssize_t source_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
				  size_t len, unsigned int flags)
{
	ssize_t ret;

	sks_enter();
	ret = sks_endpoint_reader_wait(sock->sk, sock->file->f_flags & O_NONBLOCK);
	/* The hook lets calls from this module pass. */
	if (!ret && sks_pair_owns(sock->sk))
		ret = sks_pair_splice_read(sock, ppos, pipe, len, flags);
	else if (!ret)
		ret = inet_stream_ops.splice_read(sock, ppos, pipe, len, flags);
	sks_leave();
	return ret;
}

/* One look by @poll. False if the splice has ended meanwhile. */
static bool look_at_source(poll_function poll, struct file *file, struct socket *sock,
			   poll_table *wait, __poll_t *mask)
{
	struct splice_endpoint *end;
	struct splice *before = NULL, *after = NULL;
	unsigned int moves = 0;

	rcu_read_lock();
	end = sks_endpoint_of_rcu(sock->sk);
	if (end) {
		before = READ_ONCE(end->out);
		moves = smp_load_acquire(&end->err_moves);	/* pairs with err_back */
	}
	rcu_read_unlock();

	*mask = poll(file, sock, wait);	/* queues the poller first, then looks; may sleep */

	rcu_read_lock();
	smp_rmb();	/* sk_err before err_moves; pairs with err_out */
	end = sks_endpoint_of_rcu(sock->sk);
	if (end)
		after = smp_load_acquire(&end->out);	/* pairs with sks_splice_end() */
	if (after)
		*mask &= ~(EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLHUP);
	if (end && (moves & 1 || moves != READ_ONCE(end->err_moves)))
		*mask |= EPOLLERR;
	rcu_read_unlock();
	return after || !before;
}

__poll_t sks_endpoint_poll(poll_function poll, struct file *file, struct socket *sock,
			   poll_table *wait)
{
	__poll_t mask;

	sks_enter();
	/* A splice has ended during the look: what @poll saw before it may have been moved, and it
	 * may have missed the error. The poller is queued, so the next look has no @wait.
	 */
	while (!look_at_source(poll, file, sock, wait, &mask))
		wait = NULL;
	sks_leave();
	return mask;
}

static __poll_t hooked_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	return sks_endpoint_poll(tcp_poll, file, sock, wait);
}

int sks_endpoint_set_rcvlowat(struct sock *sk, int val)
{
	struct splice_endpoint *end = sks_endpoint_of(sk);
	int ret = inet_stream_ops.set_rcvlowat(sk, val);

	if (end && end->lowat_hidden) {
		end->rcvlowat = sk->sk_rcvlowat;
		WRITE_ONCE(sk->sk_rcvlowat, 1);
	}
	return ret;
}

static void hooked_close(struct sock *sk, long timeout)
{
	struct splice_endpoint *end;

	sks_enter();
	lock_sock(sk);
	end = sks_endpoint_get(sk);
	if (end)
		sks_splice_detach_on_close(sk, end);
	release_sock(sk);
	paired_prot->close(sk, timeout);
	sks_leave();
}

static void end_splices(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_get(sk);

	if (end) {
		sks_splice_detach_on_close(sk, end);
		sks_endpoint_detach(sk);
	}
}

/* Called with the socket locked. */
static int endpoint_disconnect(struct sock *sk, int flags)
{
	int ret;

	sks_enter();
	ret = sks_disconnect(sk, flags, end_splices);
	sks_leave();
	return ret;
}

/* Some options need the ULP slot, or a socket that nothing else uses. They get it if the socket
 * has no splice, else -EBUSY.
 */
static int endpoint_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			       unsigned int optlen)
{
	int ret = 0;

	sks_enter();
	if (sks_proto_wants_plain(sk, level, optname, optlen))
		ret = sks_endpoint_make_plain(sk);
	if (!ret)
		ret = paired_prot->setsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

bool sks_endpoint_hides(struct sock *sk, int level, int optname)
{
	const struct splice_endpoint *end;
	bool source;

	if (level != SOL_TCP || optname != TCP_ZEROCOPY_RECEIVE)
		return false;
	lock_sock(sk);
	end = sks_endpoint_of(sk);
	source = end && end->out;
	release_sock(sk);
	return source;
}

static int endpoint_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			       int __user *optlen)
{
	int ret = -EBUSY;

	sks_enter();
	if (!sks_endpoint_hides(sk, level, optname))
		ret = paired_prot->getsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

enum family sks_endpoint_ops_family(const struct proto *prot)
{
	enum family f;
	int role;

	for (f = 0; f < FAMILIES; f++)
		for (role = 0; role < ROLES; role++)
			if (prot == &prots[false][role][f] || prot == &prots[true][role][f])
				return f;
	return FAMILIES;
}

bool sks_endpoint_ops_are_plain(const struct socket *sock)
{
	return sock->ops && (sock->ops == base_ops[V4] || sock->ops == base_ops[V6]);
}

void sks_endpoint_ops_claim(struct sock *sk, enum family f)
{
	WRITE_ONCE(sk->sk_prot, &prots[!!sks_end_get(sk)][RESTING][f]);
}

void sks_endpoint_ops_set(struct sock *sk, enum role role)
{
	const struct proto_ops **ops = role == RESTING ? base_ops :
				       role == SOURCE  ? source_ops :
							 sink_ops;
	struct socket *sock = sk->sk_socket;	/* NULL once the socket is closed */
	int f = sks_endpoint_ops_family(sk->sk_prot);

	if (f < FAMILIES)
		WRITE_ONCE(sk->sk_prot, &prots[!!sks_end_get(sk)][role][f]);
	/* A v4-mapped socket has the ops of its own family, not of its struct proto's. */
	for (f = 0; sock && f < FAMILIES; f++) {
		if (base_ops[f] && (sock->ops == source_ops[f] || sock->ops == sink_ops[f] ||
				    sock->ops == base_ops[f])) {
			WRITE_ONCE(sock->ops, ops[f]);
			break;
		}
	}
}

static void __init make_protos(bool paired, int f, const struct proto *base)
{
	struct proto *rest = &prots[paired][RESTING][f], *sink = &prots[paired][SINK][f];
	struct proto *source = &prots[paired][SOURCE][f];

	*rest = *base;
	rest->disconnect = endpoint_disconnect;
	rest->setsockopt = endpoint_setsockopt;
	rest->getsockopt = endpoint_getsockopt;
#ifdef CONFIG_BPF_SYSCALL
	rest->psock_update_sk_prot = NULL;	/* no sockmap: -EOPNOTSUPP */
#endif
	*sink = *rest;
	sink->close = hooked_close;
	sink->release_cb = endpoint_release_cb;
	*source = *sink;
	source->recvmsg = paired ? paired_source_recvmsg : source_recvmsg;
}

int __init sks_endpoint_ops_learn(enum family f, const struct socket *sock)
{
	const struct proto_ops *base = sock->ops;
	struct proto_ops *ops = kmalloc_array(2, sizeof(*ops), GFP_KERNEL);

	if (!ops)
		return -ENOMEM;
	kmemleak_not_leak(ops);
	ops[0] = *base;		/* this includes the owner */
	ops[0].poll = hooked_poll;
	/* Text of the kernel. With any other function a socket that was disconnected meanwhile,
	 * and listens, could make a child that has our ops and no endpoint.
	 */
	ops[0].accept = sock_no_accept;
	ops[1] = ops[0];
	ops[1].splice_read = source_splice_read;
	ops[1].set_rcvlowat = sks_endpoint_set_rcvlowat;
	base_ops[f] = base;
	sink_ops[f] = &ops[0];
	source_ops[f] = &ops[1];
	return 0;
}

int __init sks_endpoint_ops_init(void)
{
	if (tcp_prot.release_cb != tcpv6_prot.release_cb) {
		pr_err("tcp_prot and tcpv6_prot differ on this kernel: not supported\n");
		return -EOPNOTSUPP;
	}
	make_protos(false, V4, &tcp_prot);
	make_protos(false, V6, &tcpv6_prot);
	make_protos(true, V4, sks_clone_of(false));
	make_protos(true, V6, sks_clone_of(true));
	paired_prot = sks_clone_of(false);
	return 0;
}
