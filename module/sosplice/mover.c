// SPDX-License-Identifier: GPL-2.0
/*
 * The mover: carries what the source has received to the sink, by reference. This file has the
 * frame for all splices, and the rounds of TCP. datagram.c has the rounds of UDP, and tls.c those
 * of TCP with kTLS.
 *
 * A round has both sockets locked. The sink sends the pages of the bytes that come next in the
 * source's queue, as far as it has room. Then the bytes that were sent leave the queue.
 * So another reader of the source, even in TCP's own function, gets exactly the bytes that the
 * sink does not get. A task that ends the splice finds nothing half done.
 *
 * The mover runs on a workqueue. For data that arrive by TCP it runs on the CPU of the sink's
 * acknowledgments, else on the CPU that queues it. It does not run where the data arrive: each
 * packet would take that CPU from the sender, or from the source's interrupts.
 *
 * The mover tries sockets' locks and never waits for one. A task may own a socket across a page
 * fault that never ends, and another mover may lock the same two sockets in the other order.
 * endpoint->wanted makes the lock's owner queue the mover again. A tick does so if the socket has
 * lost its hooks meanwhile.
 */
#include <linux/bvec.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "pair/end.h"
#include "sosplice/batch.h"
#include "sosplice/budget.h"
#include "sosplice/datagram.h"
#include "sosplice/endpoint.h"
#include "sosplice/evict.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/mover.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"
#include "sosplice/tls.h"

#define MOVER_BUDGET	(256U << 10)	/* bytes, until others get the CPU */
#define MOVER_BACKOFF_MAX (HZ / 10 ?: 1) /* jiffies */

bool sks_round_has_data(struct sock *sk)
{
	struct sk_buff *skb;
	u32 off;

	if (sks_paired_io_unread(sk))
		return true;
	skb = tcp_recv_skb(sk, tcp_sk(sk)->copied_seq, &off);
	return skb && off < skb->len;
}

/* Whether TCP may forget its urgent byte. On TCP an urgent byte that is not in line is lost if the
 * application does not read it before those behind it. Of bytes that the kernel moves the
 * application knows nothing, so the byte stays. It cannot stay for ever: when it is 2 GB behind,
 * TCP would take its mark for one ahead.
 */
static bool urgent_is_over(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!after(tp->copied_seq, tp->urg_seq))
		return false;
	return sock_flag(sk, SOCK_URGINLINE) || tp->urg_data == TCP_URG_READ ||
	       tp->copied_seq - tp->urg_seq > SZ_1G;
}

bool sks_round_reached_limit(const struct splice *s)
{
	return s->max && s->moved >= s->max;
}

void sks_round_count(struct splice *s, u32 sent)
{
	sock_owned_by_me(s->src);
	WRITE_ONCE(s->moved, s->moved + sent);
	/* At the limit sks_splice_end() does so, when the error is there. */
	if (!sks_round_reached_limit(s))
		sks_splice_show_count(sks_endpoint_of(s->src), s);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_bytes, sent);
	s->last = jiffies;
}

void sks_round_settle(struct splice *s, u32 sent, bool ring)
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
	sks_round_count(s, sent);
}

/* Needs no lock: a task that closes or shuts down the sink queues the mover. */
static bool sink_is_dead(const struct splice *s)
{
	return test_bit(SPLICE_SINK_GONE, &s->flags) ||
	       READ_ONCE(s->dst->sk_shutdown) & SEND_SHUTDOWN ||
	       inet_sk_state_load(s->dst) == TCP_CLOSE;
}

bool sks_round_sink_is_ours(const struct splice *s)
{
	const struct splice_endpoint *end = sks_endpoint_of(s->dst);

	return end && end->in == s && s->dst->sk_socket;
}

/* A sink with TCP_FASTOPEN_CONNECT: connect() has left the SYN to the first write. Sends it. Sets
 * *@err if that fails; the application finds the socket's own error. Otherwise the socket's state
 * changes later, which queues the mover, or *@needs_retry is set.
 */
static void connect_deferred(struct sock *sk, int *err, bool *needs_retry)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	int ret;

	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, NULL, 0, 0);
	ret = tcp_sendmsg_locked(sk, &msg, 0);
	if (ret == -EINPROGRESS || ret >= 0)
		return;
	if ((ret == -EALREADY || ret == -ENOMEM || ret == -ENOBUFS) &&
	    sk->sk_state == TCP_SYN_SENT) {
		*needs_retry = true;
		return;
	}
	if (!sk->sk_err) {
		WRITE_ONCE(sk->sk_err, -ret);
		sk_error_report(sk);
	}
	if (ret == -EAGAIN)
		*needs_retry = true;
	else
		*err = EPIPE;
}

bool sks_round_closes_loop(struct splice *s)
{
	if (test_bit(SPLICE_TRACED, &s->flags))
		return false;
	sks_loop_ident(s->dst, &s->dst_id);
	set_bit(SPLICE_TRACED, &s->flags);
	if (!sks_loop_closes(s))
		return false;
	sks_stat_inc(SOCKSPLICE_STAT_so_splice_loops);
	return true;
}

/* Whether the sink can send now, but for its sk_err. If not, *@err and *@needs_retry are as for
 * sks_round_sink_send().
 */
static bool sink_is_ready(struct splice *s, int *err, bool *needs_retry)
{
	struct sock *sk = s->dst;

	if (!sks_round_sink_is_ours(s)) {
		*err = EPIPE;
		return false;
	}
	if (sk->sk_state == TCP_SYN_SENT && inet_test_bit(DEFER_CONNECT, sk)) {
		connect_deferred(sk, err, needs_retry);
		return false;
	}
	if ((1 << sk->sk_state) & ~(TCPF_ESTABLISHED | TCPF_CLOSE_WAIT))
		return false;	/* not connected yet, or dead */
	if (sks_round_closes_loop(s)) {
		*err = ELOOP;
		return false;
	}
	if (sks_paired_io_must_wait(sk)) {
		*needs_retry = true;
		return false;
	}
	return true;
}

/* Whether the sink can send in spite of its sk_err. If the socket was also the source of a splice,
 * the error of that one is for its application: it neither stops this splice nor may get
 * lost. Then it is in *@taken, and give_error_back() puts it back. Any other error is in *@err.
 */
static bool take_error(struct sock *sk, struct splice_endpoint *end, int *taken, int *err)
{
	const int own = READ_ONCE(sk->sk_err);	/* getsockopt() clears it without the lock */

	*taken = -1;
	if (!own)
		return true;
	if (own != end->err) {
		*err = own;
		return false;
	}
	if (!sk_stream_memory_free(sk)) {
		set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
		return false;
	}
	sks_endpoint_err_out(end);
	*taken = xchg(&sk->sk_err, 0);
	return true;
}

static void give_error_back(struct sock *sk, struct splice_endpoint *end, int taken)
{
	if (taken < 0)
		return;
	/* It was reported when it came. */
	if (taken && !sk->sk_err)
		WRITE_ONCE(sk->sk_err, taken);
	sks_endpoint_err_back(end);
}

u32 sks_round_sink_send(struct splice *s, struct batch *b, int *err, bool *needs_retry)
{
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	struct sock *sk = s->dst;
	struct splice_endpoint *end = sks_endpoint_of(sk);
	int taken, ret;

	sock_owned_by_me(sk);
	*needs_retry = false;
	if (!sink_is_ready(s, err, needs_retry) || !take_error(sk, end, &taken, err))
		return 0;

	if (!b->ring)
		msg.msg_flags |= MSG_SPLICE_PAGES;
	if (b->oob)
		msg.msg_flags |= MSG_OOB;
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, b->bv, b->n, b->len);
	ret = sks_paired_io_send(sk, &msg, b->len, s->memcg);

	if (ret < 0 && ret != -EAGAIN && ret != -ENOMEM && ret != -ENOBUFS) {
		/* tcp_sendmsg_locked() has taken the error from the socket. */
		if (ret != -EPIPE && !sk->sk_err) {
			WRITE_ONCE(sk->sk_err, -ret);
			sk_error_report(sk);
		}
		*err = -ret;
	}
	give_error_back(sk, end, taken);
	*needs_retry = ret < (int)b->len && tcp_rtx_and_write_queues_empty(sk);
	return max(ret, 0);
}

/* Nothing moves just now. True if the splice's idle time is over. The source is locked. */
static bool idle_is_over(struct splice *s)
{
	if (!s->idle)
		return false;
	/* The last move was within a jiffy, whose rest does not count. */
	if (time_after(jiffies, s->last + s->idle))
		return true;
	if (!delayed_work_pending(&s->tick))
		sks_mover_tick(s, s->last + s->idle + 1 - jiffies);
	return false;
}

/* Returns the errno that ends the splice, 0 for an end without one, or -1 if it goes on. The
 * source is locked.
 */
static int why_end(struct splice *s)
{
	if (s->src->sk_err)
		return 0;	/* the application finds the source's error */
	if (sks_round_reached_limit(s))
		return EFBIG;
	if (test_bit(SPLICE_DROP, &s->flags))
		return 0;
	if (sink_is_dead(s))
		return EPIPE;
	return -1;
}

/* How many bytes the sink's TCP puts into one packet, which may be segmented later; as
 * tcp_xmit_size_goal(). The sink is locked.
 */
static u32 sink_goal(const struct splice *s)
{
	const struct tcp_sock *tp = tcp_sk(s->dst);

	sock_owned_by_me(s->dst);
	return max_t(u32, tp->gso_segs, 1) * tp->mss_cache;
}

/* The sink's queue is full, and the sink will report when it has room. Not for a corked sink,
 * which may have room in its last packet, nor for a paired one, which may have room in its ring.
 * sks_round_sink_send() deals with errors.
 */
bool sks_round_sink_is_full(const struct splice *s)
{
	struct sock *sk = s->dst;

	sock_owned_by_me(sk);
	if (!test_bit(SPLICE_TRACED, &s->flags) || !sks_round_sink_is_ours(s) || sk->sk_err ||
	    (1 << sk->sk_state) & ~(TCPF_ESTABLISHED | TCPF_CLOSE_WAIT) || sks_end_get(sk) ||
	    sk_stream_memory_free(sk) || !tcp_sk(sk)->packets_out)
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

	/* If more data are behind, send whole packets. The remainder waits in the source's queue,
	 * and the next round fills its packet.
	 */
	if (limit >= goal && limit < (u32)tcp_inq(s->src))
		limit -= limit % goal;
	if (s->max)
		limit = min_t(u64, limit, s->max - s->moved);
	if (!test_bit(SPLICE_TRACED, &s->flags)) {
		sks_loop_forget(s);	/* searches read the numbers of what is on the table */
		sks_loop_ident(s->src, &s->src_id);
	}
	/* Before the batch: to fill it takes time, and may copy. */
	if (sks_round_sink_is_full(s))
		return NEXT_WAIT;
	sks_batch_fill(s, &b, limit);
	if (!b.len) {
		if (b.foreign)
			*why = 0;	/* the application's next read finds the reason */
		/* The batch has passed over an urgent byte, or has no memory for a copy. */
		return sks_round_has_data(s->src) ? NEXT_LATER : NEXT_ROUND;
	}
	sent = sks_round_sink_send(s, &b, &err, &needs_retry);
	full = sent < b.len;
	sks_batch_free(&b);
	sks_round_settle(s, sent, b.ring);
	*left -= min(*left, sent);

	*why = err ? err : why_end(s);	/* the send may have found the sink dead */
	if (full)
		return needs_retry ? NEXT_LATER : NEXT_WAIT;
	return *left >= goal ? NEXT_ROUND : NEXT_NOW;
}

/* Whether the mover may take data: not while another reader is in the middle of a read, nor in the
 * first round before readers that sleep in TCP's function have left. The source is locked.
 */
bool sks_round_may_take(struct splice *s, bool first)
{
	struct sock *src = s->src;
	const bool may = sks_paired_io_enter(src) &&
			 !(first && sks_round_has_data(src) && sks_evict_expel(src));

	WRITE_ONCE(s->awaits_reader, !may);
	return may;
}

/* Lets setsockopt() return if the beginning of the splice is over: the bytes that were queued then
 * have moved, or the sink does not take them now. The source is locked.
 */
static void note_settled(struct splice *s, enum mover_next next)
{
	const bool done = s->datagrams ? !s->queued : s->moved >= s->queued;

	if (next == NEXT_WAIT || next == NEXT_LATER || done)
		sks_splice_settle(s);
}

bool sks_round_note_sink_error(struct splice *s, int *why)
{
	struct sock *sk = s->dst;
	int own;

	if (likely(!READ_ONCE(sk->sk_err)) || sk == s->src)
		return true;
	if (!sks_endpoint_trylock(sk))
		return false;
	own = READ_ONCE(sk->sk_err);
	if (own && sks_round_sink_is_ours(s) && own != sks_endpoint_of(sk)->err)
		*why = own;
	release_sock(sk);
	return true;
}

/* Moves, and ends the splice if that is due. Both sockets are locked for that: a task that sees the
 * last byte counted must find neither the source nor the sink in use. The source is locked, and has
 * data.
 */
static enum mover_next lock_sink_and_move(struct splice *s, u32 *left)
{
	enum mover_next next;
	int why = -1;

	if (s->dst != s->src && !sks_endpoint_trylock(s->dst))
		return NEXT_BUSY;
	next = move(s, left, &why);
	if (why >= 0)
		sks_splice_end(s, why);
	if (s->dst != s->src)
		release_sock(s->dst);
	return next;
}

/* A round of TCP. Sets *@why as why_end() if the splice is to end. The source is locked. */
static enum mover_next stream_round(struct splice *s, u32 *left, int *why)
{
	struct sock *src = s->src;

	if (!sks_round_note_sink_error(s, why))
		return NEXT_BUSY;
	if (*why >= 0)
		return NEXT_WAIT;
	if (!sks_round_may_take(s, *left == MOVER_BUDGET))
		return NEXT_BUSY;
	if (sks_round_has_data(src))
		return lock_sink_and_move(s, left);
	if (src->sk_shutdown & RCV_SHUTDOWN || sock_flag(src, SOCK_DONE))
		*why = 0;
	return NEXT_WAIT;
}

/* The source is locked. */
static enum mover_next mover_round(struct splice *s, u32 *left)
{
	enum mover_next next = NEXT_WAIT;
	int why = why_end(s);

	if (why < 0)
		next = s->datagrams ? sks_datagram_round(s, left, &why) :
		       s->src_tls || s->dst_tls ?
				      sks_tls_round(s, left, *left == MOVER_BUDGET, &why) :
				      stream_round(s, left, &why);
	if (why < 0 && s->datagrams)
		why = why_end(s);	/* the limit is reached, or the sink is dead */
	if (test_bit(SPLICE_ENDED, &s->flags))
		return NEXT_WAIT;	/* lock_sink_and_move() has ended it */
	if (why >= 0 && (s->src_tls || s->dst_tls) && !sks_tls_may_end(s, why)) {
		why = -1;
		next = NEXT_LATER;
	}
	if (why < 0 && next != NEXT_NOW && next != NEXT_ROUND && idle_is_over(s))
		why = ETIMEDOUT;
	if (why < 0) {
		note_settled(s, next);
		return next;
	}
	sks_splice_end(s, why);
	return NEXT_WAIT;
}

/* A round, unless the splice has not begun or has ended. The source is locked. */
static enum mover_next mover_round_if_runs(struct splice *s, u32 *left)
{
	const struct splice_endpoint *end = sks_endpoint_of(s->src);

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

/* Rounds until there are no data, there is no room or the budget is used up. */
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

/* The splice has ended: makes the sink forget it. False if the sink is busy. A sink that has
 * forgotten the splice already may be owned for ever, and holds nothing of the splice. If the sink
 * takes the splice only now, that queues the mover again: see splice().
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
	end = sks_endpoint_of(sk);
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

/* A point in the run of a thread, to know later how long the thread has run since. */
struct cpu_mark {
	u64 awake;		/* ns, without those for which the thread waited for a CPU */
	u64 ran;		/* ns, by the scheduler's count at its last tick */
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

/* In ns. The scheduler's count leaves out sleep (here, for memory), but may be wrong by a tick,
 * and a module cannot bring it up to date. So it counts only if the thread did sleep.
 */
static u64 cpu_since(const struct cpu_mark *m)
{
	const struct cpu_mark now = cpu_mark();
	/* awake is the difference of two clocks, which do not run quite alike */
	const u64 awake = max_t(s64, now.awake - m->awake, 0);

	return now.sleeps == m->sleeps ? awake : min(awake, now.ran - m->ran);
}

/* Returns what is left to do, or NEXT_WAIT. */
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
	/* To end a splice is short, and happens once: no budget. */
	const bool ends = READ_ONCE(s->flags) &
			  (BIT(SPLICE_ENDED) | BIT(SPLICE_SOURCE_GONE) | BIT(SPLICE_DROP));
	const struct cpu_mark mark = cpu_mark();
	struct budget_cpu *entered = ends ? NULL : sks_budget_enter(s);

	if (ends || entered)
		mover_run_and_plan(s);
	sks_budget_leave(s->user, entered, cpu_since(&mark));
	sks_splice_put(s);
}
