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
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <net/tcp.h>
#include <net/transp_v6.h>

#include "core/inflight.h"
#include "core/ordered.h"
#include "core/slot.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "sosplice/callbacks.h"
#include "sosplice/endpoint.h"
#include "sosplice/endpoint_ops.h"
#include "sosplice/finish.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"

static struct order soends;
static u64 soends_mark;			/* see socksplice_soends_mark() */
static DEFINE_SPINLOCK(soends_lock);	/* the two above, soend->all */

void socksplice_soend_queue(const struct soend *end)
{
	if (end->out)
		socksplice_mover_queue(end->out);
	if (end->in)
		socksplice_mover_queue(end->in);
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

/* Nothing in the kernel reads this socket, or has redirected it otherwise. Final under
 * sk_callback_lock.
 */
static bool is_plain(const struct sock *sk)
{
	return !READ_ONCE(sk->sk_user_data) && socksplice_callbacks_are_plain(sk) &&
	       socksplice_endpoint_ops_are_plain(sk->sk_socket);
}

bool socksplice_soend_has_callbacks(const struct sock *sk, const struct soend *end)
{
	return end && READ_ONCE(sk->sk_user_data) == end && socksplice_callbacks_are_ours(sk);
}

static enum role role_of(const struct soend *end)
{
	return end->out ? SOURCE : end->in ? SINK : RESTING;
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
	socksplice_endpoint_ops_set(sk, SINK);
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
		socksplice_taken_over();
	socksplice_endpoint_ops_set(sk, RESTING);
}

void socksplice_soend_update(struct sock *sk, struct soend *end)
{
	const bool want = end->out || end->in;

	sock_owned_by_me(sk);
	WARN_ON_ONCE(want && !end->hooked);
	if (want)
		socksplice_endpoint_ops_set(sk, role_of(end));
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
	const int f = socksplice_endpoint_ops_family(sk->sk_prot);

	if (f == FAMILIES) {
		/* As socksplice_clone_unset() has it. */
		if (!socksplice_clone_knows(sk->sk_prot) &&
		    sk->sk_prot != socksplice_clone_of(false) &&
		    sk->sk_prot != socksplice_clone_of(true))
			socksplice_taken_over();
		return;
	}
	if (socksplice_chan_get(sk))
		WRITE_ONCE(sk->sk_prot, socksplice_clone_of(f == V6));
	else
		WRITE_ONCE(sk->sk_prot, f == V6 ? &tcpv6_prot : &tcp_prot);
}

/* The splices have ended when the socket was closed, unless it was by somebody who has
 * replaced our struct proto.
 */
static void release(struct sock *sk, struct soend *end)
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
	release(sk, end);
}

static void inherit(struct sock *sk, struct soend *end)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	sock_owned_by_me(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, end);
	WRITE_ONCE(icsk->icsk_ulp_ops, socksplice_slot_ulp[SLOT_SOEND]);
	socksplice_endpoint_ops_set(sk, role_of(end));
}

void socksplice_soend_detach(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);
	struct soend *end = socksplice_soend_get(sk);

	sock_owned_by_me(sk);
	if (c) {
		WRITE_ONCE(c->end, NULL);
	} else {
		socksplice_slot_clear(sk);
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

		if (sk->sk_prot == (c ? socksplice_clone_of(f == V6) : plain_prot))
			return f;
	}
	return FAMILIES;
}

int socksplice_soend_claim(struct sock *sk, struct soend **spare)
{
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
		socksplice_slot_fill(sk, SLOT_SOEND, end);
	}
	socksplice_endpoint_ops_claim(sk, f);
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

/* For who appends to the ring of a source: the data are its mover's. Pairs with claim and
 * take_source().
 */
static bool takes_data(const struct socksplice_chan *c)
{
	const struct soend *end = smp_load_acquire(&c->end);
	struct sosplice *s = end ? smp_load_acquire(&end->out) : NULL;

	return s && socksplice_mover_queue_rcu(s);
}

static const struct guest_ops guest_ops = {
	.inherit = inherit,
	.release = release,
	.takes_data = takes_data,
	.has_callbacks = socksplice_soend_has_callbacks,
};

void socksplice_soends_mark(void)
{
	spin_lock_bh(&soends_lock);
	soends_mark = soends.last;
	spin_unlock_bh(&soends_lock);
}

/* An endpoint leaves the order before its socket loses the last reference. */
unsigned int socksplice_soends_marked(struct sock **sk, unsigned int max, u64 *last)
{
	struct order_node *o;
	unsigned int n = 0;

	spin_lock_bh(&soends_lock);
	for (o = order_behind(&soends, *last); o && o->number <= soends_mark;
	     o = order_next(o)) {
		struct soend *end = container_of(o, struct soend, all);

		if (n == max)
			break;
		*last = o->number;
		if (refcount_inc_not_zero(&end->sk->sk_refcnt))
			sk[n++] = end->sk;
	}
	spin_unlock_bh(&soends_lock);
	return n;
}

int __init socksplice_soend_init(void)
{
	struct socket *sock;
	int err;

	err = socksplice_endpoint_ops_init();
	if (err)
		return err;
	err = socksplice_slot_register(SLOT_SOEND, &ulp_ops);
	if (err)
		return err;
	socksplice_guest_register(&guest_ops);
	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	socksplice_callbacks_learn(sock->sk);
	err = socksplice_endpoint_ops_learn(V4, sock);
	sock_release(sock);
	/* IPv6 may be switched off; its ops are not exported everywhere. */
	if (!err && !sock_create_kern(&init_net, AF_INET6, SOCK_STREAM, IPPROTO_TCP, &sock)) {
		err = socksplice_endpoint_ops_learn(V6, sock);
		sock_release(sock);
	}
	return err;
}
