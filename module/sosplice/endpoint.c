// SPDX-License-Identifier: GPL-2.0
/*
 * The hooks of a socket that is the source or the sink of a splice.
 *
 * While the socket has a splice, four of its callbacks, sk_user_data, its struct proto and its
 * struct proto_ops are ours:
 *   - The callbacks wake the mover (callbacks.h).
 *   - sk_user_data shows other code in the kernel (KCM, sunrpc) that the callbacks have an owner.
 *     None of its flag bits is set, so TCP and BPF take it for nothing of theirs.
 *   - A source's recvmsg and splice(2) wait for the splice to end, and its poll shows nothing to
 *     read. A reader of a sink is in the functions that the sink had before. So no task that
 *     sleeps there holds the module because of the splice.
 *   - close and disconnect end the splices.
 *
 * On a paired socket the functions of this struct proto call those of PAIR, which know of the
 * ring. paired_io.h has what a splice does with that.
 *
 * When the last splice has ended, all of these are the kernel's again, except the struct proto.
 * Its functions keep the ULP slot invisible. The slot stays ours until the socket is closed,
 * because getsockopt(SO_SPLICE) reports its count.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <net/tcp.h>
#include <net/transp_v6.h>

#include "core/hook.h"
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

static const struct endpoint_kind *udp, *tls;	/* constant after init */

/* NULL: it is an ordinary TCP socket, or paired. @end is its endpoint, if it has one. */
static const struct endpoint_kind *kind_of(const struct sock *sk, const struct splice_endpoint *end)
{
	if (sks_splice_is_udp(sk))
		return udp;
	return (end ? end->tls != NULL : sks_splice_is_tls(sk)) ? tls : NULL;
}

static struct ordered endpoints;
static u64 endpoints_mark;			/* see sks_endpoints_mark() */
static DEFINE_SPINLOCK(endpoints_lock);	/* protects the two above, endpoint->all */

void sks_endpoint_queue(const struct splice_endpoint *end)
{
	if (end->out)
		sks_mover_queue(end->out);
	if (end->in)
		sks_mover_queue(end->in);
}

bool sks_endpoint_trylock(struct sock *sk)
{
	struct splice_endpoint *end;

	spin_lock_bh(&sk->sk_lock.slock);
	if (sock_owned_by_user_nocheck(sk)) {
		/* The owner may be detaching the endpoint. */
		rcu_read_lock();
		end = sks_endpoint_of_rcu(sk);
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

void sks_endpoint_err_out(struct splice_endpoint *end)
{
	sock_owned_by_me(end->sk);
	WRITE_ONCE(end->err_moves, end->err_moves + 1);
	smp_wmb();	/* before sk_err is cleared; pairs with hooked_poll() */
}

void sks_endpoint_err_back(struct splice_endpoint *end)
{
	sock_owned_by_me(end->sk);
	smp_store_release(&end->err_moves, end->err_moves + 1);
}

/* True if nothing in the kernel reads this socket, or has redirected it otherwise. Final under
 * sk_callback_lock.
 */
static bool is_plain(const struct sock *sk)
{
	return !READ_ONCE(sk->sk_user_data) && sks_callbacks_are_plain(sk) &&
	       sks_endpoint_ops_are_plain(sk->sk_socket);
}

bool sks_endpoint_has_callbacks(const struct sock *sk, const struct splice_endpoint *end)
{
	return end && READ_ONCE(sk->sk_user_data) == end && sks_callbacks_are_ours(sk);
}

static enum role role_of(const struct splice_endpoint *end)
{
	return end->out ? SOURCE : end->in ? SINK : RESTING;
}

/* Hooks the socket as a sink, until sks_endpoint_update(). False if other code in the kernel came
 * first.
 */
static bool hook(struct sock *sk, struct splice_endpoint *end)
{
	bool plain_sk;

	write_lock_bh(&sk->sk_callback_lock);
	plain_sk = is_plain(sk);
	if (plain_sk) {
		rcu_assign_sk_user_data(sk, end);
		sks_callbacks_set(sk);
	}
	write_unlock_bh(&sk->sk_callback_lock);
	if (!plain_sk)
		return false;
	end->hooked = true;
	sks_endpoint_ops_set(sk, SINK);
	return true;
}

/* Takes back what is still ours, and leaves what other code has put there since. */
static void unhook(struct sock *sk, struct splice_endpoint *end)
{
	bool ours;

	end->hooked = false;
	write_lock_bh(&sk->sk_callback_lock);
	ours = sks_endpoint_has_callbacks(sk, end);
	sks_callbacks_clear(sk);
	if (READ_ONCE(sk->sk_user_data) == end)
		rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	/* Code that does not ask sk_user_data (iSCSI) may have kept our callbacks, and may put
	 * them back at any time. So our text has to stay.
	 */
	if (!ours)
		sks_taken_over();
	sks_endpoint_ops_set(sk, RESTING);
}

void sks_endpoint_hide_lowat(struct sock *sk, struct splice_endpoint *end)
{
	/* TCP notifies only when its bytes reach the mark, so a source has the mark 1. */
	if (end->out && !end->lowat_hidden) {
		end->rcvlowat = sk->sk_rcvlowat;
		WRITE_ONCE(sk->sk_rcvlowat, 1);
	} else if (!end->out && end->lowat_hidden) {
		WRITE_ONCE(sk->sk_rcvlowat, end->rcvlowat);
	}
	end->lowat_hidden = end->out;
}

void sks_endpoint_update(struct sock *sk, struct splice_endpoint *end)
{
	const struct endpoint_kind *kind = kind_of(sk, end);
	const bool want = end->out || end->in;

	sock_owned_by_me(sk);
	if (kind) {
		kind->update(sk, end);
		return;
	}
	WARN_ON_ONCE(want && !end->hooked);
	if (want)
		sks_endpoint_ops_set(sk, role_of(end));
	else if (end->hooked)
		unhook(sk, end);

	sks_endpoint_hide_lowat(sk, end);
}

void sks_endpoint_list(struct splice_endpoint *end, struct sock *sk)
{
	end->slot = SLOT_SPLICE;
	end->sk = sk;
	spin_lock_bh(&endpoints_lock);
	ordered_add(&endpoints, &end->all);
	spin_unlock_bh(&endpoints_lock);
}

void sks_endpoint_unlist(struct splice_endpoint *end)
{
	WARN_ON_ONCE(end->out || end->in);
	spin_lock_bh(&endpoints_lock);
	ordered_del(&endpoints, &end->all);
	spin_unlock_bh(&endpoints_lock);
	kfree_rcu(end, rcu);
	sks_detached();
}

static void restore_prot(struct sock *sk)
{
	const int f = sks_endpoint_ops_family(sk->sk_prot);

	if (f == FAMILIES) {
		/* Other code has replaced it, as in sks_clone_unset(). */
		if (!sks_clone_knows(sk->sk_prot) && sk->sk_prot != sks_clone_of(false) &&
		    sk->sk_prot != sks_clone_of(true))
			sks_taken_over();
		return;
	}
	if (sks_end_get(sk))
		WRITE_ONCE(sk->sk_prot, sks_clone_of(f == V6));
	else
		WRITE_ONCE(sk->sk_prot, f == V6 ? &tcpv6_prot : &tcp_prot);
}

/* The socket's close has ended the splices, unless other code has replaced our struct proto and
 * closed the socket.
 */
static void release(struct sock *sk, struct splice_endpoint *end)
{
	sks_splice_orphan_on_destroy(end);
	if (end->hooked)
		unhook(sk, end);
	restore_prot(sk);
	sks_endpoint_unlist(end);
}

/* Called by tcp_cleanup_ulp(), in softirq too. The core clears the slot's ops and drops the module
 * reference.
 */
static void ulp_release(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_get(sk);

	RCU_INIT_POINTER(inet_csk(sk)->icsk_ulp_data, NULL);
	release(sk, end);
}

static void inherit(struct sock *sk, struct splice_endpoint *end)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	sock_owned_by_me(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, end);
	WRITE_ONCE(icsk->icsk_ulp_ops, sks_slot_ulp[SLOT_SPLICE]);
	sks_endpoint_ops_set(sk, role_of(end));
	/* The socket's counters have the ring's bytes now, so sks_loop_ident() reads other numbers.
	 * Those that loop.c has were exact before. The numbers of both ends change alike, and the
	 * last end to change finds the loop.
	 */
	if (end->out)
		clear_bit(SPLICE_TRACED, &end->out->flags);
	if (end->in)
		clear_bit(SPLICE_TRACED, &end->in->flags);
}

void sks_endpoint_detach(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_of(sk);
	struct pair_end *paired;

	sock_owned_by_me(sk);
	if (kind_of(sk, end)) {
		kind_of(sk, end)->detach(sk, end);
		return;
	}
	paired = sks_end_get(sk);
	if (paired)
		WRITE_ONCE(paired->guest, NULL);
	else
		sks_slot_clear(sk);
	restore_prot(sk);
	sks_endpoint_unlist(end);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

/* The family of the socket's struct proto, if an endpoint can replace that; else FAMILIES. */
static int claimable(const struct sock *sk, const struct pair_end *paired)
{
	int f;

	if (!paired && (inet_csk(sk)->icsk_ulp_ops || sk_is_mptcp(sk) || tcp_sk(sk)->repair))
		return FAMILIES;
	for (f = 0; f < FAMILIES; f++) {
		const struct proto *plain_prot = f == V6 ? &tcpv6_prot : &tcp_prot;

		if (sk->sk_prot == (paired ? sks_clone_of(f == V6) : plain_prot))
			return f;
	}
	return FAMILIES;
}

int sks_endpoint_claim(struct sock *sk, struct splice_endpoint **spare)
{
	struct splice_endpoint *end = sks_endpoint_of(sk);
	struct pair_end *paired;
	int f;

	sock_owned_by_me(sk);
	if (kind_of(sk, end))
		return kind_of(sk, end)->claim(sk, end, spare);
	if (sk->sk_state == TCP_LISTEN || !sks_hook_may_attach())
		return -EOPNOTSUPP;
	if (sk->sk_state == TCP_CLOSE || !sk->sk_socket)
		return -ENOTCONN;
	/* SMC passes options on to a socket of its own, whose callbacks it then takes. */
	if (sk->sk_kern_sock)
		return -EINVAL;
	if (end && end->hooked)
		return sks_endpoint_has_callbacks(sk, end) ? 0 : -EINVAL;
	if (!is_plain(sk))
		return -EINVAL;
	if (end)
		return hook(sk, end) ? 0 : -EINVAL;
	paired = sks_end_get(sk);
	if (paired && !live_end(sk)) {
		sks_end_detach(sk);
		paired = NULL;
	}
	/* As after the disconnect, which would not end a splice of an endpoint made now. */
	if (paired && paired->disconnecting)
		return -ENOTCONN;
	f = claimable(sk, paired);
	if (f == FAMILIES)
		return -EINVAL;
	/* The caller's system call holds the module. */
	if (WARN_ON_ONCE(!sks_attached()))
		return -EINVAL;
	end = *spare;
	*spare = NULL;
	sks_endpoint_list(end, sk);
	if (paired)
		smp_store_release(&paired->guest, end);	/* pairs with takes_data() */
	else
		sks_slot_fill(sk, SLOT_SPLICE, end);
	sks_endpoint_ops_claim(sk, f);
	/* If it cannot be hooked, the endpoint rests. */
	return hook(sk, end) ? 0 : -EINVAL;
}

int sks_endpoint_make_plain(struct sock *sk)
{
	struct splice_endpoint *end;
	int err = 0;

	lock_sock(sk);
	end = sks_endpoint_of(sk);
	if (end)
		sks_splice_forget_finished_sink(sk, end);
	if (end && (end->out || end->in))
		err = -EBUSY;
	else if (end)
		sks_endpoint_detach(sk);
	release_sock(sk);
	return err;
}

void sks_endpoint_wake(struct sock *sk)
{
	const struct endpoint_kind *kind = kind_of(sk, sks_endpoint_of(sk));

	sock_owned_by_me(sk);
	if (!rcu_access_pointer(sk->sk_wq))
		return;
	if (kind) {
		kind->wake(sk);
		return;
	}
	/* Clear endpoint->out before the readers look at a ring. A sender that appends looks in
	 * the other order, and then wakes them itself (paired_io.h). Pairs with tx_append().
	 */
	smp_mb();
	/* Wake them whatever they wait for: our poll has hidden the end of the stream, too. */
	wake_up_interruptible_all(sk_sleep(sk));
	if (!skb_queue_empty(&sk->sk_receive_queue) || sk->sk_shutdown & RCV_SHUTDOWN ||
	    sks_paired_io_unread(sk))
		sks_callbacks_plain_ready(sk);	/* SIGIO */
}

static const struct tcp_ulp_ops ulp_ops = {
	.name		= "so_splice",
	.owner		= THIS_MODULE,
	.release	= ulp_release,
};

/* Called by a sender that has appended to a ring. True if the ring's reader is a source: then its
 * mover takes the data, and is queued. Pairs with sks_endpoint_claim() and take_source().
 */
static bool takes_data(const struct pair_end *paired)
{
	const struct splice_endpoint *end = smp_load_acquire(&paired->guest);
	struct splice *s = end ? smp_load_acquire(&end->out) : NULL;

	return s && sks_mover_queue_rcu(s);
}

static const struct guest_ops guest_ops = {
	.inherit = inherit,
	.release = release,
	.takes_data = takes_data,
	.has_callbacks = sks_endpoint_has_callbacks,
};

void sks_endpoint_register_udp(const struct endpoint_kind *kind)
{
	udp = kind;
}

void sks_endpoint_register_tls(const struct endpoint_kind *kind)
{
	tls = kind;
}

void sks_endpoints_mark(void)
{
	spin_lock_bh(&endpoints_lock);
	endpoints_mark = endpoints.last;
	spin_unlock_bh(&endpoints_lock);
}

/* A socket in the order has a reference: the endpoint leaves the order before the last one goes. */
unsigned int sks_endpoints_marked(struct sock **sk, unsigned int max, u64 *last)
{
	struct ordered_node *o;
	unsigned int n = 0;

	spin_lock_bh(&endpoints_lock);
	for (o = ordered_behind(&endpoints, *last); o && o->number <= endpoints_mark;
	     o = ordered_next(o)) {
		struct splice_endpoint *end = container_of(o, struct splice_endpoint, all);

		if (n == max)
			break;
		*last = o->number;
		if (refcount_inc_not_zero(&end->sk->sk_refcnt))
			sk[n++] = end->sk;
	}
	spin_unlock_bh(&endpoints_lock);
	return n;
}

int __init sks_endpoint_init(void)
{
	struct socket *sock;
	int err;

	err = sks_endpoint_ops_init();
	if (err)
		return err;
	err = sks_slot_register(SLOT_SPLICE, &ulp_ops);
	if (err)
		return err;
	sks_guest_register(&guest_ops);
	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	sks_callbacks_learn(sock->sk);
	err = sks_endpoint_ops_learn(V4, sock);
	sock_release(sock);
	/* IPv6 may be switched off, and not every kernel exports its ops. */
	if (!err && !sock_create_kern(&init_net, AF_INET6, SOCK_STREAM, IPPROTO_TCP, &sock)) {
		err = sks_endpoint_ops_learn(V6, sock);
		sock_release(sock);
	}
	return err;
}
