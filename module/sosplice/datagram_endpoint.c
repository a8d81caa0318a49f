// SPDX-License-Identifier: GPL-2.0
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <linux/wait_bit.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/udp.h>

#include "compat/compat.h"
#include "pair/clone.h"
#include "core/inflight.h"
#include "sosplice/datagram_endpoint.h"
#include "sosplice/endpoint.h"
#include "sosplice/endpoint_ops.h"
#include "sosplice/finish.h"
#include "sosplice/splice.h"

/* Constant after init: what an ordinary UDP socket has. NULL where there is no IPv6. */
static struct {
	void (*data_ready)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
	void (*destruct[FAMILIES])(struct sock *sk);
	const struct proto *prot[FAMILIES];
	const struct proto_ops *ops[FAMILIES];
} plain;

/* As in endpoint_ops.c: ours are never freed. The second index of @hooked_ops: is a source. */
static struct proto prots[ROLES][FAMILIES];
static const struct proto_ops *hooked_ops[FAMILIES];

/* The family of the struct proto, if that is UDP's own or one of ours. */
static enum family family_of(const struct sock *sk)
{
	const struct proto *prot = READ_ONCE(sk->sk_prot);
	enum family f;
	int role;

	for (f = 0; f < FAMILIES; f++) {
		if (plain.prot[f] && prot == plain.prot[f])
			return f;
		for (role = 0; role < ROLES; role++)
			if (prot == &prots[role][f])
				return f;
	}
	return FAMILIES;
}

const struct proto *sks_datagram_base(const struct sock *sk)
{
	const enum family f = family_of(sk);

	return f < FAMILIES ? plain.prot[f] : NULL;
}

/* The splice that @sk is the source of, or the sink of, or NULL. Under RCU. */
static struct splice *splice_of(const struct sock *sk, bool out)
{
	const struct splice_endpoint *end = sks_endpoint_in_table(sk);

	if (!end)
		return NULL;
	return out ? READ_ONCE(end->out) : READ_ONCE(end->in);
}

/* UDP calls the callbacks without any lock. So the splice may end just now: then the task that ends
 * it has woken the readers, perhaps before the datagram was there.
 */
static void hooked_data_ready(struct sock *sk)
{
	struct splice *s;
	bool queued;

	rcu_read_lock();
	smp_mb();	/* the datagram before endpoint->out; pairs with let_run() */
	do {
		s = splice_of(sk, true);
		queued = s && sks_mover_queue_rcu(s);
		smp_mb();	/* the datagram before endpoint->out; pairs with datagram_wake() */
	} while (queued && s != splice_of(sk, true));
	rcu_read_unlock();
	if (!queued)
		plain.data_ready(sk);
}

static void queue_both(struct sock *sk)
{
	struct splice *s;

	rcu_read_lock();
	s = splice_of(sk, true);
	if (s)
		sks_mover_queue_rcu(s);
	s = splice_of(sk, false);
	if (s)
		sks_mover_queue_rcu(s);
	rcu_read_unlock();
}

static void hooked_state_change(struct sock *sk)
{
	plain.state_change(sk);
	queue_both(sk);
}

static void hooked_error_report(struct sock *sk)
{
	plain.error_report(sk);
	queue_both(sk);
}

/* Called for each packet that leaves. */
static void hooked_write_space(struct sock *sk)
{
	struct splice *s;

	plain.write_space(sk);
	rcu_read_lock();
	s = splice_of(sk, false);
	if (s) {
		smp_mb();	/* the packet has left before; pairs with wait_for_room() */
		if (test_bit(SPLICE_NEEDS_ROOM, &s->flags) && sock_writeable(sk))
			sks_mover_queue_rcu(s);
	}
	rcu_read_unlock();
}

static bool callbacks_are_ours(const struct sock *sk)
{
	return READ_ONCE(sk->sk_data_ready) == hooked_data_ready &&
	       READ_ONCE(sk->sk_state_change) == hooked_state_change &&
	       READ_ONCE(sk->sk_write_space) == hooked_write_space &&
	       READ_ONCE(sk->sk_error_report) == hooked_error_report;
}

static bool has_callbacks(const struct sock *sk, const struct splice_endpoint *end)
{
	return READ_ONCE(sk->sk_user_data) == end && callbacks_are_ours(sk);
}

/* True if nothing in the kernel reads this socket, or has redirected it otherwise. Final under
 * sk_callback_lock.
 */
static bool is_plain(const struct sock *sk)
{
	const struct socket *sock = sk->sk_socket;

	return !READ_ONCE(sk->sk_user_data) && READ_ONCE(sk->sk_data_ready) == plain.data_ready &&
	       READ_ONCE(sk->sk_state_change) == plain.state_change &&
	       READ_ONCE(sk->sk_write_space) == plain.write_space &&
	       READ_ONCE(sk->sk_error_report) == plain.error_report &&
	       (sock->ops == plain.ops[V4] || sock->ops == plain.ops[V6]);
}

/* Gives the socket, which is locked, the functions of @role. */
static void set_role(struct sock *sk, enum role role)
{
	struct socket *sock = sk->sk_socket;
	enum family f = family_of(sk);

	if (f == FAMILIES)
		return;
	WRITE_ONCE(sk->sk_prot, &prots[role][f]);
	if (sock && (sock->ops == plain.ops[f] || sock->ops == hooked_ops[f]))
		WRITE_ONCE(sock->ops, role == RESTING ? plain.ops[f] : hooked_ops[f]);
}

/* Hooks the socket as a sink, until datagram_update(). */
static bool hook(struct sock *sk, struct splice_endpoint *end)
{
	bool may;

	write_lock_bh(&sk->sk_callback_lock);
	may = is_plain(sk);
	if (may) {
		rcu_assign_sk_user_data(sk, end);
		WRITE_ONCE(sk->sk_data_ready, hooked_data_ready);
		WRITE_ONCE(sk->sk_state_change, hooked_state_change);
		WRITE_ONCE(sk->sk_write_space, hooked_write_space);
		WRITE_ONCE(sk->sk_error_report, hooked_error_report);
	}
	write_unlock_bh(&sk->sk_callback_lock);
	if (!may)
		return false;
	end->hooked = true;
	set_role(sk, SINK);
	return true;
}

/* Takes back what is still ours, and leaves what other code has put there since. */
static void unhook(struct sock *sk, struct splice_endpoint *end)
{
	bool ours;

	end->hooked = false;
	write_lock_bh(&sk->sk_callback_lock);
	ours = has_callbacks(sk, end);
	if (sk->sk_data_ready == hooked_data_ready)
		WRITE_ONCE(sk->sk_data_ready, plain.data_ready);
	if (sk->sk_state_change == hooked_state_change)
		WRITE_ONCE(sk->sk_state_change, plain.state_change);
	if (sk->sk_write_space == hooked_write_space)
		WRITE_ONCE(sk->sk_write_space, plain.write_space);
	if (sk->sk_error_report == hooked_error_report)
		WRITE_ONCE(sk->sk_error_report, plain.error_report);
	if (READ_ONCE(sk->sk_user_data) == end)
		rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	if (!ours)
		sks_taken_over();	/* as in endpoint.c: other code may have kept ours */
	set_role(sk, RESTING);
}

static void datagram_update(struct sock *sk, struct splice_endpoint *end)
{
	sock_owned_by_me(sk);
	WARN_ON_ONCE((end->out || end->in) && !end->hooked);
	if (end->out || end->in)
		set_role(sk, end->out ? SOURCE : SINK);
	else if (end->hooked)
		unhook(sk, end);
}

static void hooked_destruct(struct sock *sk);

/* Undoes the rest of the claim. The socket is locked, or is being freed. */
static void give_back(struct sock *sk, struct splice_endpoint *end)
{
	const enum family f = family_of(sk);

	sks_endpoint_table_remove(end);
	if (end->hooked)
		unhook(sk, end);
	if (f < FAMILIES)
		WRITE_ONCE(sk->sk_prot, (struct proto *)plain.prot[f]);
	else
		sks_taken_over();
	if (sk->sk_destruct == hooked_destruct)
		sk->sk_destruct = plain.destruct[sk->sk_family == AF_INET6 ? V6 : V4];
	else
		sks_taken_over();
	sks_endpoint_unlist(end);
}

/* The last reference is gone, so no splice has the socket. Only a socket that other code has closed
 * by its own struct proto still has its endpoint. Any context.
 */
static void hooked_destruct(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_in_table(sk);

	plain.destruct[sk->sk_family == AF_INET6 ? V6 : V4](sk);
	if (end) {
		give_back(sk, end);
		module_put(THIS_MODULE);	/* sks_inflight_drain() waits for our return */
	}
}

static void datagram_detach(struct sock *sk, struct splice_endpoint *end)
{
	sock_owned_by_me(sk);
	give_back(sk, end);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

/* A socket with an encapsulation gives its packets to other code. One that is connected to a
 * v4-mapped address can become an IPv4 socket (IPV6_ADDRFORM), with functions that are not ours.
 */
static bool suits(const struct sock *sk)
{
	if (sk->sk_kern_sock || !is_plain(sk) || READ_ONCE(udp_sk(sk)->encap_type))
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return false;
#endif
	return true;
}

static int attach(struct sock *sk, struct splice_endpoint **spare)
{
	struct splice_endpoint *end = *spare;
	const enum family f = family_of(sk);
	int err;

	if (f == FAMILIES || sk->sk_prot != plain.prot[f] || sk->sk_destruct != plain.destruct[f])
		return -EINVAL;
	/* The caller's system call holds the module. */
	if (WARN_ON_ONCE(!sks_attached()))
		return -EINVAL;
	end->sk = sk;
	err = sks_endpoint_table_add(end);
	if (err) {
		sks_detached();
		module_put(THIS_MODULE);
		return -ENOMEM;
	}
	*spare = NULL;
	sks_endpoint_list(end, sk);
	sk->sk_destruct = hooked_destruct;
	set_role(sk, RESTING);
	/* If it cannot be hooked, the endpoint rests. */
	return hook(sk, end) ? 0 : -EINVAL;
}

bool sks_datagram_is_corked(const struct sock *sk)
{
	sock_owned_by_me(sk);
	return READ_ONCE(udp_sk(sk)->pending) || udp_test_bit(CORK, sk);
}

static int datagram_claim(struct sock *sk, struct splice_endpoint *end,
			  struct splice_endpoint **spare)
{
	sock_owned_by_me(sk);
	if (!sk->sk_socket)
		return -ENOTCONN;
	if (end && end->hooked)
		return has_callbacks(sk, end) ? 0 : -EINVAL;
	if (!suits(sk))
		return -EINVAL;
	if (end)
		return hook(sk, end) ? 0 : -EINVAL;
	return attach(sk, spare);
}

static void datagram_wake(struct sock *sk)
{
	sock_owned_by_me(sk);
	smp_mb();	/* as in sks_endpoint_wake() */
	wake_up_interruptible_all(sk_sleep(sk));
	if (!skb_queue_empty_lockless(&sk->sk_receive_queue) ||
	    !skb_queue_empty_lockless(&udp_sk(sk)->reader_queue))
		plain.data_ready(sk);	/* SIGIO */
}

/* The functions of struct proto */

static void hooked_release_cb(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_in_table(sk);

	if (sks_datagram_base(sk)->release_cb)
		sks_datagram_base(sk)->release_cb(sk);
	if (end && end->wanted) {
		end->wanted = false;
		sks_endpoint_queue(end);
	}
}

/* Ends the splices, and waits until a mover that has the sink is out of UDP's sendmsg: that may
 * look at the socket's struct socket, which goes with the close.
 */
static void hooked_close(struct sock *sk, long timeout)
{
	const struct proto *base = sks_datagram_base(sk);
	struct splice_endpoint *end;
	struct splice *in = NULL;

	sks_enter();
	lock_sock(sk);
	end = sks_endpoint_in_table(sk);
	if (end) {
		in = end->in;
		if (in)
			refcount_inc(&in->ref);
		sks_splice_detach_on_close(sk, end);
		datagram_detach(sk, end);
	}
	release_sock(sk);
	if (in) {
		wait_on_bit(&in->flags, SPLICE_SENDING, TASK_UNINTERRUPTIBLE);
		sks_splice_put(in);
	}
	base->close(sk, timeout);
	sks_leave();
}

/* The mover finds a sink that is no longer connected. A source need not be. */
static int hooked_disconnect(struct sock *sk, int flags)
{
	int ret;

	sks_enter();
	ret = sks_datagram_base(sk)->disconnect(sk, flags);
	queue_both(sk);
	sks_leave();
	return ret;
}

/* Connects a socket that has no splice, or not to a v4-mapped address: see suits(). */
static int hooked_connect(struct sock *sk, COMPAT_SOCKADDR *addr, int len)
{
	bool mapped = ((struct sockaddr *)addr)->sa_family != AF_INET6;
	int ret = -EBUSY;

#if IS_ENABLED(CONFIG_IPV6)
	mapped |= len >= SIN6_LEN_RFC2133 &&
		  ipv6_addr_v4mapped(&((struct sockaddr_in6 *)addr)->sin6_addr);
#endif
	sks_enter();
	if (!mapped)
		ret = sks_datagram_base(sk)->connect(sk, addr, len);
	sks_leave();
	return ret;
}

static int hooked_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			  int flags COMPAT_ADDR_LEN_PARAM)
{
	int ret = 0;

	sks_enter();
	if (!(flags & MSG_ERRQUEUE))
		ret = sks_endpoint_reader_wait(sk, flags & MSG_DONTWAIT);
	if (!ret)
		ret = sks_datagram_base(sk)->recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	sks_leave();
	return ret;
}

static bool is_live_sink(const struct sock *sk)
{
	const struct splice *s;
	bool live;

	rcu_read_lock();
	s = splice_of(sk, false);
	live = s && !test_bit(SPLICE_ENDED, &s->flags);
	rcu_read_unlock();
	return live;
}

static int hooked_sendmsg(struct sock *sk, struct msghdr *msg, size_t len)
{
	int ret = -EBUSY;

	sks_enter();
	if (!(msg->msg_flags & MSG_MORE && is_live_sink(sk)))
		ret = sks_datagram_base(sk)->sendmsg(sk, msg, len);
	sks_leave();
	return ret;
}

/* Sets UDP_CORK. Under the lock the socket does not become a sink meanwhile. */
static int set_cork(struct sock *sk, int level, sockptr_t optval, unsigned int optlen)
{
	const struct proto *base = sks_datagram_base(sk);
	int ret = -EBUSY, val;

	if (optlen < sizeof(val))
		return -EINVAL;
	if (copy_from_sockptr(&val, optval, sizeof(val)))
		return -EFAULT;
	if (!val)	/* takes the lock itself */
		return base->setsockopt(sk, level, UDP_CORK, KERNEL_SOCKPTR(&val), sizeof(val));
	lock_sock(sk);
	if (!is_live_sink(sk))
		ret = base->setsockopt(sk, level, UDP_CORK, KERNEL_SOCKPTR(&val), sizeof(val));
	release_sock(sk);
	return ret;
}

/* Some options need a socket that nothing else uses. They get it if the socket has no splice. */
static int hooked_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			     unsigned int optlen)
{
	const struct proto *base = sks_datagram_base(sk);
	int ret = 0;

	sks_enter();
	if (level == SOL_UDP && optname == UDP_CORK) {
		ret = set_cork(sk, level, optval, optlen);
		sks_leave();
		return ret;
	}
	if ((level == SOL_UDP && optname == UDP_ENCAP) ||
	    (level == SOL_IPV6 && optname == IPV6_ADDRFORM))
		ret = sks_endpoint_make_plain(sk);
	if (!ret)
		ret = base->setsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

static __poll_t hooked_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	return sks_endpoint_poll(inet_dgram_ops.poll, file, sock, wait);
}

static void __init make_protos(enum family f)
{
	struct proto *rest = &prots[RESTING][f], *sink = &prots[SINK][f];
	struct proto *source = &prots[SOURCE][f];

	*rest = *plain.prot[f];
	rest->close = hooked_close;
	rest->setsockopt = hooked_setsockopt;
#ifdef CONFIG_BPF_SYSCALL
	rest->psock_update_sk_prot = NULL;	/* no sockmap */
#endif
	*sink = *rest;
	sink->release_cb = hooked_release_cb;
	sink->disconnect = hooked_disconnect;
	sink->sendmsg = hooked_sendmsg;
	if (f == V6)
		sink->connect = hooked_connect;
	*source = *sink;
	source->recvmsg = hooked_recvmsg;
}

/* Learns from an ordinary socket of family @f. */
static int __init learn(enum family f)
{
	struct proto_ops *ops = kmalloc(sizeof(*ops), GFP_KERNEL);
	struct socket *sock;
	int err;

	if (!ops)
		return -ENOMEM;
	err = sock_create_kern(&init_net, f == V6 ? AF_INET6 : AF_INET, SOCK_DGRAM, IPPROTO_UDP,
			       &sock);
	if (err) {
		kfree(ops);
		return f == V6 ? 0 : err;	/* IPv6 may be switched off */
	}
	kmemleak_not_leak(ops);
	plain.data_ready = sock->sk->sk_data_ready;
	plain.state_change = sock->sk->sk_state_change;
	plain.write_space = sock->sk->sk_write_space;
	plain.error_report = sock->sk->sk_error_report;
	plain.destruct[f] = sock->sk->sk_destruct;
	plain.prot[f] = sock->sk->sk_prot;
	plain.ops[f] = sock->ops;
	*ops = *sock->ops;		/* this includes the owner */
	ops->poll = hooked_poll;
	hooked_ops[f] = ops;
	make_protos(f);
	sock_release(sock);
	return 0;
}

static const struct endpoint_kind kind = {
	.claim = datagram_claim,
	.update = datagram_update,
	.detach = datagram_detach,
	.wake = datagram_wake,
};

int __init sks_datagram_endpoint_init(void)
{
	int err = learn(V4);

	sks_endpoint_register_udp(&kind);
	return err ?: learn(V6);
}
