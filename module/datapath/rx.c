// SPDX-License-Identifier: GPL-2.0
/*
 * Receiving.
 *
 * The reader takes, in this order: TCP's bytes up to the peer's seq, the ring,
 * TCP's bytes from there on. It looks at TCP's end of the stream (rcv_nxt)
 * first and at the ring second. Bytes that reach TCP after that look are
 * younger than anything the ring could have held unseen. So every read from TCP
 * is capped to what the look has shown.
 *
 * Ring bytes are taken under the reader's own socket lock. TCP's bytes are taken by
 * TCP's own recvmsg, which takes that lock itself. So a reader that needs TCP
 * takes a turn: it holds rx_mutex until it has read what it can. Meanwhile
 * no other reader moves copied_seq after its look or takes bytes between two
 * parts of its read. The mutex is never held while a reader sleeps for data.
 *
 * A ring behind bytes that TCP has not received yet is out of reach. If the
 * connection dies then, the ring stays out of reach: TCP never skips a hole.
 *
 * Reads by TCP's function alone are in rx_tcp.c.
 */
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <net/tcp.h>

#include "core/caller.h"
#include "core/inflight.h"
#include "core/stats.h"
#include "datapath/disconnect.h"
#include "datapath/rcvlowat.h"
#include "datapath/rx.h"
#include "datapath/rx_tcp.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/pages.h"
#include "pair/wake.h"

/* What a step of a read has come to. */
enum rx_step {
	RX_GOT,		/* bytes, which rd->copied counts */
	RX_AGAIN,	/* no bytes, but the reader has to look again */
	RX_NOTHING,	/* no bytes, and there are none */
	RX_OVER,	/* the call returns rd->copied or, if that is 0, rd->error */
	RX_NOT_OURS,	/* the socket is not ours any more: if rd->copied is 0, TCP reads */
};

/* A read from a paired socket. */
struct rx_read {
	struct sock *sk;
	struct pair_end *end;	/* live_end() of sk */
	struct rx_turn *turn;
	struct msghdr *msg;
	size_t len;
	ssize_t copied;
	int flags;
	int error;
	u32 peek_from, peek_pos;	/* MSG_PEEK: where the call began, and where it is */
	u32 front;		/* MSG_PEEK: rx_front() when it began */
	bool asleep;		/* the reader has waited for SO_RCVLOWAT: less does not count */
};

/* Without ring bytes TCP's own test has the answer. */
static bool has_ring_bytes(struct sock *sk, const struct pair_end *end)
{
	struct rx_readable l;

	rx_readable(sk, end, &l);
	return l.ring && rx_readable_total(&l) >= sock_rcvlowat(sk, 0, INT_MAX);
}

bool sks_rx_is_readable(struct sock *sk)
{
	struct pair_end *end;
	bool readable = false;

	rcu_read_lock();
	end = sks_end_get_rcu(sk);
	if (end && end_is_live(end)) {
		if (READ_ONCE(sk->sk_rcvlowat) > 1)
			sks_rcvlowat_poller(sks_end_peer(end));
		readable = has_ring_bytes(sk, end) ||
			   (sks_rx_poll_wait(sk, end) && has_ring_bytes(sk, end));
	}
	rcu_read_unlock();
	return readable;
}

void sks_rx_mark_ready(struct sock *sk, struct pair_end *end)
{
	bool known;

	sock_owned_by_me(sk);
	if (likely(test_bit(END_RX_READY, &end->flags)))
		return;
	if (end->tcp_readers || sk->sk_kern_sock)
		return;
	/* The caller has looked at end->peer. That look comes before the look at the bits: pairs
	 * with the barrier in sks_pair_splices().
	 */
	smp_mb();
	known = test_bit(END_RX_KNOWN, &end->flags) && !test_bit(END_RX_EARLY, &end->flags);
	if (known || sks_caller_is_alone(sk))
		set_bit(END_RX_READY, &end->flags);
	else
		set_bit(END_RX_DOUBT, &end->flags);
}

void sks_rx_consume(struct sock *sk, struct pair_end *end, u32 n)
{
	struct pair_end *peer = sks_end_peer(end);

	sock_owned_by_me(sk);
	if (READ_ONCE(end->poll_began))
		sks_rx_poll_over(end);
	ring_consume(&peer->ring, n);
	/* The tail before the look at want_space: pairs with sleep_until_space() and
	 * take_nap() in tx_wait.c. Also the tail before END_RX_CLOSED, which this reader
	 * may set next: pairs with tx_append().
	 */
	smp_mb();
	if (READ_ONCE(peer->want_space) && ring_len(&peer->ring) <= READ_ONCE(peer->ring_limit) / 2)
		sks_wake_writer(peer);
}

/* Copies @n ring bytes from @off on. If the memory faults, nothing counts as copied, as on TCP
 * if it faults in the middle of an skb.
 */
static int copy_ring(const struct ring *r, struct msghdr *msg, u32 off, u32 n)
{
	u32 done = 0;

	while (done < n) {
		u32 seg, got;
		void *p = ring_read_seg(r, off + done, &seg);

		seg = min(seg, n - done);
		got = _copy_to_iter(p, seg, &msg->msg_iter);	/* see tx_append() */
		done += got;
		if (got < seg) {
			iov_iter_revert(&msg->msg_iter, done);
			return -EFAULT;
		}
	}
	return 0;
}

static enum rx_step rx_over(struct rx_read *rd, int error)
{
	rd->error = error;
	return RX_OVER;
}

static enum rx_step take_ring(struct rx_read *rd)
{
	struct ring *r = &sks_end_peer(rd->end)->ring;
	u32 want = min_t(size_t, rd->len - rd->copied, READ_ONCE(r->size));
	u32 n = min(want, ring_used(r, want));

	if (!(rd->flags & MSG_TRUNC) && copy_ring(r, rd->msg, 0, n))
		return rx_over(rd, -EFAULT);
	sks_rx_consume(rd->sk, rd->end, n);
	sk_peek_offset_bwd(rd->sk, n);	/* splice(2) leaves it alone, on TCP too */
	rd->copied += n;
	return n ? RX_GOT : RX_NOTHING;
}

/* Calls TCP's recvmsg for one part of a call. On TCP the timestamps are those of the last
 * packet, so here they are those of the last part. @quiet: a FIN alone is left, which brings no
 * timestamps. With the timestamps TCP puts a TCP_CM_INQ if TCP_INQ is on. That one does not
 * count the ring: turn->told has the caller take it back.
 */
static int base_recvmsg(struct sock *sk, struct rx_turn *turn, struct msghdr *msg, size_t len,
			int flags, bool quiet)
{
	const bool told = tcp_sk(sk)->recvmsg_inq;
	void *control = msg->msg_control;
	size_t controllen = msg->msg_controllen;
	unsigned int msg_flags = msg->msg_flags;
	int ret;

	quiet |= told && !sock_flag(sk, SOCK_RCVTSTAMP) && !READ_ONCE(sk->sk_tsflags);
	if (quiet) {
		msg->msg_controllen = 0;
	} else {
		msg->msg_control = turn->control;
		msg->msg_controllen = turn->controllen;
	}
	ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_NULL);
	if (quiet || ret <= 0) {
		msg->msg_control = control;
		msg->msg_controllen = controllen;
		msg->msg_flags = msg_flags;
	} else {
		turn->told = told;
	}
	return ret;
}

struct pair_end *sks_rx_turn_wait(struct sock *sk)
{
	struct pair_end *end, *peer;

	while ((end = live_end(sk)) && unlikely(end->rx_mid_read || end->disconnecting)) {
		if (end->disconnecting) {
			sks_disconnect_wait(sk);
			continue;
		}
		peer = sks_end_hold(end);
		end->rx_taking++;
		release_sock(sk);
		mutex_lock(&end->rx_mutex);
		mutex_unlock(&end->rx_mutex);
		lock_sock(sk);
		end->rx_taking--;
		sks_end_put(end, peer);
	}
	return end;
}

/* Takes the turn, unless this reader has it: then it keeps the lock, else it drops it. */
static void turn_take(struct sock *sk, struct pair_end *end, struct rx_turn *turn)
{
	if (turn->end)
		return;
	turn->end = end;
	turn->peer = sks_end_hold(end);
	end->rx_partial++;	/* this reader is about to take bytes */
	end->rx_taking++;
	release_sock(sk);
	mutex_lock(&end->rx_mutex);
	lock_sock(sk);
	end->rx_taking--;
	end->rx_partial--;
	end->rx_mid_read = true;
}

static void turn_end(struct rx_turn *turn)
{
	if (!turn->end)
		return;
	turn->end->rx_mid_read = false;
	mutex_unlock(&turn->end->rx_mutex);
	sks_end_put(turn->end, turn->peer);
	turn->end = NULL;
}

/* True if the stream's byte @pos is the urgent mark. Ring bytes follow it only if a program on the
 * path has set URG. It has to be found then, too: with a signal pending TCP reads nothing there,
 * and the reader would ask TCP again and again.
 */
static bool is_mark(const struct sock *sk, const struct rx_readable *l, u32 pos)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 urg = tp->urg_seq - tp->copied_seq;

	if (likely(!tp->urg_data) || urg >= l->tcp + l->after)
		return false;
	return pos == (urg < l->tcp ? urg : urg + l->ring);
}

/* Moves on by every byte that is taken; the socket is locked. */
static u32 rx_front(const struct sock *sk, const struct pair_end *end)
{
	return tcp_sk(sk)->copied_seq + READ_ONCE(sks_end_peer(end)->ring.tail);
}

/* A call that dropped the lock never reads on in the next connection of its socket. */
static bool is_disconnected(const struct rx_read *rd)
{
	return rd->sk->sk_disconnects != rd->turn->disconnects;
}

/* Reads what TCP holds before the ring. Drops the lock: rd->end may be detached on return, but
 * the turn holds it.
 */
static enum rx_step take_tcp(struct rx_read *rd)
{
	struct rx_turn *turn = rd->turn;
	struct sock *sk = rd->sk;
	struct rx_readable l;
	bool fin;
	ssize_t n;

	turn_take(sk, rd->end, turn);
	if (live_end(sk) != rd->end || is_disconnected(rd))
		return RX_AGAIN;
	rx_readable(sk, rd->end, &l);
	if (rd->copied && is_mark(sk, &l, 0))
		return RX_OVER;
	if (!l.tcp)
		return RX_AGAIN;
	fin = !tcp_inq(sk);
	release_sock(sk);
	/* TCP's function steps over a mark that is not in line. Then it may read a byte more than
	 * the look has shown. No ring byte stands behind the mark (tx.c), so that byte comes next.
	 */
	n = base_recvmsg(sk, turn, rd->msg, min_t(size_t, rd->len - rd->copied, l.tcp),
			 (rd->flags & ~MSG_WAITALL) | MSG_DONTWAIT, rd->copied && fin);
	lock_sock(sk);
	if (n == -EAGAIN)
		return RX_AGAIN;
	if (n <= 0)
		return rx_over(rd, n);	/* 0: the FIN */
	WRITE_ONCE(turn->peer->tcp_taken, turn->peer->tcp_taken + n);
	rd->copied += n;
	return RX_GOT;
}

/* Takes the turn and then, if @tcp, what TCP holds before the ring. */
static enum rx_step take_in_turn(struct rx_read *rd, bool tcp)
{
	const bool partial = rd->copied;
	struct pair_end *end = rd->end;
	enum rx_step step = RX_AGAIN;

	end->rx_partial += partial;
	if (tcp)
		step = take_tcp(rd);
	else
		turn_take(rd->sk, end, rd->turn);
	/* What was read before the disconnect counts. */
	if (is_disconnected(rd))
		return rx_over(rd, -EPIPE);
	end->rx_partial -= partial;	/* the turn holds the end */
	rd->end = live_end(rd->sk);
	return rd->end || step == RX_OVER ? step : RX_NOT_OURS;
}

static enum rx_step peeked(struct rx_read *rd, u32 n)
{
	if (!n)
		return RX_NOTHING;
	sk_peek_offset_fwd(rd->sk, n);
	rd->peek_pos += n;
	rd->copied += n;
	return RX_GOT;
}

/* Copies from TCP's queue without taking, from sequence number @seq on. Stops at the
 * urgent mark, or begins at it if nothing was copied before.
 */
static enum rx_step peek_tcp(struct rx_read *rd, u32 seq, u32 len)
{
	const struct tcp_sock *tp = tcp_sk(rd->sk);
	struct sk_buff *skb;
	u32 done = 0;

	skb_queue_walk(&rd->sk->sk_receive_queue, skb)
	{
		u32 off = seq - TCP_SKB_CB(skb)->seq;

		while (off < skb->len && done < len) {
			u32 n = min_t(u32, skb->len - off, len - done);
			u32 urg = tp->urg_seq - seq;

			if (unlikely(tp->urg_data) && urg < n) {
				if (urg)
					n = urg;
				else if (rd->copied || done)
					return done ? peeked(rd, done) : RX_OVER;
			}
			if (!(rd->flags & MSG_TRUNC) && skb_copy_datagram_msg(skb, off, rd->msg, n))
				return done ? peeked(rd, done) : rx_over(rd, -EFAULT);
			seq += n;
			off += n;
			done += n;
		}
	}
	return peeked(rd, done);
}

/* MSG_PEEK: copies from the stream's byte rd->peek_pos on, over all three parts. A call that has
 * copied nothing steps over the urgent mark, unless it wants no byte.
 */
static enum rx_step peek(struct rx_read *rd)
{
	const struct ring *r = &sks_end_peer(rd->end)->ring;
	const size_t len = rd->len - rd->copied;
	u32 seq = tcp_sk(rd->sk)->copied_seq;
	struct rx_readable l;
	u32 at, take;

	rx_readable(rd->sk, rd->end, &l);
	if (!rd->copied && len && is_mark(rd->sk, &l, rd->peek_pos) &&
	    !sock_flag(rd->sk, SOCK_URGINLINE))
		++rd->peek_pos;
	at = rd->peek_pos;
	if (at < l.tcp)
		return peek_tcp(rd, seq + at, min_t(size_t, len, l.tcp - at));
	at -= l.tcp;
	if (at < l.ring) {
		take = min_t(size_t, len, l.ring - at);
		if (!(rd->flags & MSG_TRUNC) && copy_ring(r, rd->msg, at, take))
			return rx_over(rd, -EFAULT);
		return peeked(rd, take);
	}
	at -= l.ring;
	if (at >= l.after)
		return RX_NOTHING;
	return peek_tcp(rd, seq + l.tcp + at, min_t(size_t, len, l.after - at));
}

/* Reads the part of the stream that comes next, of what @l has shown. */
static enum rx_step take_part(struct rx_read *rd, const struct rx_readable *l)
{
	if (rd->asleep)
		return RX_NOTHING;
	if (rd->flags & MSG_PEEK)
		return peek(rd);
	/* A read of no bytes does not even step over the urgent mark. */
	if (l->tcp && rd->len)
		return take_in_turn(rd, true);
	/* TCP's bytes behind the ring are read without the lock, and no other reader may come
	 * between. While this reader has the lock no more of those arrive.
	 */
	if (l->ring && l->after && l->ring < rd->len - rd->copied && !rd->turn->end)
		return take_in_turn(rd, false);
	return l->ring ? take_ring(rd) : RX_NOTHING;
}

static bool stop_short(const struct sock *sk, long timeo)
{
	return !timeo || sk->sk_err || sk->sk_state == TCP_CLOSE ||
	       (sk->sk_shutdown & RCV_SHUTDOWN) || signal_pending(current);
}

/* Nothing is left to read: ends the call, or waits for more than @l has shown. */
static enum rx_step wait_for_more(struct rx_read *rd, const struct rx_readable *l)
{
	const bool partial = rd->copied;
	struct rx_turn *turn = rd->turn;
	struct pair_end *end = rd->end;
	struct sock *sk = rd->sk;
	int ret;

	if (partial) {
		if (stop_short(sk, turn->timeo))
			return RX_OVER;
	} else {
		ret = sks_rx_nothing_left(sk, turn->timeo);
		if (ret <= 0)
			return rx_over(rd, ret);
	}
	turn_end(turn);
	end->rx_partial += partial;	/* keeps the end attached */
	rd->asleep = !partial && !rx_readable_total(l) && READ_ONCE(sk->sk_rcvlowat) > 1;
	ret = sks_rx_wait(sk, end, &turn->timeo,
			  rd->asleep ? SOCKSPLICE_RX_MARK : rx_readable_total(l));
	turn->slept = true;
	if (ret < 0)
		return rx_over(rd, ret);
	rd->asleep = rd->asleep && turn->timeo && !signal_pending(current);
	rd->end = sks_rx_turn_wait(sk);
	if (is_disconnected(rd))
		return rx_over(rd, -EPIPE);
	if (!rd->end)
		return sks_rx_tcp_is_over(sk, turn, rd->len, tcp_sk(sk)->copied_seq) ? RX_OVER :
										       RX_NOT_OURS;
	rd->end->rx_partial -= partial;
	/* Another reader has taken what this one has peeked at. Peek from the beginning again, as
	 * TCP does, which logs such a program as buggy.
	 */
	if (unlikely((rd->flags & MSG_PEEK) && rx_front(sk, rd->end) != rd->front)) {
		rd->peek_pos = rd->peek_from;
		if (!partial)
			rd->front = rx_front(sk, rd->end);
	}
	return RX_AGAIN;
}

/* TCP does not wake a reader for fewer bytes than the mark (tcp_data_ready()). */
static bool is_below_mark(const struct rx_read *rd)
{
	return rd->asleep && !sks_rx_has_more(rd->sk, rd->end, SOCKSPLICE_RX_MARK);
}

/*
 * Reads from a socket whose lock the caller holds. Similar to tcp_recvmsg_locked(), whose order
 * of tests it keeps. Returns RX_OVER or RX_NOT_OURS. The caller ends the turn.
 */
static enum rx_step rx_locked(struct rx_read *rd)
{
	struct rx_turn *turn = rd->turn;
	struct sock *sk = rd->sk;
	struct rx_readable l;
	enum rx_step step;
	int target;

	rd->end = sks_rx_turn_wait(sk);
	target = sock_rcvlowat(sk, rd->flags & MSG_WAITALL, rd->len);
	turn->disconnects = sk->sk_disconnects;
	if (!rd->end)
		return RX_NOT_OURS;
	if (unlikely(rd->flags & MSG_PEEK)) {
		rd->peek_from = max(sk_peek_offset(sk, rd->flags), 0);
		rd->peek_pos = rd->peek_from;
		rd->front = rx_front(sk, rd->end);
	}
	/* Not while another reader has its turn. A thread that slept in TCP's functions may have
	 * read since what that reader counted on. If a ring opened now, that reader would go on
	 * past it, to younger bytes or to the FIN.
	 */
	sks_rx_mark_ready(sk, rd->end);
	do {
		rx_readable(sk, rd->end, &l);
		if (unlikely(rd->asleep)) {
			rd->asleep = is_below_mark(rd);
			if (rd->asleep)
				l = (struct rx_readable){};
		}
		/* The signal may be the mark's SIGURG, whose handler expects the mark unread: see
		 * tcp_recvmsg_locked().
		 */
		if (!rd->copied && unlikely(is_mark(sk, &l, rd->peek_pos)) &&
		    signal_pending(current))
			return rx_over(rd, turn->timeo ? sock_intr_errno(turn->timeo) : -EAGAIN);
		step = take_part(rd, &l);
		if (step == RX_GOT) {
			/* A writer that is as fast would keep this reader here: see tx_locked(). */
			if (rd->copied < rd->len)
				cond_resched();
		} else if (step == RX_NOTHING) {
			if (!rd->len && rx_readable_total(&l) > rd->peek_pos)
				continue;
			step = rd->copied >= target ? RX_OVER : wait_for_more(rd, &l);
		}
		if (step == RX_OVER || step == RX_NOT_OURS)
			return step;
		/* A read of no bytes ends here, unless TCP would not have woken it. */
	} while (rd->copied < rd->len || is_below_mark(rd));
	return RX_OVER;
}

int sks_rx_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, int flags COMPAT_ADDR_LEN_PARAM)
{
	struct rx_turn turn = {
		.control = msg->msg_control,
		.controllen = msg->msg_controllen,
	};
	struct pair_end *end;
	bool ours = false;
	ssize_t ret = 0;
	int inq = -1;

	sks_enter();
	/* Neither of these sleeps. */
	if (flags & MSG_ERRQUEUE) {
		ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
		goto leave;
	}
	if (flags & MSG_OOB) {
		ret = sks_rx_tcp_urgent(sk, &turn, msg, len, flags COMPAT_ADDR_LEN_ARG);
		goto leave;
	}

	lock_sock(sk);
	turn.timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	turn.disconnects = sk->sk_disconnects;
	turn.inq_control = tcp_sk(sk)->recvmsg_inq;
	end = live_end(sk);
	if (end && !tcp_sk(sk)->repair) {
		struct rx_read rd = {
			.sk = sk,
			.turn = &turn,
			.msg = msg,
			.len = len,
			.flags = flags,
		};

		sks_pages_charge(sk, end);
		ours = rx_locked(&rd) == RX_OVER || rd.copied;
		turn_end(&turn);
		ret = rd.copied ?: rd.error;
		end = live_end(sk);
		if (ours && ret >= 0 && (turn.inq_control || msg->msg_get_inq))
			inq = sks_look_inq_hint(sk, end);
		if (turn.told && !(msg->msg_flags & MSG_CTRUNC))
			sks_rx_unput_inq(msg, &turn);
	} else {
		end = sks_end_get(sk);
		ours = end;
		if (end)
			ret = sks_rx_tcp_unpaired(sk, end, msg, len, flags COMPAT_ADDR_LEN_ARG,
						  &turn);
	}
	release_sock(sk);
	if (inq >= 0)
		sks_rx_put_inq(sk, msg, inq, turn.inq_control);
	if (!ours)
		ret = sks_rx_tcp_pass(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, &turn);
leave:
	sks_leave();
	return ret;
}
