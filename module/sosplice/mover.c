// SPDX-License-Identifier: GPL-2.0
/*
 * The mover: carries what the source has received to the sink, by reference.
 *
 * A round has both sockets locked: the pages of what stands next in the source's queue
 * are sent by the sink, as far as there is room, and then what was sent leaves the queue.
 * So whoever else reads the source, even in TCP's own function, gets what the sink does
 * not, and who ends the splice finds nothing half done.
 *
 * It runs on a workqueue, for what arrives by TCP on the CPU of the sink's acknowledgments,
 * else where it is queued. Where the data arrive would be another's CPU: the sender's, which
 * it would take from him for each packet, or the one with the source's interrupts. It tries
 * sockets' locks and never waits for one: a task may own a socket across a page fault
 * that never ends, and another mover may have the same two the other way round.
 * endpoint->wanted has it come back, and a tick should the socket's hooks have gone
 * meanwhile.
 */
#include <linux/bvec.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "pair/end.h"
#include "sosplice/batch.h"
#include "sosplice/budget.h"
#include "sosplice/endpoint.h"
#include "sosplice/evict.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/mover.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"

#define MOVER_BUDGET	(256U << 10)	/* bytes, until others get the CPU */
#define MOVER_BACKOFF_MAX	(HZ / 10 ? : 1)	/* jiffies */

enum mover_next {
	NEXT_WAIT,	/* until something happens */
	NEXT_NOW,	/* behind others */
	NEXT_LATER,	/* soon: memory was not to be had */
	NEXT_BUSY,	/* soon: another task has a socket, or is in the middle of a read */
	NEXT_ROUND,	/* at once */
};

/* Whether data stand in the queue or the ring, whatever becomes of them. */
static bool has_data(struct sock *sk)
{
	struct sk_buff *skb;
	u32 off;

	if (sks_paired_io_unread(sk))
		return true;
	skb = tcp_recv_skb(sk, tcp_sk(sk)->copied_seq, &off);
	return skb && off < skb->len;
}

/* Whether TCP may forget its urgent byte. On TCP a byte of one's own that is not read before
 * those behind it is lost; of those that the kernel moves the application knows nothing. Not
 * for ever: so far behind, its mark would be taken for one ahead.
 */
static bool urgent_is_over(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!after(tp->copied_seq, tp->urg_seq))
		return false;
	return sock_flag(sk, SOCK_URGINLINE) || tp->urg_data == TCP_URG_READ ||
	       tp->copied_seq - tp->urg_seq > SZ_1G;
}

/* Takes @sent bytes, which the sink has got, from the source's queue or its @ring. */
static void settle(struct splice *s, u32 sent, bool ring)
{
	struct sock *sk = s->src;
	struct tcp_sock *tp = tcp_sk(sk);

	sock_owned_by_me(sk);
	if (!sent)
		return;
	if (ring)
		sks_paired_io_ring_done(sk, sent);
	else
		sks_paired_io_tcp_done(sk, sent);
	sk_peek_offset_bwd(sk, sent);
	if (unlikely(tp->urg_data) && urgent_is_over(sk)) {
		WRITE_ONCE(tp->urg_data, 0);
		tcp_fast_path_check(sk);
	}
	WRITE_ONCE(s->moved, s->moved + sent);
	WRITE_ONCE(sks_endpoint_get(sk)->moved, s->moved);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_bytes, sent);
	s->last = jiffies;
}

/* Without a lock: who closes or shuts down the sink has the mover look again. */
static bool sink_is_dead(const struct splice *s)
{
	return test_bit(SPLICE_SINK_GONE, &s->flags) ||
	       READ_ONCE(s->dst->sk_shutdown) & SEND_SHUTDOWN ||
	       inet_sk_state_load(s->dst) == TCP_CLOSE;
}

static bool sink_is_ours(const struct splice *s)
{
	const struct splice_endpoint *end = sks_endpoint_get(s->dst);

	return end && end->in == s && s->dst->sk_socket;
}

/* TCP_FASTOPEN_CONNECT: connect() has left the SYN to the first write. Sends it: 0 if what
 * comes of it changes the socket's state later, which has the mover look again; -EAGAIN; or
 * the error, which is the application's to see.
 */
static int connect_deferred(struct sock *sk)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	int ret;

	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, NULL, 0, 0);
	ret = tcp_sendmsg_locked(sk, &msg, 0);
	if (ret == -EINPROGRESS)
		return 0;
	if ((ret == -EALREADY || ret == -ENOMEM || ret == -ENOBUFS) && sk->sk_state == TCP_SYN_SENT)
		return -EAGAIN;
	if (ret < 0 && !sk->sk_err) {
		WRITE_ONCE(sk->sk_err, -ret);
		sk_error_report(sk);
	}
	return ret;
}

/* Sends what it can of @b; the sink is locked. What went wrong, if not for want of
 * room, shows in sink_is_dead(), or *@err is set. *@needs_retry: nothing is in flight whose
 * acknowledgment would tell us of room.
 */
static u32 sink_send(struct splice *s, struct batch *b, int *err, bool *needs_retry)
{
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	struct sock *sk = s->dst;
	struct splice_endpoint *end = sks_endpoint_get(sk);
	bool taken = false;
	int own, ret;

	sock_owned_by_me(sk);
	*needs_retry = false;
	if (!sink_is_ours(s)) {
		*err = EPIPE;
		return 0;
	}
	if (sk->sk_state == TCP_SYN_SENT && inet_test_bit(DEFER_CONNECT, sk)) {
		ret = connect_deferred(sk);
		if (ret == -EAGAIN)
			*needs_retry = true;
		else if (ret < 0)
			*err = EPIPE;
		return 0;
	}
	if ((1 << sk->sk_state) & ~(TCPF_ESTABLISHED | TCPF_CLOSE_WAIT))
		return 0;	/* not connected yet, or dead */
	if (!test_bit(SPLICE_TRACED, &s->flags)) {
		sks_loop_ident(sk, &s->dst_id);
		set_bit(SPLICE_TRACED, &s->flags);
		if (sks_loop_closes(s)) {
			sks_stat_inc(SOCKSPLICE_STAT_so_splice_loops);
			*err = ELOOP;
			return 0;
		}
	}
	if (sks_paired_io_must_wait(sk)) {
		*needs_retry = true;
		return 0;
	}
	own = READ_ONCE(sk->sk_err);	/* getsockopt() clears it without the lock */
	if (own) {
		/* The error of a splice whose source this socket was is for its
		 * application: it neither keeps us from sending nor gets lost.
		 */
		if (own != end->err) {
			*err = own;
			return 0;
		}
		if (!sk_stream_memory_free(sk)) {
			set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
			return 0;
		}
		sks_endpoint_err_out(end);
		own = xchg(&sk->sk_err, 0);
		taken = true;
	}

	if (!b->ring)
		msg.msg_flags |= MSG_SPLICE_PAGES;
	if (b->oob)
		msg.msg_flags |= MSG_OOB;
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, b->bv, b->n, b->len);
	ret = sks_paired_io_send(sk, &msg, b->len, s->memcg);

	if (ret < 0 && ret != -EAGAIN && ret != -ENOMEM && ret != -ENOBUFS) {
		/* tcp_sendmsg_locked() has consumed the error. */
		if (ret != -EPIPE && !sk->sk_err) {
			WRITE_ONCE(sk->sk_err, -ret);
			sk_error_report(sk);
		}
		*err = -ret;
	}
	if (taken) {
		/* It was reported when it came. */
		if (own && !sk->sk_err)
			WRITE_ONCE(sk->sk_err, own);
		sks_endpoint_err_back(end);
	}
	*needs_retry = ret < (int)b->len && tcp_rtx_and_write_queues_empty(sk);
	return max(ret, 0);
}

/* Nothing moves just now, and the source is locked: has its time run out? */
static bool idle_is_over(struct splice *s)
{
	if (!s->idle)
		return false;
	if (time_after_eq(jiffies, s->last + s->idle))
		return true;
	if (!delayed_work_pending(&s->tick))
		sks_mover_tick(s, s->last + s->idle - jiffies);
	return false;
}

/* With the source locked. The errno that ends the splice, 0 for an end without one,
 * or -1 if it goes on.
 */
static int why_end(struct splice *s)
{
	if (s->src->sk_err)
		return 0;	/* stays for the application */
	if (s->max && s->moved >= s->max)
		return EFBIG;
	if (test_bit(SPLICE_DROP, &s->flags))
		return 0;
	if (sink_is_dead(s))
		return EPIPE;
	return -1;
}

/* What the sink's TCP makes one packet of, which may be segmented later; as
 * tcp_xmit_size_goal(). The sink is locked.
 */
static u32 sink_goal(const struct splice *s)
{
	const struct tcp_sock *tp = tcp_sk(s->dst);

	sock_owned_by_me(s->dst);
	return max_t(u32, tp->gso_segs, 1) * tp->mss_cache;
}

/* The sink would take nothing, and tells when it does: its queue is full. A corked one may
 * have room in its last packet, a paired one in its ring. What is wrong with it is for
 * sink_send().
 */
static bool sink_is_full(const struct splice *s)
{
	struct sock *sk = s->dst;

	sock_owned_by_me(sk);
	if (!test_bit(SPLICE_TRACED, &s->flags) || !sink_is_ours(s) || sk->sk_err ||
	    (1 << sk->sk_state) & ~(TCPF_ESTABLISHED | TCPF_CLOSE_WAIT) ||
	    sks_end_get(sk) || sk_stream_memory_free(sk) || !tcp_sk(sk)->packets_out)
		return false;
	set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	return true;
}

/* Both sockets are locked, and the source has data. *@why: as why_end(). */
static enum mover_next move(struct splice *s, u32 *left, int *why)
{
	const u32 goal = sink_goal(s);
	u32 limit = *left, sent;
	bool needs_retry, full;
	struct batch b;
	int err = 0;

	/* Where more is behind it, whole packets: what is over waits in the source's queue
	 * for the next time, which fills its packet.
	 */
	if (limit >= goal && limit < (u32)tcp_inq(s->src))
		limit -= limit % goal;
	if (s->max)
		limit = min_t(u64, limit, s->max - s->moved);
	if (!test_bit(SPLICE_TRACED, &s->flags))
		sks_loop_ident(s->src, &s->src_id);
	/* Before the batch, which takes time and may copy. */
	if (sink_is_full(s))
		return NEXT_WAIT;
	sks_batch_fill(s, &b, limit);
	if (!b.len) {
		if (b.foreign)
			*why = 0;	/* a read says what is the matter */
		/* An urgent byte was passed over, or there is no memory for a copy. */
		return has_data(s->src) ? NEXT_LATER : NEXT_ROUND;
	}
	sent = sink_send(s, &b, &err, &needs_retry);
	full = sent < b.len;
	sks_batch_free(&b);
	settle(s, sent, b.ring);
	*left -= min(*left, sent);

	if (err)
		*why = err;
	else if (full)
		*why = why_end(s);	/* the sink may have died of it */
	if (full)
		return needs_retry ? NEXT_LATER : NEXT_WAIT;
	return *left >= goal ? NEXT_ROUND : NEXT_NOW;
}

/* The source is locked: no reader is to take what it was to move, or to read on behind that. */
static bool may_take(struct splice *s, bool first)
{
	struct sock *src = s->src;
	const bool may = sks_paired_io_enter(src) &&
			 !(first && has_data(src) && sks_evict_expel(src));

	WRITE_ONCE(s->awaits_reader, !may);
	return may;
}

/* The source is locked. The beginning of the splice is over, for setsockopt() to return:
 * what was queued then has moved, or the sink does not take it now.
 */
static void note_settled(struct splice *s, enum mover_next next)
{
	if (next == NEXT_WAIT || next == NEXT_LATER || s->moved >= s->queued)
		sks_splice_settle(s);
}

/* The source is locked. Something has gone wrong with a sink that lives on, an ICMP error
 * for IP_RECVERR: sets *@why to it. False where the sink is busy.
 */
static bool note_sink_error(struct splice *s, int *why)
{
	struct sock *sk = s->dst;
	int own;

	if (likely(!READ_ONCE(sk->sk_err)) || sk == s->src)
		return true;
	if (!sks_endpoint_trylock(sk))
		return false;
	own = READ_ONCE(sk->sk_err);
	if (own && sink_is_ours(s) && own != sks_endpoint_get(sk)->err)
		*why = own;
	release_sock(sk);
	return true;
}

/* The source is locked, and has data. */
static enum mover_next lock_sink_and_move(struct splice *s, u32 *left, int *why)
{
	enum mover_next next;

	if (s->dst == s->src)
		return move(s, left, why);
	if (!sks_endpoint_trylock(s->dst))
		return NEXT_BUSY;
	next = move(s, left, why);
	release_sock(s->dst);
	return next;
}

/* The source is locked. */
static enum mover_next mover_round(struct splice *s, u32 *left)
{
	enum mover_next next = NEXT_WAIT;
	struct sock *src = s->src;
	int why = why_end(s);

	if (why < 0 && !note_sink_error(s, &why))
		next = NEXT_BUSY;
	else if (why < 0 && !may_take(s, *left == MOVER_BUDGET))
		next = NEXT_BUSY;
	else if (why < 0 && has_data(src))
		next = lock_sink_and_move(s, left, &why);
	else if (why < 0 && (src->sk_shutdown & RCV_SHUTDOWN || sock_flag(src, SOCK_DONE)))
		why = 0;
	if (why < 0 && next != NEXT_NOW && next != NEXT_ROUND && idle_is_over(s))
		why = ETIMEDOUT;
	if (why < 0) {
		note_settled(s, next);
		return next;
	}
	sks_splice_end(s, why);
	return NEXT_WAIT;
}

/* The source is locked: a round, unless the splice has not begun or has ended. */
static enum mover_next mover_round_if_runs(struct splice *s, u32 *left)
{
	const struct splice_endpoint *end = sks_endpoint_get(s->src);

	sock_owned_by_me(s->src);
	if (!end || end->out != s || !test_bit(SPLICE_RUNNING, &s->flags))
		return NEXT_WAIT;
	return mover_round(s, left);
}

void sks_mover_begin(struct splice *s)
{
	u32 left = MOVER_BUDGET;
	enum mover_next next;
	bool again;

	do {
		lock_sock(s->src);
		next = mover_round_if_runs(s, &left);
		release_sock(s->src);
		again = next == NEXT_ROUND;
		if (next == NEXT_NOW && !test_bit(SPLICE_SETTLED, &s->flags)) {
			left = MOVER_BUDGET;
			again = !fatal_signal_pending(current);
		}
		cond_resched();
	} while (again);
	if (next != NEXT_WAIT)
		sks_mover_queue(s);
}

/* Rounds until there is nothing to move, no room or no budget. */
static enum mover_next mover_rounds(struct splice *s)
{
	enum mover_next next;
	u32 left = MOVER_BUDGET;

	do {
		if (!sks_endpoint_trylock(s->src))
			return NEXT_BUSY;
		next = mover_round_if_runs(s, &left);
		release_sock(s->src);
		cond_resched();
	} while (next == NEXT_ROUND);
	return next;
}

/* The source has been freed; the sink forgets the splice. False if the sink is busy. One that
 * has forgotten the splice already may be owned for ever, and hold nothing of ours. A sink that
 * takes the splice only now has the mover look again: see splice().
 */
static bool leave_sink(struct splice *s)
{
	struct sock *sk = s->dst;
	struct splice_endpoint *end;
	bool ours;

	if (!test_bit(SPLICE_SINK_KNOWS, &s->flags))
		return true;
	if (!sks_endpoint_trylock(sk))
		return false;
	end = sks_endpoint_get(sk);
	ours = end && end->in == s;
	if (ours) {
		WRITE_ONCE(end->in, NULL);
		clear_bit(SPLICE_SINK_KNOWS, &s->flags);
		sks_endpoint_update(sk, end);
		if (test_bit(SPLICE_UNDONE, &s->flags) && !end->out)
			sks_endpoint_detach(sk);
	}
	release_sock(sk);
	if (ours)
		sks_splice_put(s);
	return true;
}

/* Where a thread began, to know what it has run since. */
struct cpu_mark {
	u64 awake;		/* ns, but for those that it waited for a CPU */
	u64 ran;		/* ns, by the scheduler's count as of its last tick */
	unsigned long sleeps;
};

static struct cpu_mark cpu_mark(void)
{
	struct cpu_mark m = {
		.awake = ktime_get_ns(),
		.ran = current->se.sum_exec_runtime,
		.sleeps = current->nvcsw,
	};

#ifdef CONFIG_SCHED_INFO
	m.awake -= current->sched_info.run_delay;
#endif
	return m;
}

/* In ns. The scheduler's count leaves out sleep, which is for want of memory, but may be wrong
 * by a tick: it is taken where the thread did sleep. A module cannot bring it up to date.
 */
static u64 cpu_since(const struct cpu_mark *m)
{
	const struct cpu_mark now = cpu_mark();
	/* the two clocks that it is made of do not run quite alike */
	const u64 awake = max_t(s64, now.awake - m->awake, 0);

	return now.sleeps == m->sleeps ? awake : min(awake, now.ran - m->ran);
}

/* What is left to do, or NEXT_WAIT. */
static enum mover_next mover_run(struct splice *s)
{
	enum mover_next next = NEXT_WAIT;

	if (test_and_clear_bit(SPLICE_SOURCE_GONE, &s->flags))
		sks_splice_end_orphan(s);
	if (!test_bit(SPLICE_ENDED, &s->flags))
		next = mover_rounds(s);
	if (test_bit(SPLICE_ENDED, &s->flags))
		next = leave_sink(s) ? NEXT_WAIT : NEXT_LATER;
	return next;
}

static void mover_run_and_plan(struct splice *s)
{
	unsigned int backoff = 1;

	switch (mover_run(s)) {
	case NEXT_NOW:
	case NEXT_ROUND:
		sks_mover_queue(s);
		break;
	case NEXT_LATER:
	case NEXT_BUSY:
		sks_mover_tick(s, s->backoff);
		backoff = min_t(unsigned int, 2 * s->backoff, MOVER_BACKOFF_MAX);
		break;
	case NEXT_WAIT:
		break;
	}
	s->backoff = backoff;
}

void sks_mover_work(struct work_struct *work)
{
	struct splice *s = container_of(work, struct splice, work);
	/* An end is short, and happens once. */
	const bool ends = READ_ONCE(s->flags) & (BIT(SPLICE_ENDED) |
						 BIT(SPLICE_SOURCE_GONE) | BIT(SPLICE_DROP));
	const struct cpu_mark mark = cpu_mark();
	struct budget_cpu *entered = ends ? NULL : sks_budget_enter(s);

	if (ends || entered)
		mover_run_and_plan(s);
	sks_budget_leave(s->user, entered, cpu_since(&mark));
	sks_splice_put(s);
}
