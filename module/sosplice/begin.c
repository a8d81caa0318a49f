// SPDX-License-Identifier: GPL-2.0
/*
 * How a splice begins. Both sockets are claimed, one after the other, and point to the splice.
 * Nothing moves yet. Tasks that sleep in TCP's recvmsg of the source are evicted. Then the caller
 * of setsockopt() moves what is queued, before it returns. So what the application writes to the
 * sink next comes after that. An error that ends the splice at once is in SO_ERROR by then.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "core/inflight.h"
#include "core/params.h"
#include "core/stats.h"
#include "sosplice/begin.h"
#include "sosplice/datagram_endpoint.h"
#include "sosplice/end_all.h"
#include "sosplice/endpoint.h"
#include "sosplice/evict.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/mover.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"
#include "sosplice/tls.h"
#include "sosplice/tls_endpoint.h"

#define START_WAIT	HZ	/* jiffies */

bool sks_splice_enabled;

static int unsplice(struct sock *sk)
{
	struct splice_endpoint *end;
	struct splice *s;
	int err = 0;

	lock_sock(sk);
	end = sks_endpoint_of(sk);
	s = end ? end->out : NULL;
	if (s)
		sks_splice_end(s, 0);
	else
		err = sk->sk_state == TCP_LISTEN ? -EOPNOTSUPP : -ENOTCONN;
	release_sock(sk);
	return err;
}

static bool may_splice(void)
{
	if (READ_ONCE(sks_unprivileged_splice) && current_user_ns() == &init_user_ns)
		return true;
	return capable(CAP_NET_ADMIN);
}

bool sks_splice_can(const struct sock *sk)
{
	if (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)
		return false;
	return (sk->sk_type == SOCK_STREAM && sk->sk_protocol == IPPROTO_TCP) ||
	       (sk->sk_type == SOCK_DGRAM && sk->sk_protocol == IPPROTO_UDP);
}

/* Claims the source. Under its lock. */
static int take_source(struct splice *s, struct splice_endpoint **spare)
{
	struct sock *sk = s->src;
	struct splice_endpoint *end;
	int err;

	s->src_tls = sks_splice_is_tls(sk);
	if (s->src_tls && !sks_tls_can_read(sk))
		return -EINVAL;
	err = sks_endpoint_claim(sk, spare);
	if (err)
		return err;
	end = sks_endpoint_of(sk);
	if (end->out)
		return -EBUSY;
	refcount_inc(&s->ref);
	smp_store_release(&end->out, s);	/* publishes the complete splice; pairs with
						 * takes_data()
						 */
	sks_splices_add(s);
	sks_stat_inc(SOCKSPLICE_STAT_so_splices_made);
	sks_endpoint_update(sk, end);
	return 0;
}

/* Claims the sink. Under its lock. */
static int take_sink(struct splice *s, struct splice_endpoint **spare)
{
	struct sock *sk = s->dst;
	struct splice_endpoint *end;
	int err;

	if (s->datagrams && sks_datagram_is_corked(sk))
		return -EBUSY;
	s->dst_tls = sks_splice_is_tls(sk);
	/* With kTLS the mover sends with the source's lock held. */
	if (s->dst_tls && (!sks_tls_can_write(sk) || sk == s->src))
		return -EINVAL;
	err = sks_endpoint_claim(sk, spare);
	if (err)
		return err;
	end = sks_endpoint_of(sk);
	if (end->in) {
		if (!test_bit(SPLICE_ENDED, &end->in->flags))
			return -EBUSY;
		/* An attempt that failed has left its endpoint here. It is this one's now. */
		if (test_bit(SPLICE_UNDONE, &end->in->flags))
			set_bit(SPLICE_SINK_FRESH, &s->flags);
		clear_bit(SPLICE_SINK_KNOWS, &end->in->flags);
		sks_splice_put(end->in);
	}
	refcount_inc(&s->ref);
	WRITE_ONCE(end->in, s);
	set_bit(SPLICE_SINK_KNOWS, &s->flags);
	/* splice() looks for SPLICE_ENDED next. Pairs with queue_work(), between that bit and the
	 * mover's look at this one.
	 */
	smp_mb__after_atomic();
	sks_endpoint_update(sk, end);
	return 0;
}

/* Checks the sink before the source is claimed. So a source does not notice that its sink is
 * refused.
 */
static int check_sink(struct sock *sk)
{
	struct splice_endpoint *end;
	int err = 0;

	lock_sock(sk);
	end = sks_endpoint_of(sk);
	if (sk->sk_state == TCP_LISTEN)
		err = -EOPNOTSUPP;
	else if (sk->sk_state == TCP_CLOSE)
		err = -ENOTCONN;
	else if (sks_splice_is_udp(sk) && sks_datagram_is_corked(sk))
		err = -EBUSY;
	else if (end && end->in && !test_bit(SPLICE_ENDED, &end->in->flags))
		err = -EBUSY;
	release_sock(sk);
	return err;
}

/* Ends a splice that has moved nothing. False if it has moved bytes or has ended. @fresh: the
 * source, and the sink, got its endpoint for this splice.
 */
static bool undo(struct splice *s, const bool fresh[2])
{
	struct sock *src = s->src;
	struct splice_endpoint *end;
	bool undone;

	lock_sock(src);
	end = sks_endpoint_of(src);
	undone = end && end->out == s && !s->moved;
	if (undone) {
		/* The mover detaches the sink's endpoint, because a task may own that lock for
		 * ever.
		 */
		if (fresh[1] || test_bit(SPLICE_SINK_FRESH, &s->flags) ||
		    (fresh[0] && s->dst == src))
			set_bit(SPLICE_UNDONE, &s->flags);
		if (test_bit(SPLICE_RUNNING, &s->flags))
			WRITE_ONCE(end->moved, s->moved_before);
		sks_splice_end(s, 0);
		if (fresh[0] && !end->in)
			sks_endpoint_detach(src);
	}
	release_sock(src);
	return undone;
}

/* Bytes that the source has queued: at least as many as there are, for a UDP socket or with kTLS.
 * The source is locked.
 */
static u64 unread(const struct sock *sk)
{
	if (sks_splice_is_udp(sk))
		return sk_rmem_alloc_get(sk);
	return tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->copied_seq + sks_paired_io_unread(sk) +
	       (sks_splice_is_tls(sk) ? sks_tls_unread(sk) : 0);
}

/* Evicts the readers in TCP's own function, and lets the mover run. After START_WAIT the mover
 * evicts those that are left, before it moves anything.
 */
static int let_run(struct splice *s)
{
	const unsigned long until = jiffies + START_WAIT;
	struct sock *sk = s->src;
	struct splice_endpoint *end;
	bool go;

	for (;;) {
		lock_sock(sk);
		go = s->datagrams || !sks_evict_expel(sk) || time_after(jiffies, until);
		if (go) {
			end = sks_endpoint_of(sk);
			if (end && end->out == s) {
				s->moved_before = end->moved;
				WRITE_ONCE(end->moved, 0);
			}
			s->queued = unread(sk);
			s->last = jiffies;	/* the idle time starts here */
			set_bit(SPLICE_RUNNING, &s->flags);
			/* Set the bit before the mover looks at the ring: a sender that appends
			 * queues the mover (takes_data()). Set endpoint->out before it looks at
			 * UDP's queue: pairs with hooked_data_ready().
			 */
			smp_mb__after_atomic();
			/* A CPU that has read a UDP socket's sk_data_ready before the splice may
			 * report its datagram to nobody. Look once more when it is visible.
			 */
			if (s->datagrams)
				sks_mover_tick(s, 1);
		}
		release_sock(sk);
		if (go)
			return 0;
		if (signal_pending(current))
			return -ERESTARTSYS;
		schedule_timeout_interruptible(1);
	}
}

/* Waits until the mover has moved what was queued when the splice began. A signal ends the wait,
 * because a task may own the sink's lock for ever. If another reader of the source comes first,
 * the wait ends after START_WAIT.
 */
static int wait_settled(struct splice *s)
{
	long ret;

	do
		ret = wait_for_completion_interruptible_timeout(&s->settled, START_WAIT);
	while (!ret && !READ_ONCE(s->awaits_reader));
	return min(ret, 0L);
}

/* Returns 0 once the splice has begun, even if it has ended by then. */
static int start(struct splice *s, const bool fresh[2])
{
	int err = let_run(s);

	if (!err) {
		sks_mover_begin(s);
		err = wait_settled(s);
	}
	if (!err || undo(s, fresh))
		return err;
	/* It is too late to report that nothing was moved. */
	wait_for_completion_killable(&s->settled);
	return 0;
}

/* Claims one of the sockets by @take_it. *@fresh: the socket got its endpoint for that. */
static int take(struct splice *s, struct sock *sk, bool *fresh,
		int (*take_it)(struct splice *s, struct splice_endpoint **spare))
{
	struct splice_endpoint *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	int err;

	if (!spare)
		return -ENOMEM;
	lock_sock(sk);
	err = take_it(s, &spare);
	*fresh = !spare;
	if (err && *fresh)
		sks_endpoint_detach(sk);
	release_sock(sk);
	kfree(spare);
	return err;
}

static int splice(struct sock *src, struct sock *dst, s64 max, u64 idle_us)
{
	bool fresh[2] = {};	/* source, sink */
	struct splice *s;
	int err;

	s = sks_splice_alloc(src, dst, max, idle_us, sks_mover_work);
	if (!s)
		return -ENOMEM;
	err = take(s, src, &fresh[0], take_source);
	if (!err) {
		err = take(s, dst, &fresh[1], take_sink);
		if (err) {
			fresh[1] = false;
			undo(s, fresh);
		} else {
			/* If the splice ended before the sink was claimed, the mover has run in
			 * vain: it would have looked for SPLICE_SINK_KNOWS. So queue it again.
			 */
			if (test_bit(SPLICE_ENDED, &s->flags))
				sks_mover_queue(s);
			err = start(s, fresh);
		}
	}
	sks_splice_put(s);
	return err;
}

/* Asks security modules about a read(2) from the one and a write(2) to the other. */
static int may_move(const struct socket *src, const struct socket *dst)
{
	int err;

	err = src->file ? rw_verify_area(READ, src->file, NULL, 1) : 0;
	return err ?: rw_verify_area(WRITE, dst->file, NULL, 1);
}

int sks_splice_set(struct sock *src, int fd, s64 max, u64 idle_us)
{
	struct socket *sock;
	struct splice_endpoint *end;
	bool busy;
	int err = 0;

	if (fd >= 0 && !(READ_ONCE(sks_splice_enabled) && READ_ONCE(sks_loaded)))
		return -ENOPROTOOPT;
	if (!sks_splice_can(src))
		return -EPROTONOSUPPORT;
	if (max < 0)
		return -EINVAL;
	if (fd < 0)
		return unsplice(src);
	if (!may_splice())
		return -EPERM;

	lock_sock(src);
	end = sks_endpoint_of(src);
	busy = end && end->out;
	if (src->sk_state == TCP_LISTEN)
		err = -EOPNOTSUPP;
	else if (src->sk_state == TCP_CLOSE && !sks_splice_is_udp(src))
		err = -ENOTCONN;
	release_sock(src);
	if (err)
		return err;

	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return err;
	err = may_move(src->sk_socket, sock);
	if (err)
		goto put;
	if (!sks_splice_can(sock->sk) || sock->sk->sk_protocol != src->sk_protocol)
		err = -EPROTONOSUPPORT;
	else if (sks_splice_is_udp(src) && sock->sk == src)
		err = -EINVAL;	/* the mover sends with the source's lock held */
	else if (busy)
		err = -EBUSY;
	else
		err = check_sink(sock->sk);
	if (!err)
		err = splice(src, sock->sk, max, idle_us);
put:
	sockfd_put(sock);
	return err;
}

u64 sks_splice_moved(const struct sock *sk)
{
	struct splice_endpoint *end;
	u64 moved;

	rcu_read_lock();
	end = sks_endpoint_of_rcu(sk);
	/* A caller that has the last count finds the error; pairs with sks_splice_show_count() */
	moved = end ? smp_load_acquire(&end->moved) : 0;
	rcu_read_unlock();
	return moved;
}

int __init sks_splice_init(void)
{
	int err = sks_endpoint_init();

	sks_loop_init();
	sks_tls_endpoint_init();
	err = err ?: sks_splices_init();
	return err ?: sks_datagram_endpoint_init();
}

void sks_splice_exit(void)
{
	sks_endpoint_drop_exit();
	sks_splices_exit();
}
