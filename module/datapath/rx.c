// SPDX-License-Identifier: GPL-2.0
/*
 * Receiving.
 *
 * The reader takes, in this order: TCP's bytes up to the peer's seq, the ring,
 * TCP's bytes from there on. It looks at TCP's end of the stream (rcv_nxt)
 * first and at the ring second: bytes that reach TCP after that look are
 * younger than anything the ring could have held unseen, so every read from TCP
 * is capped to what the look has shown.
 *
 * Ring bytes are taken under the reader's own socket lock. TCP's are taken by
 * TCP's own recvmsg, which wants that lock itself. So a reader that needs TCP
 * takes a turn: it holds rx_mutex, until it has read what it can, and meanwhile
 * no other reader moves copied_seq after its look or takes bytes between two
 * parts of its read. The mutex is never held while a reader sleeps for data.
 *
 * A ring behind bytes that TCP has not received yet is out of reach. If the
 * connection dies then, it stays so: TCP never skips a hole.
 */
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <net/compat.h>
#include <net/tcp.h>

#include "core/caller.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "core/params.h"
#include "core/stats.h"
#include "datapath/rcvlowat.h"
#include "datapath/rx.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/pages.h"
#include "pair/wake.h"

/* A reader's call, and its turn. */
struct rx_turn {
	struct pair_end *end, *peer;	/* held, with the turn */
	long timeo;		/* what is left of it */
	int disconnects;	/* of the socket, when the call began */
	bool slept;
	bool inq_control;	/* as on TCP, whether TCP_INQ was on then */
	bool told;		/* TCP has put a TCP_CM_INQ, for a part of the call */
	void *control;		/* where the control messages begin */
	size_t controllen;
};

bool sks_rx_is_readable(struct sock *sk)
{
	const struct pair_end *end;
	bool readable = false;
	struct rx_readable l;

	rcu_read_lock();
	end = sks_end_get_rcu(sk);
	if (end && end_is_live(end)) {
		if (READ_ONCE(sk->sk_rcvlowat) > 1)
			sks_rcvlowat_poller(sks_end_peer(end));
		rx_readable(sk, end, &l);
		/* Without ring bytes TCP's own test has the answer. */
		/* The mark, if it comes next, is not a byte to read, as in tcp_poll(). */
		readable = l.ring && rx_readable_total(&l) >= sock_rcvlowat(sk, 0, INT_MAX) +
			   (l.tcp && at_urgent_mark(sk) && !sock_flag(sk, SOCK_URGINLINE));
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
	/* The peer, which the caller has seen, before the bits: pairs with the barrier in
	 * sks_pair_splices().
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
	ring_consume(&peer->ring, n);
	/* The tail before the look at the wish: pairs with sleep_until_space() and
	 * sleep_moment() in tx_wait.c. Also before END_RX_CLOSED, should this be the
	 * last: pairs with tx_append().
	 */
	smp_mb();
	if (READ_ONCE(peer->want_space) && ring_len(&peer->ring) <= READ_ONCE(peer->ring_limit) / 2)
		sks_wake_writer(peer);
}

/* Copies @n ring bytes from @off on. Like a fault in the middle of an skb on
 * TCP, one here takes nothing.
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

static ssize_t take_ring(struct sock *sk, struct pair_end *end,
			 struct msghdr *msg, size_t len, int flags)
{
	struct ring *r = &sks_end_peer(end)->ring;
	u32 want = min_t(size_t, len, READ_ONCE(r->size));
	u32 n = min(want, ring_used(r, want));

	if (!(flags & MSG_TRUNC) && copy_ring(r, msg, 0, n))
		return -EFAULT;
	sks_rx_consume(sk, end, n);
	sk_peek_offset_bwd(sk, n);	/* splice(2) leaves it alone, on TCP too */
	return n;
}

/* The urgent byte that stands last before the cap, when it is not in line: TCP
 * would step over it without counting it, and read on past the cap.
 */
static void skip_urgent(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_read_done(sk, 1);
	if (tp->urg_data && after(tp->copied_seq, tp->urg_seq)) {
		WRITE_ONCE(tp->urg_data, 0);
		tcp_fast_path_check(sk);
	}
}

/* How many bytes may be read from TCP now. The reader has its turn. */
static u32 tcp_cap(struct sock *sk, const struct rx_readable *l)
{
	u32 cap = l->tcp;

	sock_owned_by_me(sk);
	if (sks_rx_mark_before(sk, cap) && !--cap)
		skip_urgent(sk);
	return cap;
}

/* TCP's recvmsg, for one part of a call. Timestamps are those of the last part, as on TCP
 * they are of the last packet; but not if that is a FIN alone, @quiet. TCP_CM_INQ, which
 * counts the ring out, comes with those, if it is asked for: turn->told.
 */
static int base_recvmsg(struct sock *sk, struct rx_turn *turn, struct msghdr *msg,
			size_t len, int flags, bool quiet)
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

	while ((end = live_end(sk)) && unlikely(end->rx_mid_read)) {
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

/* Unless this reader has it. Drops the lock. */
static void turn_take(struct sock *sk, struct pair_end *end, struct rx_turn *turn)
{
	if (turn->end)
		return;
	turn->end = end;
	turn->peer = sks_end_hold(end);
	end->rx_partial++;	/* it is about to take bytes */
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

/* True if the stream's byte @pos is the urgent mark. */
static bool is_mark(const struct sock *sk, const struct rx_readable *l, u32 pos)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 urg = tp->urg_seq - tp->copied_seq;

	if (likely(!tp->urg_data) || urg >= l->tcp + l->after)
		return false;
	return pos == (urg < l->tcp ? urg : urg + l->ring);
}

/* And it is not read in line. */
static bool is_hole(const struct sock *sk, const struct rx_readable *l, u32 pos)
{
	return is_mark(sk, l, pos) && !sock_flag(sk, SOCK_URGINLINE);
}

/* The mark comes next, and perhaps its SIGURG, whose handler is to find it there: see
 * tcp_recvmsg_locked().
 */
static bool is_interrupted_at_mark(const struct sock *sk, const struct rx_readable *l, u32 pos)
{
	return unlikely(is_mark(sk, l, pos)) && signal_pending(current);
}

/*
 * Reads what TCP holds before the ring. Drops the lock: @end may be detached on
 * return, but @turn holds it. Returns the bytes read, 0 at the end of file,
 * -EAGAIN if there is another look to be taken, -ENODATA at the urgent mark if
 * something was @copied before it, or an error.
 */
static ssize_t take_tcp(struct sock *sk, struct pair_end *end, struct rx_turn *turn,
			struct msghdr *msg, size_t len, int flags, bool copied)
{
	struct rx_readable l;
	bool fin;
	ssize_t n;
	u32 cap;

	turn_take(sk, end, turn);
	if (live_end(sk) != end)
		return -EAGAIN;
	rx_readable(sk, end, &l);
	if (copied && l.tcp && at_urgent_mark(sk))
		return -ENODATA;
	/* It may have come while the lock was dropped. */
	if (is_interrupted_at_mark(sk, &l, 0))
		return -EAGAIN;
	cap = tcp_cap(sk, &l);
	if (!cap)
		return -EAGAIN;
	fin = !tcp_inq(sk);
	release_sock(sk);
	n = base_recvmsg(sk, turn, msg, min_t(size_t, len, cap),
			 (flags & ~MSG_WAITALL) | MSG_DONTWAIT, copied && fin);
	lock_sock(sk);
	if (n > 0)
		WRITE_ONCE(turn->peer->tcp_taken, turn->peer->tcp_taken + n);
	return n;
}

/* Copies from TCP's queue without taking, from sequence number @seq on. Stops at the
 * urgent mark, or begins at it if nothing was @copied before: -ENODATA.
 */
static ssize_t peek_tcp(struct sock *sk, struct msghdr *msg, u32 seq, u32 len,
			int flags, bool copied)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	ssize_t done = 0;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 off = seq - TCP_SKB_CB(skb)->seq;

		while (off < skb->len && done < len) {
			u32 n = min_t(u32, skb->len - off, len - done);
			u32 urg = tp->urg_seq - seq;

			if (unlikely(tp->urg_data) && urg < n) {
				if (urg)
					n = urg;
				else if (copied || done)
					return done ? done : -ENODATA;
			}
			if (!(flags & MSG_TRUNC) &&
			    skb_copy_datagram_msg(skb, off, msg, n))
				return done ? done : -EFAULT;
			seq += n;
			off += n;
			done += n;
		}
	}
	return done;
}

/* MSG_PEEK: copies from the stream's byte *@pos on, over all three parts. Before
 * anything is @copied it steps over the urgent mark, and *@pos with it, unless @len is 0.
 */
static ssize_t peek(struct sock *sk, struct pair_end *end, struct msghdr *msg,
		    u32 *pos, size_t len, int flags, bool copied)
{
	const struct ring *r = &sks_end_peer(end)->ring;
	u32 seq = tcp_sk(sk)->copied_seq;
	struct rx_readable l;
	u32 at, take;

	rx_readable(sk, end, &l);
	if (!copied && len && is_hole(sk, &l, *pos))
		++*pos;
	at = *pos;
	if (at < l.tcp) {
		take = min_t(size_t, len, l.tcp - at);
		return peek_tcp(sk, msg, seq + at, take, flags, copied);
	}
	at -= l.tcp;
	if (at < l.ring) {
		take = min_t(size_t, len, l.ring - at);
		if (!(flags & MSG_TRUNC) && copy_ring(r, msg, at, take))
			return -EFAULT;
		return take;
	}
	at -= l.ring;
	if (at >= l.after)
		return 0;
	take = min_t(size_t, len, l.after - at);
	return peek_tcp(sk, msg, seq + l.tcp + at, take, flags, copied);
}

/* Moves on by every byte that is taken; the socket is locked. */
static u32 rx_front(const struct sock *sk, const struct pair_end *end)
{
	return tcp_sk(sk)->copied_seq + READ_ONCE(sks_end_peer(end)->ring.tail);
}

/* TCP has something to say other than what it had received at @seen. */
static bool tcp_has_news(const struct sock *sk, u32 seen)
{
	return tcp_sk(sk)->rcv_nxt != seen || sk->sk_err || sock_flag(sk, SOCK_DONE) ||
	       (sk->sk_shutdown & RCV_SHUTDOWN) || sk->sk_state == TCP_CLOSE;
}

/* Whether a receive of no bytes, which is un-paired, would have ended on TCP: it says 0 once
 * it has slept, whatever has woken it.
 */
static bool is_over(const struct sock *sk, const struct rx_turn *turn, size_t len, u32 seen)
{
	return !len && turn->slept &&
	       (!turn->timeo || signal_pending(current) || tcp_has_news(sk, seen));
}

static bool stop_short(const struct sock *sk, long timeo)
{
	return !timeo || sk->sk_err || sk->sk_state == TCP_CLOSE ||
	       (sk->sk_shutdown & RCV_SHUTDOWN) || signal_pending(current);
}

/*
 * Similar to tcp_recvmsg_locked(), whose order of tests it keeps. Returns
 * -ENOTSUPP if the socket stopped being ours before anything was read. A call
 * that dropped the lock never reads on in the next connection of its socket. The
 * caller ends the turn.
 */
static ssize_t rx_locked(struct sock *sk, struct rx_turn *turn,
			 struct msghdr *msg, size_t len, int flags)
{
	struct pair_end *end = sks_rx_turn_wait(sk);
	const int target = sock_rcvlowat(sk, flags & MSG_WAITALL, len);
	const u32 peek_from = max(sk_peek_offset(sk, flags), 0);
	u32 peek_pos = peek_from, front;
	ssize_t copied = 0, n;
	bool asleep = false;
	struct rx_readable l;

	turn->disconnects = sk->sk_disconnects;
	if (!end)
		return -ENOTSUPP;
	front = rx_front(sk, end);
	/* Not while another has his turn: a thread that slept in TCP's functions may
	 * have read what he counted on since, and past a ring that opened now his
	 * read would go on to younger bytes, or to the FIN.
	 */
	sks_rx_mark_ready(sk, end);
	do {
		const bool partial = copied;

		rx_readable(sk, end, &l);
		/* TCP does not wake who sleeps for less than the mark (tcp_data_ready()). */
		if (asleep && !sks_rx_has_more(sk, end, SOCKSPLICE_RX_MARK))
			l = (struct rx_readable){};
		else
			asleep = false;
		if (!copied && is_interrupted_at_mark(sk, &l, peek_pos))
			return turn->timeo ? sock_intr_errno(turn->timeo) : -EAGAIN;
		if (asleep) {
			n = 0;
		} else if (flags & MSG_PEEK) {
			n = peek(sk, end, msg, &peek_pos, len - copied, flags, copied);
			if (n == -ENODATA)
				break;
			if (n > 0) {
				sk_peek_offset_fwd(sk, n);
				peek_pos += n;
			}
		} else if (l.tcp && len) {	/* none: not even past the urgent mark */
			end->rx_partial += partial;
			n = take_tcp(sk, end, turn, msg, len - copied, flags, copied);
			/* What was read before the disconnect counts. */
			if (sk->sk_disconnects != turn->disconnects) {
				copied += max_t(ssize_t, n, 0);
				return copied ? copied : -EPIPE;
			}
			end->rx_partial -= partial;	/* the turn holds it */
			end = live_end(sk);
			if (!n || n == -ENODATA)
				break;		/* the FIN, or the mark */
			if (n == -EAGAIN && !end)
				return copied ? copied : -ENOTSUPP;
			if (n == -EAGAIN)
				continue;
		} else if (l.ring && l.after && l.ring < len - copied && !turn->end) {
			/* TCP's behind it are read without the lock: nobody may come
			 * between. While we have the lock no more of those arrive.
			 */
			end->rx_partial += partial;
			turn_take(sk, end, turn);
			if (sk->sk_disconnects != turn->disconnects)
				return copied ? copied : -EPIPE;
			end->rx_partial -= partial;
			end = live_end(sk);
			if (!end)
				return copied ? copied : -ENOTSUPP;
			continue;
		} else if (l.ring) {
			n = take_ring(sk, end, msg, len - copied, flags);
		} else {
			n = 0;
		}

		if (n < 0)
			return copied ? copied : n;
		copied += n;
		if (!end)
			break;
		if (n || (!len && rx_readable_total(&l) > peek_pos)) {
			if (copied < len)	/* by a writer that is as fast: see tx_locked() */
				cond_resched();
			continue;
		}

		if (copied >= target)
			break;
		if (copied) {
			if (stop_short(sk, turn->timeo))
				break;
		} else {
			n = sks_rx_nothing_left(sk, turn->timeo);
			if (n <= 0)
				return n;
		}
		turn_end(turn);
		end->rx_partial += partial;
		asleep = !copied && !rx_readable_total(&l) && READ_ONCE(sk->sk_rcvlowat) > 1;
		n = sks_rx_wait(sk, end, &turn->timeo,
				asleep ? SOCKSPLICE_RX_MARK : rx_readable_total(&l));
		turn->slept = true;
		if (n < 0)
			return copied ? copied : n;
		asleep = asleep && turn->timeo && !signal_pending(current);
		end = sks_rx_turn_wait(sk);
		if (sk->sk_disconnects != turn->disconnects)
			return copied ? copied : -EPIPE;
		if (!end)
			return copied || is_over(sk, turn, len, tcp_sk(sk)->copied_seq) ?
			       copied : -ENOTSUPP;
		end->rx_partial -= partial;	/* which kept it attached */
		/* Another reader has taken what was peeked at: from the beginning again, as
		 * TCP, to which such a program is a bug.
		 */
		if (unlikely((flags & MSG_PEEK) && rx_front(sk, end) != front)) {
			peek_pos = peek_from;
			if (!copied)
				front = rx_front(sk, end);
		}
		/* A receive of no bytes ends here, but not by a wake-up that TCP has not. */
	} while (copied < len || (asleep && !sks_rx_has_more(sk, end, SOCKSPLICE_RX_MARK)));
	return copied;
}

static void put_inq(struct sock *sk, struct msghdr *msg, int inq, bool control)
{
	if (!inq && sock_flag(sk, SOCK_DONE))
		inq = 1;	/* as tcp_inq_hint(): read on, for the end of file */
	msg->msg_inq = inq;
	if (control)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(inq), &inq);
}

/* Takes back the TCP_CM_INQ that TCP has put last. It has put none where another thread has
 * switched that off meanwhile, or where the memory cannot be written.
 */
static void unput_inq(struct msghdr *msg, const struct rx_turn *turn)
{
	const size_t odd = turn->controllen % sizeof(long);
	size_t space = CMSG_SPACE(sizeof(int)), what = offsetof(struct cmsghdr, cmsg_level);
	int is[2];	/* level and type */
	void *at;

	BUILD_BUG_ON(offsetof(struct cmsghdr, cmsg_type) - offsetof(struct cmsghdr, cmsg_level) !=
		     sizeof(int));
	/* the padding may not have had room: see put_cmsg() */
	if (!msg->msg_controllen && odd)
		space -= sizeof(long) - odd;
#ifdef CONFIG_COMPAT
	if (msg->msg_flags & MSG_CMSG_COMPAT) {
		space = sizeof(struct compat_cmsghdr) + sizeof(int);
		what = offsetof(struct compat_cmsghdr, cmsg_level);
	}
#endif
	if (turn->controllen < msg->msg_controllen + space)
		return;
	at = msg->msg_control - space;
	if (!msg->msg_control_is_user)
		memcpy(is, at + what, sizeof(is));
	else if (copy_from_user(is, (void __user *)(at + what), sizeof(is)))
		return;
	if (is[0] != SOL_TCP || is[1] != TCP_CM_INQ)
		return;
	msg->msg_control = at;
	msg->msg_controllen += space;
}

/* For a call that read nothing: enters it again, where that would find another function;
 * not if ours was given back by somebody who had kept it. Else 0.
 */
static int enter_again(const struct sock *sk)
{
	return READ_ONCE(sk->sk_prot)->recvmsg == sks_rx_recvmsg ?
	       0 : sks_hook_restart(sk);
}

/* Without a time-out: one would begin anew in a call that is entered again. */
static bool is_endless(const struct sock *sk, const struct rx_turn *turn)
{
	return turn->timeo == MAX_SCHEDULE_TIMEOUT &&
	       READ_ONCE(sk->sk_rcvtimeo) == MAX_SCHEDULE_TIMEOUT;
}

/* Until TCP has something to say, for what is left of the time-out. Returns 0 if TCP is
 * to be called, 1 if a receive of no bytes is over, or what a call that read nothing
 * returns. Similar to the loop of tcp_splice_read().
 *
 * A reader that sleeps here holds the module for as long as its peer is silent. Once a second
 * it looks whether the socket is not ours any more. Then it enters its system call again, which
 * finds TCP's function. A call with a time-out does so only once pairing is switched off.
 */
static int wait_unpaired(struct sock *sk, struct rx_turn *turn, size_t len, u32 seen)
{
	sock_owned_by_me(sk);
	if (sk->sk_disconnects != turn->disconnects)
		return -EPIPE;
	for (;;) {
		const long slice = min_t(long, turn->timeo, HZ);
		long left = slice;
		int ret = 0;

		if (is_over(sk, turn, len, seen))
			return 1;
		if (tcp_has_news(sk, seen))
			return 0;
		if (!turn->timeo)
			return -EAGAIN;
		if (signal_pending(current))
			return sock_intr_errno(turn->timeo);
		if (!READ_ONCE(sks_pairing) || is_endless(sk, turn))
			ret = enter_again(sk);
		if (!ret)
			ret = min(sk_wait_data(sk, &left, skb_peek_tail(&sk->sk_receive_queue)), 0);
		if (ret)
			return ret;
		turn->slept = true;
		if (turn->timeo != MAX_SCHEDULE_TIMEOUT)
			turn->timeo -= slice - left;
	}
}

/* TCP's own, for what is left of the call's time-out, which would begin anew there. What
 * has come may be gone again, or not be for this reader. One that wants more than a byte
 * waits for the rest of it in TCP's, all the same.
 */
static int recvmsg_in_time(struct sock *sk, struct msghdr *msg, size_t len,
			   int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	const bool any = sock_rcvlowat(sk, flags & MSG_WAITALL, len) == 1;
	int ret, inq;
	u32 seen;

	lock_sock(sk);
	seen = tcp_sk(sk)->copied_seq;
	for (;;) {
		ret = wait_unpaired(sk, turn, len, seen);
		seen = tcp_sk(sk)->rcv_nxt;
		inq = sks_look_inq_hint(sk, NULL);
		release_sock(sk);
		if (ret)
			break;
		ret = tcp_prot.recvmsg(sk, msg, len,
				       any ? flags | MSG_DONTWAIT : flags COMPAT_ADDR_LEN_ARG);
		/* Between our sleep and its look at the socket TCP drops no lock. */
		if (ret == -ENOTCONN && READ_ONCE(sk->sk_disconnects) != turn->disconnects)
			return -EPIPE;
		if (!any || ret != -EAGAIN)
			return ret;
		/* At the urgent mark TCP takes nothing then, not even the mark: what there
		 * is behind it, as the FIN, would be news for ever.
		 */
		if (signal_pending(current))
			return turn->timeo ? sock_intr_errno(turn->timeo) : ret;
		lock_sock(sk);
	}
	if (ret < 0)
		return ret;
	if (turn->inq_control || msg->msg_get_inq)
		put_inq(sk, msg, inq, turn->inq_control);
	return 0;
}

/* TCP's own, for a socket that is enrolled but not paired. TCP's function would sleep with our
 * frame below it, and a silent peer would hold the module for ever: the call sleeps in our own
 * function, which it can leave once the socket is not ours any more. A call that wants more
 * than a byte and has a time-out sleeps in TCP's, which alone counts the time of all its parts.
 * Under TCP_REPAIR TCP's does not sleep.
 */
static int recvmsg_unpaired(struct sock *sk, struct pair_end *end,
			    struct msghdr *msg, size_t len,
			    int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	const bool in_parts = sock_rcvlowat(sk, flags & MSG_WAITALL, len) != 1;
	const bool in_ours = turn->timeo && !tcp_sk(sk)->repair &&
			     !(in_parts && turn->timeo != MAX_SCHEDULE_TIMEOUT);
	struct pair_end *peer = sks_end_hold(end);
	int ret;

	end->tcp_readers++;
	release_sock(sk);
	if (in_ours)
		ret = recvmsg_in_time(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, turn);
	else
		ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	lock_sock(sk);
	end->tcp_readers--;
	sks_end_put(end, peer);
	sks_end_detach_if_unmatched(sk);
	return ret;
}

/* TCP's own, for a socket that stopped being ours while the call slept. A call without a
 * time-out is entered again and finds TCP's function.
 */
static int recvmsg_pass(struct sock *sk, struct msghdr *msg, size_t len,
			int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn)
{
	int ret = 0;

	if (turn->timeo && !is_endless(sk, turn))
		return recvmsg_in_time(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, turn);
	if (!turn->timeo)
		flags |= MSG_DONTWAIT;
	else
		ret = enter_again(sk);
	return ret ? : tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
}

/* TCP's own for an urgent byte, but what it says of the bytes that are unread. */
static int recv_urgent(struct sock *sk, struct rx_turn *turn, struct msghdr *msg, size_t len,
		       int flags COMPAT_ADDR_LEN_PARAM)
{
	const bool told = tcp_sk(sk)->recvmsg_inq;
	const int ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
	const struct pair_end *end;
	int inq;

	if (ret < 0 || !(told || msg->msg_get_inq))
		return ret;
	lock_sock(sk);
	end = live_end(sk);
	inq = sks_look_inq_hint(sk, end);
	release_sock(sk);
	if (end) {
		if (told && !(msg->msg_flags & MSG_CTRUNC))
			unput_inq(msg, turn);
		put_inq(sk, msg, inq, told);
	}
	return ret;
}

int sks_rx_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
		   int flags COMPAT_ADDR_LEN_PARAM)
{
	struct rx_turn turn = {
		.control = msg->msg_control,
		.controllen = msg->msg_controllen,
	};
	struct pair_end *end;
	ssize_t ret = -ENOTSUPP;
	int inq = -1;

	sks_enter();
	/* these never sleep */
	if (flags & MSG_ERRQUEUE) {
		ret = tcp_prot.recvmsg(sk, msg, len, flags COMPAT_ADDR_LEN_ARG);
		goto leave;
	}
	if (flags & MSG_OOB) {
		ret = recv_urgent(sk, &turn, msg, len, flags COMPAT_ADDR_LEN_ARG);
		goto leave;
	}

	lock_sock(sk);
	turn.timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	turn.disconnects = sk->sk_disconnects;
	turn.inq_control = tcp_sk(sk)->recvmsg_inq;
	end = live_end(sk);
	if (end && !tcp_sk(sk)->repair) {
		sks_pages_charge(sk, end);
		ret = rx_locked(sk, &turn, msg, len, flags);
		turn_end(&turn);
		end = live_end(sk);
		if (ret >= 0 && (turn.inq_control || msg->msg_get_inq))
			inq = sks_look_inq_hint(sk, end);
		if (turn.told && !(msg->msg_flags & MSG_CTRUNC))
			unput_inq(msg, &turn);
	} else {
		end = sks_end_get(sk);
		if (end)
			ret = recvmsg_unpaired(sk, end, msg, len, flags COMPAT_ADDR_LEN_ARG,
					       &turn);
	}
	release_sock(sk);
	if (inq >= 0)
		put_inq(sk, msg, inq, turn.inq_control);
	if (ret == -ENOTSUPP)
		ret = recvmsg_pass(sk, msg, len, flags COMPAT_ADDR_LEN_ARG, &turn);
leave:
	sks_leave();
	return ret;
}
