// SPDX-License-Identifier: GPL-2.0
/*
 * One splice: how it begins and how it ends.
 *
 * Beginning. Both sockets are claimed, one after the other, and point to the splice;
 * nothing moves yet. Tasks that sleep in TCP's recvmsg of the source are sent out of
 * it. Then the caller moves what is queued, before it returns: what the application writes
 * to the sink next comes behind that, and an error that ends the splice at once is there.
 *
 * Ending. socksplice_sosplice_end() frees the source: what is in its queue, which is what
 * the sink has not got, is the application's. The mover then takes the sink's pointer back
 * (or who splices into it next does).
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "admit/enroll.h"
#include "core/stats.h"
#include "core/trace.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"

#define START_WAIT	HZ	/* jiffies */

bool socksplice_sosplice_enabled;
bool socksplice_sosplice_unprivileged = true;

static struct order sosplices;			/* sosplices_lock */
static unsigned int sosplices_live;		/* sosplices_lock; read without */
static DEFINE_SPINLOCK(sosplices_lock);
static atomic_t sosplices_held = ATOMIC_INIT(0);	/* not freed yet, ended or not */

unsigned int socksplice_sosplices_live(void)
{
	return READ_ONCE(sosplices_live);
}

static void free_rcu(struct rcu_head *rcu)
{
	struct sosplice *s = container_of(rcu, struct sosplice, rcu);

	sock_put(s->src);
	sock_put(s->dst);
	socksplice_budget_put(s->user);
	mem_cgroup_put(s->memcg);
	if (s->frag.page)
		put_page(s->frag.page);
	kfree(s);
	atomic_dec(&sosplices_held);
}

void socksplice_sosplice_put(struct sosplice *s)
{
	if (refcount_dec_and_test(&s->ref))
		call_rcu_hurry(&s->rcu, free_rcu);	/* it keeps sockets and their namespaces */
}

static void all_in(struct sosplice *s)
{
	spin_lock(&sosplices_lock);
	order_add(&sosplices, &s->all);
	WRITE_ONCE(sosplices_live, sosplices_live + 1);
	spin_unlock(&sosplices_lock);
}

static void all_out(struct sosplice *s)
{
	spin_lock(&sosplices_lock);
	order_del(&sosplices, &s->all);
	WRITE_ONCE(sosplices_live, sosplices_live - 1);
	spin_unlock(&sosplices_lock);
}

int socksplice_sosplices_walk(u64 *last, int (*fn)(struct sosplice *s, void *arg),
			      void *arg)
{
	struct order_node *n;
	int err = 0;

	spin_lock(&sosplices_lock);
	for (n = order_behind(&sosplices, *last); n; n = order_next(n)) {
		err = fn(container_of(n, struct sosplice, all), arg);
		if (err)
			break;
		*last = n->number;
	}
	spin_unlock(&sosplices_lock);
	return err;
}

void socksplice_sosplice_settle(struct sosplice *s)
{
	if (!test_bit(SOSPLICE_SETTLED, &s->flags) &&
	    !test_and_set_bit(SOSPLICE_SETTLED, &s->flags))
		complete_all(&s->settled);
}

/* Nobody finds it any more but its sink, and who splices into that finds it ended. */
static void retire(struct sosplice *s)
{
	set_bit(SOSPLICE_ENDED, &s->flags);
	socksplice_sosplice_settle(s);
	all_out(s);
	socksplice_loop_forget(s);
	socksplice_mover_stop_tick(s);
	socksplice_budget_forget(s);
}

/* Drops the source's reference. */
static void bury(struct sosplice *s, int err)
{
	socksplice_stat_inc(SOCKSPLICE_STAT_so_splices_ended);
	trace_so_splice_end(s->src, s->dst, s->moved, err);
	socksplice_mover_queue(s);	/* for the sink */
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_end(struct sosplice *s, int err)
{
	struct sock *sk = s->src;
	struct soend *end = socksplice_soend_get(sk);

	sock_owned_by_me(sk);
	if (WARN_ON_ONCE(!end || end->out != s))
		return;

	retire(s);
	WRITE_ONCE(end->out, NULL);
	socksplice_soend_update(sk, end);

	if (err && !sk->sk_err) {
		end->err = err;
		WRITE_ONCE(sk->sk_err, err);
		sk_error_report(sk);
	}
	socksplice_soend_wake(sk);
	bury(s, err);
}

void socksplice_sosplice_end_orphan(struct sosplice *s)
{
	retire(s);
	bury(s, 0);
}

static void leave_as_sink(struct soend *end)
{
	struct sosplice *s = end->in;

	if (!s)
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SOSPLICE_SINK_KNOWS, &s->flags);
	set_bit(SOSPLICE_SINK_GONE, &s->flags);
	socksplice_mover_queue(s);
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_leave(struct sock *sk, struct soend *end)
{
	sock_owned_by_me(sk);
	leave_as_sink(end);
	if (end->out)
		socksplice_sosplice_end(end->out, 0);
	socksplice_soend_update(sk, end);
}

void socksplice_sosplice_abandon(struct soend *end)
{
	struct sosplice *s = end->out;

	leave_as_sink(end);
	if (!s)
		return;
	WRITE_ONCE(end->out, NULL);
	refcount_inc(&s->ref);	/* the bit gives away the source's */
	set_bit(SOSPLICE_SOURCE_GONE, &s->flags);
	socksplice_mover_queue(s);
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_tidy(struct sock *sk, struct soend *end)
{
	struct sosplice *s = end->in;

	sock_owned_by_me(sk);
	if (!s || !test_bit(SOSPLICE_ENDED, &s->flags))
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SOSPLICE_SINK_KNOWS, &s->flags);
	socksplice_soend_update(sk, end);
	socksplice_sosplice_put(s);
}

static int unsplice(struct sock *sk)
{
	struct soend *end;
	struct sosplice *s;
	int err = 0;

	lock_sock(sk);
	end = socksplice_soend_get(sk);
	s = end ? end->out : NULL;
	if (s)
		socksplice_sosplice_end(s, 0);
	else
		err = sk->sk_state == TCP_LISTEN ? -EOPNOTSUPP : -ENOTCONN;
	release_sock(sk);
	return err;
}

static bool may_splice(void)
{
	if (READ_ONCE(socksplice_sosplice_unprivileged) &&
	    current_user_ns() == &init_user_ns)
		return true;
	return capable(CAP_NET_ADMIN);
}

bool socksplice_sosplice_is_tcp(const struct sock *sk)
{
	return (sk->sk_family == AF_INET || sk->sk_family == AF_INET6) &&
	       sk->sk_type == SOCK_STREAM && sk->sk_protocol == IPPROTO_TCP;
}

static struct sosplice *sosplice_alloc(struct sock *src, struct sock *dst, s64 max,
				       u64 idle_us)
{
	struct sosplice *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);

	if (!s)
		return NULL;
	s->uid = current_uid();
	s->user = socksplice_budget_get(s->uid);
	if (!s->user) {
		kfree(s);
		return NULL;
	}
	atomic_inc(&sosplices_held);
	sock_hold(src);
	sock_hold(dst);
	s->src = src;
	s->dst = dst;
	s->max = max;
	/* No shorter than asked for, and not so long that time wraps. */
	s->idle = min_t(u64, DIV64_U64_ROUND_UP(idle_us * HZ, USEC_PER_SEC),
			MAX_JIFFY_OFFSET / 2);
	s->start = ktime_get_ns();
	refcount_set(&s->ref, 1);
	s->memcg = get_mem_cgroup_from_mm(current->mm);
	INIT_HLIST_NODE(&s->loop_source);
	INIT_HLIST_NODE(&s->loop_sink);
	INIT_LIST_HEAD(&s->line);
	init_completion(&s->settled);
	socksplice_mover_prepare(s);
	return s;
}

/* Under the source's lock. */
static int take_source(struct sosplice *s, struct soend **spare)
{
	struct sock *sk = s->src;
	struct soend *end;
	int err;

	err = socksplice_soend_claim(sk, spare);
	if (err)
		return err;
	end = socksplice_soend_get(sk);
	if (end->out)
		return -EBUSY;
	refcount_inc(&s->ref);
	smp_store_release(&end->out, s);	/* whole, for socksplice_leg_wake() */
	all_in(s);
	socksplice_stat_inc(SOCKSPLICE_STAT_so_splices_made);
	socksplice_soend_update(sk, end);
	return 0;
}

/* Under the sink's lock. */
static int take_sink(struct sosplice *s, struct soend **spare)
{
	struct sock *sk = s->dst;
	struct soend *end;
	int err;

	err = socksplice_soend_claim(sk, spare);
	if (err)
		return err;
	end = socksplice_soend_get(sk);
	if (end->in) {
		if (!test_bit(SOSPLICE_ENDED, &end->in->flags))
			return -EBUSY;
		clear_bit(SOSPLICE_SINK_KNOWS, &end->in->flags);
		socksplice_sosplice_put(end->in);
	}
	refcount_inc(&s->ref);
	WRITE_ONCE(end->in, s);
	set_bit(SOSPLICE_SINK_KNOWS, &s->flags);
	socksplice_soend_update(sk, end);
	return 0;
}

/* Sees to it that a source does not notice when its sink is refused. */
static int check_sink(struct sock *sk)
{
	struct soend *end;
	int err = 0;

	lock_sock(sk);
	end = socksplice_soend_get(sk);
	if (sk->sk_state == TCP_LISTEN)
		err = -EOPNOTSUPP;
	else if (sk->sk_state == TCP_CLOSE)
		err = -ENOTCONN;
	else if (end && end->in && !test_bit(SOSPLICE_ENDED, &end->in->flags))
		err = -EBUSY;
	release_sock(sk);
	return err;
}

/* Whether it was in time to end a splice that has moved nothing. */
static bool undo(struct sosplice *s, const bool fresh[2])
{
	struct sock *src = s->src;
	struct soend *end;
	bool undone;

	lock_sock(src);
	end = socksplice_soend_get(src);
	undone = end && end->out == s && !s->moved;
	if (undone) {
		/* The mover detaches the sink's: its lock may be somebody's for ever. */
		if (fresh[1] || (fresh[0] && s->dst == src))
			set_bit(SOSPLICE_UNDONE, &s->flags);
		socksplice_sosplice_end(s, 0);
		if (fresh[0] && !end->in)
			socksplice_soend_detach(src);
	}
	release_sock(src);
	return undone;
}

/* Has those leave who read by TCP's own function, and lets the mover move. It sees to those
 * that take longer, before it moves anything.
 */
static int let_run(struct sosplice *s)
{
	const unsigned long until = jiffies + START_WAIT;
	struct sock *sk = s->src;
	struct soend *end;
	bool go;

	for (;;) {
		lock_sock(sk);
		go = !socksplice_sleeper_expel(sk) || time_after(jiffies, until);
		if (go) {
			end = socksplice_soend_get(sk);
			if (end && end->out == s)
				WRITE_ONCE(end->moved, 0);
			s->queued = tcp_sk(sk)->rcv_nxt - tcp_sk(sk)->copied_seq +
				    socksplice_leg_unread(sk);
			s->last = jiffies;	/* the idle time begins */
			set_bit(SOSPLICE_RUNNING, &s->flags);
			/* Before the mover looks at the ring: see socksplice_leg_wake(). */
			smp_mb__after_atomic();
		}
		release_sock(sk);
		if (go)
			return 0;
		if (signal_pending(current))
			return -ERESTARTSYS;
		schedule_timeout_interruptible(1);
	}
}

/* Until the mover has moved what was queued when the splice began. A task may own the
 * sink's lock for ever; a reader that was there before gets no more than its time.
 */
static int wait_settled(struct sosplice *s)
{
	long ret;

	do
		ret = wait_for_completion_interruptible_timeout(&s->settled, START_WAIT);
	while (!ret && !READ_ONCE(s->awaits_reader));
	return min(ret, 0L);
}

/* 0 once the splice has begun, whether or not it has ended by then. */
static int start(struct sosplice *s, const bool fresh[2])
{
	int err = let_run(s);

	if (!err) {
		socksplice_mover_begin(s);
		err = wait_settled(s);
	}
	if (!err || undo(s, fresh))
		return err;
	/* Too late to say that nothing was moved. */
	wait_for_completion_killable(&s->settled);
	return 0;
}

/* Takes one of the sockets by @take. *@fresh: it got its end for that. */
static int take(struct sosplice *s, struct sock *sk, bool *fresh,
		int (*take_it)(struct sosplice *s, struct soend **spare))
{
	struct soend *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	int err;

	if (!spare)
		return -ENOMEM;
	lock_sock(sk);
	err = take_it(s, &spare);
	*fresh = !spare;
	if (err && *fresh)
		socksplice_soend_detach(sk);
	release_sock(sk);
	kfree(spare);
	return err;
}

static int splice(struct sock *src, struct sock *dst, s64 max, u64 idle_us)
{
	bool fresh[2] = {};	/* source, sink */
	struct sosplice *s;
	int err;

	s = sosplice_alloc(src, dst, max, idle_us);
	if (!s)
		return -ENOMEM;
	err = take(s, src, &fresh[0], take_source);
	if (!err) {
		err = take(s, dst, &fresh[1], take_sink);
		if (err) {
			fresh[1] = false;
			undo(s, fresh);
		} else {
			/* If it ended before the sink was taken, the mover has been here in
			 * vain: it would have looked for SOSPLICE_SINK_KNOWS.
			 */
			if (test_bit(SOSPLICE_ENDED, &s->flags))
				socksplice_mover_queue(s);
			err = start(s, fresh);
		}
	}
	socksplice_sosplice_put(s);
	return err;
}

/* What security modules say of a read(2) from the one and a write(2) to the other. */
static int may_move(const struct socket *src, const struct socket *dst)
{
	int err;

	err = src->file ? rw_verify_area(READ, src->file, NULL, 1) : 0;
	return err ?: rw_verify_area(WRITE, dst->file, NULL, 1);
}

int socksplice_sosplice_set(struct sock *src, int fd, s64 max, u64 idle_us)
{
	struct socket *sock;
	struct soend *end;
	bool busy;
	int err = 0;

	if (fd >= 0 && !(READ_ONCE(socksplice_sosplice_enabled) && READ_ONCE(socksplice_loaded)))
		return -ENOPROTOOPT;
	if (!socksplice_sosplice_is_tcp(src))
		return -EPROTONOSUPPORT;
	if (max < 0)
		return -EINVAL;
	if (fd < 0)
		return unsplice(src);
	if (!may_splice())
		return -EPERM;

	lock_sock(src);
	end = socksplice_soend_get(src);
	busy = end && end->out;
	if (src->sk_state == TCP_LISTEN)
		err = -EOPNOTSUPP;
	else if (src->sk_state == TCP_CLOSE)
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
	if (!socksplice_sosplice_is_tcp(sock->sk))
		err = -EPROTONOSUPPORT;
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

u64 socksplice_sosplice_moved(const struct sock *sk)
{
	struct soend *end;
	u64 moved;

	rcu_read_lock();
	end = socksplice_soend_get_rcu(sk);
	moved = end ? READ_ONCE(end->moved) : 0;
	rcu_read_unlock();
	return moved;
}

int socksplice_sosplice_init(void)
{
	int err = socksplice_soend_init();

	socksplice_loop_init();
	return err ? : socksplice_mover_init();
}

void socksplice_sosplice_exit(void)
{
	/* All have ended, and no sink points to one: a soend that does would hold the module.
	 * What holds them are works and ticks, which end soon: the mover waits for no socket's
	 * lock, and tries that of a sink again only while the sink points to the splice.
	 */
	while (atomic_read(&sosplices_held))
		msleep(20);
	rcu_barrier();	/* the last one's function returns */
	socksplice_budget_exit();
	socksplice_soend_exit();
	socksplice_mover_exit();
}
