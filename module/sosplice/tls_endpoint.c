// SPDX-License-Identifier: GPL-2.0
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <net/tcp.h>
#include <net/tls.h>

#include "compat/compat.h"
#include "core/inflight.h"
#include "datapath/proto.h"
#include "pair/clone.h"
#include "sosplice/callbacks.h"
#include "sosplice/endpoint.h"
#include "sosplice/endpoint_ops.h"
#include "sosplice/finish.h"
#include "sosplice/splice.h"
#include "sosplice/tls_endpoint.h"

/* Copies of a struct proto and a struct proto_ops of TLS's, and ours, made from them. TLS has one
 * for each family and for what it does in each direction. As in endpoint_ops.c, ours are never
 * freed. Constant once it is in the list.
 */
struct tls_functions {
	struct tls_functions *next;
	struct proto base, prots[ROLES];
	struct proto_ops base_ops, ops[2];	/* the second: of a source */
};

/* What belongs to one socket. Written under its lock; constant while the endpoint is attached. */
struct tls_part {
	const struct tls_functions *functions;
	struct proto *prot;			/* TLS's own, to be put back */
	const struct proto_ops *ops;
	void (*destruct)(struct sock *sk);
	struct splice_endpoint *end;
	struct wait_queue_entry wait;		/* in the socket's wait queue while hooked */
	bool pushing;				/* a wake-up is the mover's own; the socket's lock.
						 * Read by the wake-up.
						 */
	struct rcu_head rcu;
};

static struct tls_functions *functions;		/* a list that only grows; read without a lock */
static DEFINE_MUTEX(functions_lock);		/* taken with a socket locked */

bool sks_tls_can_read(const struct sock *sk)
{
	const struct tls_context *ctx = tls_get_ctx(sk);

	sock_owned_by_me(sk);
	return ctx && ctx->rx_conf == TLS_SW && ctx->priv_ctx_rx;
}

bool sks_tls_can_write(const struct sock *sk)
{
	const struct tls_context *ctx = tls_get_ctx(sk);

	sock_owned_by_me(sk);
	return ctx && ctx->tx_conf == TLS_SW && ctx->priv_ctx_tx;
}

/* What our functions of @sk were made from, or NULL. */
static const struct tls_functions *functions_of(const struct sock *sk)
{
	const struct proto *prot = READ_ONCE(sk->sk_prot);
	const struct tls_functions *f;

	for (f = smp_load_acquire(&functions); f; f = f->next)	/* pairs with functions_get() */
		if (prot >= &f->prots[0] && prot < &f->prots[ROLES])
			return f;
	return NULL;
}

static const struct tls_functions *functions_of_ops(const struct proto_ops *ops)
{
	const struct tls_functions *f;

	for (f = smp_load_acquire(&functions); f; f = f->next)
		if (ops == &f->ops[0] || ops == &f->ops[1])
			return f;
	return NULL;
}

const struct proto *sks_tls_proto(const struct sock *sk)
{
	const struct tls_functions *f = functions_of(sk);

	return f ? &f->base : NULL;
}

const struct proto_ops *sks_tls_ops(const struct sock *sk)
{
	const struct tls_functions *f = functions_of(sk);

	return f ? &f->base_ops : NULL;
}

/* The entry in the wait queue. Called under the queue's lock, by any wake-up. Negative: no entry
 * behind this one is called, because the data are the splice's.
 */
static int hooked_wake(struct wait_queue_entry *wait, unsigned int mode, int sync, void *key)
{
	const __poll_t in = EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI;
	const __poll_t out = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	const struct tls_part *part = container_of(wait, struct tls_part, wait);
	const struct splice_endpoint *end = part->end;
	const __poll_t what = key_to_poll(key);
	const bool data = what && !(what & ~in), room = what && !(what & ~out);
	struct splice *s;
	int ret = 0;

	if (READ_ONCE(part->pushing) && (data || room))
		return 0;
	rcu_read_lock();
	s = READ_ONCE(end->out);
	if (s && data)	/* urgent data: EPOLLPRI */
		ret = sks_mover_queue_arrived(s) && !READ_ONCE(tcp_sk(end->sk)->urg_data) ? -1 : 0;
	else if (s && !room)
		sks_mover_queue_rcu(s);
	s = READ_ONCE(end->in);
	if (s && !data)
		sks_mover_queue_rcu(s);
	rcu_read_unlock();
	return ret;
}

/* News of data or room come under the socket's lock, so only our own are hidden from the movers. */
void sks_tls_push(struct sock *sk)
{
	struct tls_part *part = sks_endpoint_in_table(sk)->tls;

	sock_owned_by_me(sk);
	WRITE_ONCE(part->pushing, true);
	sk->sk_write_space(sk);
	WRITE_ONCE(part->pushing, false);
}

void sks_tls_wake_reader(struct sock *sk)
{
	struct tls_part *part = sks_endpoint_in_table(sk)->tls;

	sock_owned_by_me(sk);
	if (!rcu_access_pointer(sk->sk_wq))
		return;
	WRITE_ONCE(part->pushing, true);
	wake_up_interruptible_poll(sk_sleep(sk), EPOLLIN | EPOLLRDNORM);
	WRITE_ONCE(part->pushing, false);
}

static bool has_hooks(const struct sock *sk, const struct splice_endpoint *end)
{
	return READ_ONCE(sk->sk_user_data) == end && functions_of(sk) == end->tls->functions;
}

/* True if nothing in the kernel reads this socket. Final under sk_callback_lock. */
static bool is_plain(const struct sock *sk)
{
	return !READ_ONCE(sk->sk_user_data) && sks_callbacks_report_plainly(sk);
}

/* Gives the socket, which is locked, the functions of @role. Leaves functions that other code has
 * put there since.
 */
static void set_role(struct sock *sk, const struct splice_endpoint *end, enum role role)
{
	const struct tls_functions *f = end->tls->functions;
	struct socket *sock = sk->sk_socket;

	if (functions_of(sk) != f)
		return;
	WRITE_ONCE(sk->sk_prot, (struct proto *)&f->prots[role]);
	if (!sock || (sock->ops != end->tls->ops && functions_of_ops(sock->ops) != f))
		return;
	WRITE_ONCE(sock->ops, role == RESTING ? end->tls->ops : &f->ops[role == SOURCE]);
}

/* Hooks the socket as a sink, until tls_update(). */
static bool hook(struct sock *sk, struct splice_endpoint *end)
{
	struct wait_queue_entry *wait = &end->tls->wait;
	wait_queue_head_t *wq = sk_sleep(sk);
	bool may;

	write_lock_bh(&sk->sk_callback_lock);
	may = is_plain(sk) && functions_of(sk) == end->tls->functions;
	if (may)
		rcu_assign_sk_user_data(sk, end);
	write_unlock_bh(&sk->sk_callback_lock);
	if (!may)
		return false;
	init_waitqueue_func_entry(wait, hooked_wake);
	wait->flags = WQ_FLAG_PRIORITY;
	spin_lock_irq(&wq->lock);
	__add_wait_queue(wq, wait);
	spin_unlock_irq(&wq->lock);
	end->hooked = true;
	set_role(sk, end, SINK);
	return true;
}

/* Takes back what is still ours, and leaves what other code has put there since. */
static void unhook(struct sock *sk, struct splice_endpoint *end)
{
	end->hooked = false;
	write_lock_bh(&sk->sk_callback_lock);
	if (READ_ONCE(sk->sk_user_data) == end)
		rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	/* Without it other code has closed the socket, and the queue with our entry is gone. */
	if (rcu_access_pointer(sk->sk_wq))
		remove_wait_queue(sk_sleep(sk), &end->tls->wait);
	set_role(sk, end, RESTING);
}

static void tls_update(struct sock *sk, struct splice_endpoint *end)
{
	sock_owned_by_me(sk);
	WARN_ON_ONCE((end->out || end->in) && !end->hooked);
	if (end->out || end->in)
		set_role(sk, end, end->out ? SOURCE : SINK);
	else if (end->hooked)
		unhook(sk, end);
	sks_endpoint_hide_lowat(sk, end);
}

static void hooked_destruct(struct sock *sk);

/* Undoes the rest of the claim. The socket is locked, or is being freed. */
static void give_back(struct sock *sk, struct splice_endpoint *end)
{
	struct tls_part *part = end->tls;

	sks_endpoint_table_remove(end);
	if (end->hooked)
		unhook(sk, end);
	if (functions_of(sk) == part->functions)
		WRITE_ONCE(sk->sk_prot, part->prot);
	else
		sks_taken_over();
	if (sk->sk_destruct == hooked_destruct)
		sk->sk_destruct = part->destruct;
	else
		sks_taken_over();
	kfree_rcu(part, rcu);
	sks_endpoint_unlist(end);
}

/* The last reference is gone, so no splice has the socket. Only a socket that was closed by other
 * functions than ours still has its endpoint. Any context.
 */
static void hooked_destruct(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_in_table(sk);

	if (WARN_ON_ONCE(!end))
		return;
	end->tls->destruct(sk);
	give_back(sk, end);
	module_put(THIS_MODULE);	/* sks_inflight_drain() waits for our return */
}

static void tls_detach(struct sock *sk, struct splice_endpoint *end)
{
	sock_owned_by_me(sk);
	give_back(sk, end);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

static void functions_make(struct tls_functions *f);

/* The functions for @sk, which is locked and has TLS's own. NULL without memory. Sleeps. */
static const struct tls_functions *functions_get(const struct sock *sk)
{
	const struct proto *prot = sk->sk_prot;
	const struct proto_ops *ops = sk->sk_socket->ops;
	struct tls_functions *f;

	mutex_lock(&functions_lock);
	/* By what is in them: the TLS module may have been loaded again since. */
	for (f = functions; f; f = f->next)
		if (!memcmp(&f->base, prot, sizeof(*prot)) &&
		    !memcmp(&f->base_ops, ops, sizeof(*ops)))
			break;
	if (!f) {
		f = kzalloc(sizeof(*f), GFP_KERNEL);
		if (f) {
			kmemleak_not_leak(f);
			memcpy(&f->base, prot, sizeof(*prot));
			memcpy(&f->base_ops, ops, sizeof(*ops));
			functions_make(f);
			f->next = functions;
			smp_store_release(&functions, f);	/* pairs with functions_of() */
		}
	}
	mutex_unlock(&functions_lock);
	return f;
}

static int attach(struct sock *sk, struct splice_endpoint **spare)
{
	struct splice_endpoint *end = *spare;
	struct tls_part *part = kzalloc(sizeof(*part), GFP_KERNEL_ACCOUNT);

	if (!part)
		return -ENOMEM;
	part->functions = functions_get(sk);
	/* The caller's system call holds the module. */
	if (!part->functions || WARN_ON_ONCE(!sks_attached())) {
		kfree(part);
		return -ENOMEM;
	}
	part->prot = sk->sk_prot;
	part->ops = sk->sk_socket->ops;
	part->destruct = sk->sk_destruct;
	part->end = end;
	end->tls = part;
	end->sk = sk;
	if (sks_endpoint_table_add(end)) {
		sks_detached();
		module_put(THIS_MODULE);
		end->tls = NULL;
		kfree(part);
		return -ENOMEM;
	}
	*spare = NULL;
	sks_endpoint_list(end, sk);
	sk->sk_destruct = hooked_destruct;
	WRITE_ONCE(sk->sk_prot, (struct proto *)&part->functions->prots[RESTING]);
	/* If it cannot be hooked, the endpoint rests. */
	return hook(sk, end) ? 0 : -EINVAL;
}

/* Software kTLS, in both directions or one. */
static bool suits(const struct sock *sk)
{
	const struct tls_context *ctx = tls_get_ctx(sk);

	return ctx && (ctx->tx_conf == TLS_BASE || ctx->tx_conf == TLS_SW) &&
	       (ctx->rx_conf == TLS_BASE || ctx->rx_conf == TLS_SW) && !sk->sk_kern_sock &&
	       !tcp_sk(sk)->repair && is_plain(sk);
}

static int tls_claim(struct sock *sk, struct splice_endpoint *end, struct splice_endpoint **spare)
{
	sock_owned_by_me(sk);
	if (sk->sk_state == TCP_CLOSE || !sk->sk_socket)
		return -ENOTCONN;
	if (end && end->hooked)
		return has_hooks(sk, end) ? 0 : -EINVAL;
	if (!suits(sk))
		return -EINVAL;
	if (end)
		return hook(sk, end) ? 0 : -EINVAL;
	return attach(sk, spare);
}

static void tls_wake(struct sock *sk)
{
	sock_owned_by_me(sk);
	wake_up_interruptible_all(sk_sleep(sk));
	if (sk->sk_prot->sock_is_readable && sk->sk_prot->sock_is_readable(sk))
		sks_callbacks_plain_ready(sk);	/* SIGIO */
}

/* The functions of struct proto */

static void hooked_release_cb(struct sock *sk)
{
	struct splice_endpoint *end = sks_endpoint_in_table(sk);

	tcp_prot.release_cb(sk);
	if (end && end->wanted) {
		end->wanted = false;
		sks_endpoint_queue(end);
	}
}

/* No mover is in TLS's sendmsg: it holds the file meanwhile. */
static void hooked_close(struct sock *sk, long timeout)
{
	const struct tls_functions *f = functions_of(sk);
	struct splice_endpoint *end;

	sks_enter();
	lock_sock(sk);
	end = sks_endpoint_in_table(sk);
	if (end) {
		sks_splice_detach_on_close(sk, end);
		tls_detach(sk, end);
	}
	release_sock(sk);
	(f ? f->base.close : READ_ONCE(sk->sk_prot)->close)(sk, timeout);
	sks_leave();
}

static int hooked_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			  int flags COMPAT_ADDR_LEN_PARAM)
{
	const struct tls_functions *f = functions_of(sk);
	int ret = 0;

	sks_enter();
	if (!(flags & (MSG_ERRQUEUE | MSG_OOB)))
		ret = sks_endpoint_reader_wait(sk, flags & MSG_DONTWAIT);
	if (!ret && f)
		ret = f->base.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	else if (!ret)
		ret = READ_ONCE(sk->sk_prot)->recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	sks_leave();
	return ret;
}

/* Options for which TLS sets the functions of the socket, or that want a socket that nothing else
 * uses. They get it if the socket has no splice.
 */
static int hooked_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			     unsigned int optlen)
{
	const bool keys = level == SOL_TLS && (optname == TLS_TX || optname == TLS_RX);
	const struct tls_functions *f = functions_of(sk);
	int ret = 0;

	sks_enter();
	if (keys || sks_proto_wants_plain(sk, level, optname, optlen))
		ret = sks_endpoint_make_plain(sk);
	if (!ret && f)
		ret = f->base.setsockopt(sk, level, optname, optval, optlen);
	else if (!ret)
		ret = READ_ONCE(sk->sk_prot)->setsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

static int hooked_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			     int __user *optlen)
{
	const struct tls_functions *f = functions_of(sk);
	int ret;

	sks_enter();
	if (sks_endpoint_hides(sk, level, optname))
		ret = -EBUSY;
	else if (f)
		ret = f->base.getsockopt(sk, level, optname, optval, optlen);
	else
		ret = READ_ONCE(sk->sk_prot)->getsockopt(sk, level, optname, optval, optlen);
	sks_leave();
	return ret;
}

/* The functions of struct proto_ops */

static __poll_t hooked_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	const struct proto_ops *ops = READ_ONCE(sock->ops);
	const struct tls_functions *f = functions_of_ops(ops);
	__poll_t mask;

	sks_enter();
	mask = f ? sks_endpoint_poll(f->base_ops.poll, file, sock, wait) :
		   ops->poll(file, sock, wait);
	sks_leave();
	return mask;
}

static ssize_t hooked_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
				  size_t len, unsigned int flags)
{
	const struct proto_ops *ops = READ_ONCE(sock->ops);
	const struct tls_functions *f = functions_of_ops(ops);
	ssize_t ret;

	sks_enter();
	ret = sks_endpoint_reader_wait(sock->sk, sock->file->f_flags & O_NONBLOCK);
	if (!ret)
		ret = (f ? &f->base_ops : ops)->splice_read(sock, ppos, pipe, len, flags);
	sks_leave();
	return ret;
}

static void functions_make(struct tls_functions *f)
{
	struct proto *rest = &f->prots[RESTING], *sink = &f->prots[SINK];
	struct proto *source = &f->prots[SOURCE];

	memcpy(rest, &f->base, sizeof(*rest));
	rest->close = hooked_close;
	rest->setsockopt = hooked_setsockopt;
	rest->getsockopt = hooked_getsockopt;
#ifdef CONFIG_BPF_SYSCALL
	rest->psock_update_sk_prot = NULL;	/* no sockmap */
#endif
	memcpy(sink, rest, sizeof(*sink));
	sink->release_cb = hooked_release_cb;
	memcpy(source, sink, sizeof(*source));
	source->recvmsg = hooked_recvmsg;

	memcpy(&f->ops[0], &f->base_ops, sizeof(f->ops[0]));	/* this includes the owner */
	f->ops[0].poll = hooked_poll;
	f->ops[0].accept = sock_no_accept;	/* as in endpoint_ops.c */
	memcpy(&f->ops[1], &f->ops[0], sizeof(f->ops[1]));
	f->ops[1].splice_read = hooked_splice_read;
	f->ops[1].set_rcvlowat = sks_endpoint_set_rcvlowat;
}

static const struct endpoint_kind kind = {
	.claim = tls_claim,
	.update = tls_update,
	.detach = tls_detach,
	.wake = tls_wake,
};

void __init sks_tls_endpoint_init(void)
{
	sks_endpoint_register_tls(&kind);
}
