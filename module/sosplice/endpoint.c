// SPDX-License-Identifier: GPL-2.0
/*
 * The hooks of a socket at an end of a splice.
 *
 * While it has a splice, four of its callbacks, sk_user_data, its struct proto and its
 * struct proto_ops are ours:
 *   - the callbacks wake the mover (callbacks.h);
 *   - sk_user_data says to others in the kernel (KCM, sunrpc) that the callbacks have an
 *     owner; none of its flag bits is set, so TCP and BPF take it for nothing of theirs;
 *   - a source's recvmsg and splice(2) wait for the splice to end, and its poll shows
 *     nothing to read; who reads a sink is in the functions it had before, so that
 *     nobody who sleeps there holds the module for the splice's sake;
 *   - close and disconnect end the splices.
 * On a paired socket the struct proto's functions go on to those of PAIR, which know of
 * the ring; paired_io.h has what a splice does with that.
 * When its last splice has ended, all are the kernel's again but for a struct proto
 * that keeps the ULP slot invisible: the slot stays ours until the socket is closed,
 * for the count that getsockopt(SO_SPLICE) tells.
 *
 * Our proto_ops carry the owner of those they replace. Whoever closes the socket thus
 * drops the reference that was taken with the original; inflight.h has what keeps our text.
 */
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <net/inet_common.h>
#include <net/tcp.h>
#include <net/transp_v6.h>

#include "compat/compat.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "core/stats.h"
#include "datapath/proto.h"
#include "datapath/rx.h"
#include "datapath/splice_read.h"
#include "pair/look.h"
#include "sosplice/callbacks.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"

enum { V4, V6, FAMILIES };

/* A socket between splices, a sink that is no source, a source. */
enum role { RESTING, SINK, SOURCE, ROLES };

/* Filled by init. NULL where there is no IPv6. Ours are never freed: accept() gives a new
 * socket the ops of the one that it is called on, before it has found out that this does
 * not listen, and without a reference on us.
 */
static const struct proto_ops *base_ops[FAMILIES], *source_ops[FAMILIES], *sink_ops[FAMILIES];
static struct proto prots[2][ROLES][FAMILIES];	/* first: paired */

/* PAIR's functions, which do for a socket that is not, or no longer, paired. */
static const struct proto *paired_prot;

static struct order soends;
static u64 soends_drop_until;		/* those up to this number are to be detached */
static DEFINE_SPINLOCK(soends_lock);	/* the two above, soend->all */

static void queue_both(const struct soend *end)
{
	if (end->out)
		socksplice_mover_queue(end->out);
	if (end->in)
		socksplice_mover_queue(end->in);
}

/* The socket's spinlock is held; it is still owned. */
static void soend_release_cb(struct sock *sk)
{
	struct soend *end = socksplice_soend_get(sk);

	tcp_prot.release_cb(sk);
	if (end && end->wanted) {
		end->wanted = false;
		queue_both(end);
	}
}

bool socksplice_soend_trylock(struct sock *sk)
{
	struct soend *end;

	spin_lock_bh(&sk->sk_lock.slock);
	if (sock_owned_by_user_nocheck(sk)) {
		/* The owner may be taking it off. */
		rcu_read_lock();
		end = socksplice_soend_get_rcu(sk);
		if (end)
			end->wanted = true;
		rcu_read_unlock();
		spin_unlock_bh(&sk->sk_lock.slock);
		return false;
	}
	sk->sk_lock.owned = 1;
	spin_unlock_bh(&sk->sk_lock.slock);
	mutex_acquire(&sk->sk_lock.dep_map, 0, 1, _RET_IP_);
	return true;
}

/* Our own wake function tells our sleepers from TCP's; see evict.c. */
static int reader_wake(struct wait_queue_entry *wq, unsigned int mode, int sync, void *key)
{
	return woken_wake_function(wq, mode, sync, key);
}

/* Returns with the socket not locked: 0 once it is no splice's source, or the error
 * that a read comes to. Who might sleep then is sent to enter the call again, by the
 * function that the socket has now: in TCP's, called from ours, the module would be
 * held meanwhile.
 */
static int reader_wait(struct sock *sk, bool nonblock)
{
	DEFINE_WAIT_FUNC(wait, reader_wake);
	struct soend *end;
	long timeo;
	int err = 0;

	lock_sock(sk);
	timeo = sock_rcvtimeo(sk, nonblock);
	add_wait_queue(sk_sleep(sk), &wait);
	for (;;) {
		end = socksplice_soend_get(sk);
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
	return err || nonblock ? err : socksplice_hook_restart(sk);
}

static int source_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			  int flags COMPAT_ADDR_LEN_PARAM)
{
	int ret = 0;

	socksplice_enter();
	if (!(flags & (MSG_ERRQUEUE | MSG_OOB)))
		ret = reader_wait(sk, flags & MSG_DONTWAIT);
	if (!ret)
		ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	socksplice_leave();
	return ret;
}

/* The ring's bytes are read by its own function. */
static int paired_source_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
				 int flags COMPAT_ADDR_LEN_PARAM)
{
	int ret = 0;

	socksplice_enter();
	if (!(flags & (MSG_ERRQUEUE | MSG_OOB)))
		ret = reader_wait(sk, flags & MSG_DONTWAIT);
	if (!ret)
		ret = socksplice_rx_recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	socksplice_leave();
	return ret;
}

static ssize_t source_splice_read(struct socket *sock, loff_t *ppos,
				  struct pipe_inode_info *pipe, size_t len,
				  unsigned int flags)
{
	ssize_t ret;

	socksplice_enter();
	ret = reader_wait(sock->sk, sock->file->f_flags & O_NONBLOCK);
	/* Calls from here pass the hook. */
	if (!ret && socksplice_pair_owns(sock->sk))
		ret = socksplice_pair_splice_read(sock, ppos, pipe, len, flags);
	else if (!ret)
		ret = inet_stream_ops.splice_read(sock, ppos, pipe, len, flags);
	socksplice_leave();
	return ret;
}

void socksplice_soend_err_out(struct soend *end)
{
	sock_owned_by_me(end->sk);
	WRITE_ONCE(end->err_moves, end->err_moves + 1);
	smp_wmb();	/* before it goes from sk_err; pairs with hooked_poll() */
}

void socksplice_soend_err_back(struct soend *end)
{
	sock_owned_by_me(end->sk);
	smp_store_release(&end->err_moves, end->err_moves + 1);
}

/* tcp_poll() looks at the receive queue, where the mover leaves what the sink has no
 * room for; and at an end of stream that the splice has yet to reach.
 */
static __poll_t hooked_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	unsigned int moves = 0;
	struct soend *end;
	__poll_t mask;

	socksplice_enter();
	rcu_read_lock();
	end = socksplice_soend_get_rcu(sock->sk);
	if (end)
		moves = smp_load_acquire(&end->err_moves);	/* see err_back */
	rcu_read_unlock();

	mask = tcp_poll(file, sock, wait);	/* enqueues first, then looks; may sleep */

	rcu_read_lock();
	smp_rmb();	/* sk_err before err_moves: see err_out */
	end = socksplice_soend_get_rcu(sock->sk);
	if (end && READ_ONCE(end->out))
		mask &= ~(EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLHUP);
	if (end && (moves & 1 || moves != READ_ONCE(end->err_moves)))
		mask |= EPOLLERR;
	rcu_read_unlock();
	socksplice_leave();
	return mask;
}

/* As for what socksplice_soend_update() hides. Locked. */
static int source_set_rcvlowat(struct sock *sk, int val)
{
	struct soend *end = socksplice_soend_get(sk);
	int ret = inet_stream_ops.set_rcvlowat(sk, val);

	if (end && end->lowat_hidden) {
		end->rcvlowat = sk->sk_rcvlowat;
		WRITE_ONCE(sk->sk_rcvlowat, 1);
	}
	return ret;
}

static void hooked_close(struct sock *sk, long timeout)
{
	struct soend *end;

	socksplice_enter();
	lock_sock(sk);
	end = socksplice_soend_get(sk);
	if (end)
		socksplice_sosplice_leave(sk, end);
	release_sock(sk);
	paired_prot->close(sk, timeout);
	socksplice_leave();
}

/* Called with the socket locked. */
static int soend_disconnect(struct sock *sk, int flags)
{
	struct soend *end;
	int ret;

	socksplice_enter();
	socksplice_rx_turn_wait(sk);	/* may drop the lock; proto_disconnect() does not then */
	end = socksplice_soend_get(sk);
	if (end) {
		socksplice_sosplice_leave(sk, end);
		socksplice_soend_detach(sk);
	}
	ret = (socksplice_chan_get(sk) ? paired_prot : &tcp_prot)->disconnect(sk, flags);
	socksplice_leave();
	return ret;
}

/* What needs the ULP slot or a socket that nobody else uses gets it if the socket has
 * no splice, else -EBUSY.
 */
static int soend_setsockopt(struct sock *sk, int level, int optname,
			    sockptr_t optval, unsigned int optlen)
{
	struct soend *end;
	int ret = 0;

	socksplice_enter();
	if (socksplice_proto_wants_plain(sk, level, optname, optlen)) {
		lock_sock(sk);
		end = socksplice_soend_get(sk);
		if (end)
			socksplice_sosplice_tidy(sk, end);
		if (end && (end->out || end->in))
			ret = -EBUSY;
		else if (end)
			socksplice_soend_detach(sk);
		release_sock(sk);
	}
	if (!ret)
		ret = paired_prot->setsockopt(sk, level, optname, optval, optlen);
	socksplice_leave();
	return ret;
}

static int soend_getsockopt(struct sock *sk, int level, int optname,
			    char __user *optval, int __user *optlen)
{
	struct soend *end;
	bool source = false;
	int ret;

	socksplice_enter();
	if (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE) {
		lock_sock(sk);
		end = socksplice_soend_get(sk);
		source = end && end->out;
		release_sock(sk);
	}
	ret = source ? -EBUSY : paired_prot->getsockopt(sk, level, optname, optval, optlen);
	socksplice_leave();
	return ret;
}

/* Nothing in the kernel reads this socket, or has redirected it otherwise. Final under
 * sk_callback_lock.
 */
static bool is_plain(const struct sock *sk)
{
	const struct proto_ops *ops = sk->sk_socket->ops;

	return !READ_ONCE(sk->sk_user_data) && socksplice_callbacks_are_plain(sk) &&
	       ops && (ops == base_ops[V4] || ops == base_ops[V6]);
}

bool socksplice_soend_has_callbacks(const struct sock *sk, const struct soend *end)
{
	return end && READ_ONCE(sk->sk_user_data) == end && socksplice_callbacks_are_ours(sk);
}

static enum role role_of(const struct soend *end)
{
	return end->out ? SOURCE : end->in ? SINK : RESTING;
}

/* Whose struct proto is one of ours, or FAMILIES. */
static int family_of(const struct proto *prot)
{
	int role, f;

	for (f = 0; f < FAMILIES; f++)
		for (role = 0; role < ROLES; role++)
			if (prot == &prots[false][role][f] || prot == &prots[true][role][f])
				return f;
	return FAMILIES;
}

/* Unless somebody else has put others there since. */
static void set_functions(struct sock *sk, enum role role)
{
	const struct proto_ops **ops = role == RESTING ? base_ops :
				       role == SOURCE ? source_ops : sink_ops;
	struct socket *sock = sk->sk_socket;	/* NULL once it is closed */
	int f = family_of(sk->sk_prot);

	if (f < FAMILIES)
		WRITE_ONCE(sk->sk_prot, &prots[!!socksplice_chan_get(sk)][role][f]);
	/* A v4-mapped socket has the ops of its family, not of its struct proto. */
	for (f = 0; sock && f < FAMILIES; f++) {
		if (base_ops[f] && (sock->ops == source_ops[f] || sock->ops == sink_ops[f] ||
				    sock->ops == base_ops[f])) {
			WRITE_ONCE(sock->ops, ops[f]);
			break;
		}
	}
}

/* As a sink, until socksplice_soend_update(). False if somebody else came first. */
static bool hook(struct sock *sk, struct soend *end)
{
	bool plain_sk;

	write_lock_bh(&sk->sk_callback_lock);
	plain_sk = is_plain(sk);
	if (plain_sk) {
		rcu_assign_sk_user_data(sk, end);
		socksplice_callbacks_set(sk);
	}
	write_unlock_bh(&sk->sk_callback_lock);
	if (!plain_sk)
		return false;
	end->hooked = true;
	set_functions(sk, SINK);
	return true;
}

/* Only what is still ours, not what somebody else has put there since. */
static void unhook(struct sock *sk, struct soend *end)
{
	bool ours;

	end->hooked = false;
	write_lock_bh(&sk->sk_callback_lock);
	ours = socksplice_soend_has_callbacks(sk, end);
	socksplice_callbacks_clear(sk);
	if (READ_ONCE(sk->sk_user_data) == end)
		rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	/* Who does not ask sk_user_data (iSCSI) may have kept ours, to put them back at
	 * any time: our text has to stay.
	 */
	if (!ours)
		socksplice_proto_taken_over();
	set_functions(sk, RESTING);
}

void socksplice_soend_update(struct sock *sk, struct soend *end)
{
	const bool want = end->out || end->in;

	sock_owned_by_me(sk);
	WARN_ON_ONCE(want && !end->hooked);
	if (want)
		set_functions(sk, role_of(end));
	else if (end->hooked)
		unhook(sk, end);

	/* TCP tells of what arrives only from the mark on. */
	if (end->out && !end->lowat_hidden) {
		end->rcvlowat = sk->sk_rcvlowat;
		WRITE_ONCE(sk->sk_rcvlowat, 1);
	} else if (!end->out && end->lowat_hidden) {
		WRITE_ONCE(sk->sk_rcvlowat, end->rcvlowat);
	}
	end->lowat_hidden = end->out;
}

static void soend_end(struct soend *end)
{
	WARN_ON_ONCE(end->out || end->in);
	spin_lock_bh(&soends_lock);
	order_del(&soends, &end->all);
	spin_unlock_bh(&soends_lock);
	kfree_rcu(end, rcu);
	socksplice_detached();
}

static void restore_prot(struct sock *sk)
{
	const int f = family_of(sk->sk_prot);

	if (f == FAMILIES) {
		/* As socksplice_proto_restore() has it. */
		if (!socksplice_proto_known(sk->sk_prot) &&
		    sk->sk_prot != socksplice_proto_paired(false) &&
		    sk->sk_prot != socksplice_proto_paired(true))
			socksplice_proto_taken_over();
		return;
	}
	if (socksplice_chan_get(sk))
		WRITE_ONCE(sk->sk_prot, socksplice_proto_paired(f == V6));
	else
		WRITE_ONCE(sk->sk_prot, f == V6 ? &tcpv6_prot : &tcp_prot);
}

/* The splices have ended when the socket was closed, unless it was by somebody who has
 * replaced our struct proto.
 */
void socksplice_soend_release(struct sock *sk, struct soend *end)
{
	socksplice_sosplice_abandon(end);
	if (end->hooked)
		unhook(sk, end);
	restore_prot(sk);
	soend_end(end);
}

/* tcp_cleanup_ulp(), in softirq too: the core clears the slot's ops and drops the
 * module reference.
 */
static void ulp_release(struct sock *sk)
{
	struct soend *end = socksplice_soend_get(sk);

	RCU_INIT_POINTER(inet_csk(sk)->icsk_ulp_data, NULL);
	socksplice_soend_release(sk, end);
}

void socksplice_soend_inherit(struct sock *sk, struct soend *end)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	sock_owned_by_me(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, end);
	WRITE_ONCE(icsk->icsk_ulp_ops, socksplice_soend_ulp);
	set_functions(sk, role_of(end));
}

void socksplice_soend_detach(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct socksplice_chan *c = socksplice_chan_get(sk);
	struct soend *end = socksplice_soend_get(sk);

	sock_owned_by_me(sk);
	if (c) {
		WRITE_ONCE(c->end, NULL);
	} else {
		/* Ops before data and sk_prot: as in socksplice_chan_detach(). */
		WRITE_ONCE(icsk->icsk_ulp_ops, NULL);
		smp_wmb();
		RCU_INIT_POINTER(icsk->icsk_ulp_data, NULL);
	}
	restore_prot(sk);
	soend_end(end);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

/* Whose struct proto an end can stand in for, or FAMILIES. */
static int claimable(const struct sock *sk, const struct socksplice_chan *c)
{
	int f;

	if (!c && (inet_csk(sk)->icsk_ulp_ops || sk_is_mptcp(sk) || tcp_sk(sk)->repair))
		return FAMILIES;
	for (f = 0; f < FAMILIES; f++) {
		const struct proto *plain_prot = f == V6 ? &tcpv6_prot : &tcp_prot;

		if (sk->sk_prot == (c ? socksplice_proto_paired(f == V6) : plain_prot))
			return f;
	}
	return FAMILIES;
}

int socksplice_soend_claim(struct sock *sk, struct soend **spare)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct soend *end = socksplice_soend_get(sk);
	struct socksplice_chan *c;
	int f;

	sock_owned_by_me(sk);
	if (sk->sk_state == TCP_LISTEN)
		return -EOPNOTSUPP;
	if (sk->sk_state == TCP_CLOSE || !sk->sk_socket)
		return -ENOTCONN;
	/* SMC hands options on to a socket of its own, whose callbacks it then takes. */
	if (sk->sk_kern_sock)
		return -EINVAL;
	if (end && end->hooked)
		return socksplice_soend_has_callbacks(sk, end) ? 0 : -EINVAL;
	if (!is_plain(sk))
		return -EINVAL;
	if (end)
		return hook(sk, end) ? 0 : -EINVAL;
	c = socksplice_chan_get(sk);
	if (c && !rx_chan(sk)) {
		socksplice_chan_detach(sk);
		c = NULL;
	}
	f = claimable(sk, c);
	if (f == FAMILIES)
		return -EINVAL;
	/* The caller's system call holds the module. */
	if (WARN_ON_ONCE(!socksplice_attached()))
		return -EINVAL;
	end = *spare;
	*spare = NULL;
	end->slot = SLOT_SOEND;
	end->sk = sk;
	spin_lock_bh(&soends_lock);
	order_add(&soends, &end->all);
	spin_unlock_bh(&soends_lock);
	if (c) {
		smp_store_release(&c->end, end);
	} else {
		rcu_assign_pointer(icsk->icsk_ulp_data, end);
		smp_store_release(&icsk->icsk_ulp_ops, socksplice_soend_ulp);
	}
	WRITE_ONCE(sk->sk_prot, &prots[!!c][RESTING][f]);
	/* If not, it rests. */
	return hook(sk, end) ? 0 : -EINVAL;
}

void socksplice_soend_wake(struct sock *sk)
{
	sock_owned_by_me(sk);
	if (!rcu_access_pointer(sk->sk_wq))
		return;
	/* soend->out is NULL before they look at a ring: who appends to it looks the other
	 * way round, and wakes them himself (paired_io.h). Pairs with tx_append().
	 */
	smp_mb();
	/* Whatever they wait for: our poll has hidden the end of the stream, too. */
	wake_up_interruptible_all(sk_sleep(sk));
	if (!skb_queue_empty(&sk->sk_receive_queue) || sk->sk_shutdown & RCV_SHUTDOWN ||
	    socksplice_leg_unread(sk))
		socksplice_callbacks_plain_ready(sk);	/* SIGIO */
}

static const struct tcp_ulp_ops ulp_ops = {
	.name		= "so_splice",
	.owner		= THIS_MODULE,
	.release	= ulp_release,
};

const struct tcp_ulp_ops *socksplice_soend_ulp __ro_after_init;

#define DROP_BATCH	256
#define DROP_AGAIN	(HZ / 50 ? : 1)		/* jiffies */

static void drop_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(drop, drop_work);

/* Sockets of ends to be detached, behind number *@last, held. An end leaves the order
 * before its socket loses the last reference.
 */
static unsigned int drop_collect(struct sock **sk, u64 *last)
{
	struct order_node *o;
	unsigned int n = 0;

	spin_lock_bh(&soends_lock);
	for (o = order_behind(&soends, *last); o && o->number <= soends_drop_until;
	     o = order_next(o)) {
		struct soend *end = container_of(o, struct soend, all);

		if (n == DROP_BATCH)
			break;
		*last = o->number;
		if (refcount_inc_not_zero(&end->sk->sk_refcnt))
			sk[n++] = end->sk;
	}
	spin_unlock_bh(&soends_lock);
	return n;
}

/* True if there is nothing left to do for this socket. */
static bool drop_one(struct sock *sk)
{
	struct soend *end;
	bool done = true;

	if (!socksplice_soend_trylock(sk))
		return false;
	end = socksplice_soend_get(sk);
	if (end && !end->out && !end->in) {
		socksplice_soend_detach(sk);
	} else if (end) {
		if (end->out)
			set_bit(SOSPLICE_DROP, &end->out->flags);
		queue_both(end);
		done = false;
	}
	release_sock(sk);
	return done;
}

static void drop_work(struct work_struct *work)
{
	static struct sock *batch[DROP_BATCH];	/* this work's only */
	bool again = false;
	unsigned int n, i;
	u64 last = 0;

	do {
		n = drop_collect(batch, &last);
		for (i = 0; i < n; i++) {
			again |= !drop_one(batch[i]);
			sock_put(batch[i]);
		}
		cond_resched();
	} while (n == DROP_BATCH);
	if (again)
		schedule_delayed_work(&drop, DROP_AGAIN);
}

void socksplice_soend_drop_all(void)
{
	spin_lock_bh(&soends_lock);
	soends_drop_until = soends.last;
	spin_unlock_bh(&soends_lock);
	cancel_delayed_work(&drop);
	schedule_delayed_work(&drop, 0);
}

static void make_protos(bool paired, int f, const struct proto *base)
{
	struct proto *rest = &prots[paired][RESTING][f], *sink = &prots[paired][SINK][f];
	struct proto *source = &prots[paired][SOURCE][f];

	*rest = *base;
	rest->disconnect = soend_disconnect;
	rest->setsockopt = soend_setsockopt;
	rest->getsockopt = soend_getsockopt;
#ifdef CONFIG_BPF_SYSCALL
	rest->psock_update_sk_prot = NULL;	/* no sockmap: -EOPNOTSUPP */
#endif
	*sink = *rest;
	sink->close = hooked_close;
	sink->release_cb = soend_release_cb;
	*source = *sink;
	source->recvmsg = paired ? paired_source_recvmsg : source_recvmsg;
}

static int make_ops(int f, const struct proto_ops *base)
{
	struct proto_ops *ops = kmalloc_array(2, sizeof(*ops), GFP_KERNEL);

	if (!ops)
		return -ENOMEM;
	kmemleak_not_leak(ops);
	ops[0] = *base;		/* and so its owner */
	ops[0].poll = hooked_poll;
	/* Text of the kernel; and else a socket that was disconnected meanwhile, and
	 * listens, could give birth to one that has our ops and no end.
	 */
	ops[0].accept = sock_no_accept;
	ops[1] = ops[0];
	ops[1].splice_read = source_splice_read;
	ops[1].set_rcvlowat = source_set_rcvlowat;
	base_ops[f] = base;
	sink_ops[f] = &ops[0];
	source_ops[f] = &ops[1];
	return 0;
}

int socksplice_soend_init(void)
{
	struct socket *sock;
	int err;

	if (tcp_prot.release_cb != tcpv6_prot.release_cb) {
		pr_err("tcp_prot and tcpv6_prot differ on this kernel: not supported\n");
		return -EOPNOTSUPP;
	}
	make_protos(false, V4, &tcp_prot);
	make_protos(false, V6, &tcpv6_prot);
	make_protos(true, V4, socksplice_proto_paired(false));
	make_protos(true, V6, socksplice_proto_paired(true));
	paired_prot = socksplice_proto_paired(false);

	socksplice_soend_ulp = socksplice_ulp_make(&ulp_ops);
	if (!socksplice_soend_ulp)
		return -ENOMEM;
	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	socksplice_callbacks_learn(sock->sk);
	err = make_ops(V4, sock->ops);
	sock_release(sock);
	/* IPv6 may be switched off; its ops are not exported everywhere. */
	if (!err && !sock_create_kern(&init_net, AF_INET6, SOCK_STREAM, IPPROTO_TCP, &sock)) {
		err = make_ops(V6, sock->ops);
		sock_release(sock);
	}
	return err;
}

void socksplice_soend_exit(void)
{
	cancel_delayed_work_sync(&drop);
	/* kfree_rcu() needs nothing of ours. */
}
