// SPDX-License-Identifier: GPL-2.0
/*
 * Sending.
 *
 * The ring is a segment that is inserted into the byte stream at one sequence
 * number, end->seq. While it holds bytes, more may be appended only if TCP has
 * sent nothing since (write_seq == seq); once it is empty it may be inserted
 * anew, at the write_seq of that time. So the sender may go back to TCP at any
 * time, for a message or for ever, and the reader always knows the order:
 * TCP up to seq, the ring, TCP from seq on.
 *
 * All of it happens under the sender's own socket lock, as in tcp_sendmsg(), so
 * state, errors, shutdown and write_seq stand still meanwhile. A sender that waits for
 * space in the middle of a message drops the lock. It goes on over TCP as soon as another
 * thread wants to send (tx_turns). So a message is as whole among other threads' messages as
 * it is on TCP, whose buffer is larger than the ring. The reader's socket is never
 * locked.
 */
#include <linux/sched.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "core/inflight.h"
#include "core/stats.h"
#include "datapath/capture.h"
#include "datapath/rcvlowat.h"
#include "datapath/tx.h"
#include "datapath/tx_wait.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "pair/pages.h"
#include "pair/wake.h"

/* The sender publishes parts of this size, so that a reader that is awake copies while the sender
 * does. It wakes the reader for a whole message, or for two parts: a wake-up costs more than
 * the copy of a part.
 */
#define PUBLISH_CHUNK	16384U

/* A ring that was full this often grows, if it may. */
#define GROW_AFTER_FULL	8

/* The lowest limit of a ring. SO_RCVBUF cannot ask for less, but the sysctl tcp_rmem can. */
#define LIMIT_MIN	1024

/* Where the next bytes of a message go. From ROUTE_UNPAIRED on: by TCP, and why. */
enum route {
	ROUTE_RING,
	ROUTE_WAIT,	/* the ring, once the reader has taken more of what was sent */
	ROUTE_FAULT,	/* nowhere: the sender's memory cannot be read */
	ROUTE_UNPAIRED,
	ROUTE_STARTUP,
	ROUTE_READER,
	ROUTE_SPILL,
	ROUTE_SPECIAL,
	ROUTE_MEMORY,
	ROUTE_CLOSED,
	ROUTE_IDLE,
};

/* What counts the bytes that go by TCP. Those of sockets that are not paired are not counted. */
static const enum sks_stat route_stats[] = {
	[ROUTE_STARTUP]	= SOCKSPLICE_STAT_tcp_bytes_startup,
	[ROUTE_READER]	= SOCKSPLICE_STAT_tcp_bytes_reader,
	[ROUTE_SPILL]	= SOCKSPLICE_STAT_tcp_bytes_spill,
	[ROUTE_SPECIAL]	= SOCKSPLICE_STAT_tcp_bytes_special,
	[ROUTE_MEMORY]	= SOCKSPLICE_STAT_tcp_bytes_memory,
	[ROUTE_CLOSED]	= SOCKSPLICE_STAT_tcp_bytes_closed,
	[ROUTE_IDLE]	= SOCKSPLICE_STAT_tcp_bytes_idle,
};

/*
 * How many bytes of a ring of @size the reader @psk may leave unread.
 *
 * To TCP the bytes of a ring count as acknowledged: none of its timers runs for them. So no more
 * may wait there than TCP would acknowledge while the reader takes nothing, which is what the
 * reader's receive buffer holds. The rest goes by TCP and meets a window that closes. Then TCP's
 * own timers end the connection, by TCP_USER_TIMEOUT or the retries of an orphan. Half of
 * sk_rcvbuf is what SO_RCVBUF asked for: the kernel doubles that, for overhead. A buffer that TCP
 * tunes counts as grown to its bound, as it would have grown had the bytes gone by TCP.
 */
static noinline u32 limit_of(const struct sock *psk, u32 size)
{
	const struct netns_ipv4 *ipv4 = &sock_net(psk)->ipv4;
	int buf = READ_ONCE(psk->sk_rcvbuf);

	if (!(READ_ONCE(psk->sk_userlocks) & SOCK_RCVBUF_LOCK) &&
	    READ_ONCE(ipv4->sysctl_tcp_moderate_rcvbuf))
		buf = max(buf, READ_ONCE(ipv4->sysctl_tcp_rmem[2]));
	return clamp(buf / 2, LIMIT_MIN, (int)size);
}

/* The ring's limit is below its size, or has to be. */
static bool is_limited(const struct pair_end *end, const struct sock *psk)
{
	return end->ring_limit != end->ring.size ||
	       (u32)READ_ONCE(psk->sk_rcvbuf) < 2 * end->ring.size;
}

static noinline u32 limited_space(struct pair_end *end, u32 want)
{
	const u32 kept = end->ring.size - end->ring_limit;	/* free, beyond the limit */
	const u32 space = ring_space(&end->ring, want + kept);

	return space > kept ? min(want, space - kept) : 0;
}

/* Whether the reader's socket lets @sk use the ring. Also sets the limit of the ring that @end, of
 * @sk, sends into.
 *
 * ROUTE_CLOSED if a consumer in the kernel took the peer's socket over: it reads below
 * sk_prot, where it would never see the ring. Also if the reader has attached a
 * filter since, or asked for timestamps, which bytes of a ring do not have. Also
 * if its TCP would answer data with a reset. ROUTE_IDLE if one of the two sockets has not
 * received a packet of the other lately: the ring is to work only where packets pass. While a
 * ring is in use, the packets of probe.h keep it from becoming idle.
 */
static enum route look_at_reader(const struct sock *sk, struct pair_end *end,
				 const struct pair_end *peer)
{
	enum route route = ROUTE_RING;
	const struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (!psk || !sks_callbacks_are_known(peer, psk) || rcu_access_pointer(psk->sk_filter) ||
	    READ_ONCE(psk->sk_shutdown) == SHUTDOWN_MASK || READ_ONCE(psk->sk_state) == TCP_CLOSE ||
	    compat_wants_stamps(psk))
		route = ROUTE_CLOSED;
	else if (!sks_path_is_fresh(sk) || (sks_path_asks(psk) && !sks_path_is_fresh(psk)))
		route = ROUTE_IDLE;
	else if (unlikely(is_limited(end, psk)))
		WRITE_ONCE(end->ring_limit, limit_of(psk, end->ring.size));
	rcu_read_unlock();
	return route;
}

enum numbers {
	NUMBERS_AGREE,
	NUMBERS_DIFFER,
	NUMBERS_UNKNOWN,	/* until all bytes that TCP was given are acknowledged */
};

/*
 * Whether both ends count alike the bytes that went by TCP. Otherwise end->seq would tell the
 * reader nothing. A helper of NAT (for FTP, say) that changes the length of a payload shifts all
 * sequence numbers behind it. Where the ends agree, the peer expects a number between snd_una
 * and write_seq. That does not show a change that is still in flight. Conntrack changes numbers on
 * translated connections only. There everything has to be acknowledged: then the peer
 * expects exactly write_seq. @sk is locked.
 */
static enum numbers compare_numbers(const struct sock *sk, const struct pair_end *end,
				    const struct pair_end *peer)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	enum numbers ret = NUMBERS_AGREE;
	const struct sock *psk;

	sock_owned_by_me(sk);
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (psk) {
		u32 rcv_nxt = READ_ONCE(tcp_sk(psk)->rcv_nxt);

		if (before(rcv_nxt, tp->snd_una) || after(rcv_nxt, tp->write_seq))
			ret = NUMBERS_DIFFER;
		else if (unlikely(test_bit(END_TRANSLATED, &end->flags)) &&
			 tp->snd_una != tp->write_seq)
			ret = NUMBERS_UNKNOWN;
	}
	rcu_read_unlock();
	return ret;
}

static bool ring_is_empty(const struct pair_end *end)
{
	return !ring_len(&end->ring);
}

/* Takes the pair back to TCP, which alone carries urgent data. The ring is closed before TCP has
 * the urgent byte, so no ring byte stands behind the urgent mark. @sk is locked.
 */
static void unpair_for_urgent(struct sock *sk, struct pair_end *end)
{
	sks_close_ring(sk, end);
	sks_unpair_end(end, "urgent");
}

/* True if the reader may still have an urgent mark before it. Then it was sent before the pairing,
 * or by a call that was in TCP's own function before sk_prot was ours. @sk is locked.
 */
static bool has_urgent_mark(const struct sock *sk, const struct pair_end *peer)
{
	const struct sock *psk;
	bool mark;

	sock_owned_by_me(sk);
	/* In flight; the reader's TCP sees the mark before it acknowledges it. */
	if (after(tcp_sk(sk)->snd_up, tcp_sk(sk)->snd_una))
		return true;
	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	mark = psk && READ_ONCE(tcp_sk(psk)->urg_data);
	rcu_read_unlock();
	return mark;
}

/* Inserts the ring into the stream at write_seq, if it may stand there: ROUTE_RING. */
static enum route insert_ring(struct sock *sk, struct pair_end *end, const struct pair_end *peer)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!ring_is_empty(end))
		return ROUTE_SPILL;
	/* TCP holds bytes back, and only its next send would push them: the ring
	 * would wait behind them. (The ACKs of packets in flight push them, too, unless
	 * the socket is corked.)
	 */
	if (tp->snd_nxt != tp->write_seq && (!tp->packets_out || (tp->nonagle & TCP_NAGLE_CORK)))
		return ROUTE_SPILL;
	if (unlikely(has_urgent_mark(sk, peer))) {
		unpair_for_urgent(sk, end);
		return ROUTE_CLOSED;
	}
	switch (compare_numbers(sk, end, peer)) {
	case NUMBERS_DIFFER:
		sks_close_ring(sk, end);
		return ROUTE_CLOSED;
	case NUMBERS_UNKNOWN:
		return ROUTE_SPILL;
	case NUMBERS_AGREE:
		break;
	}
	WRITE_ONCE(end->seq, tp->write_seq);
	WRITE_ONCE(end->spilled, false);
	return ROUTE_RING;
}

/*
 * Where the next bytes of @msg go. Opens the ring where it may be opened. May
 * sleep, for memory, with the lock held. @naps: the sender waits for a moment at most
 * (tx_wait.c), so ROUTE_WAIT if the reader has a long TCP backlog before the ring.
 */
static enum route tx_route(struct sock *sk, struct pair_end *end, const struct msghdr *msg,
			   bool naps)
{
	struct pair_end *peer = end ? sks_end_peer(end) : NULL;
	const struct tcp_sock *tp = tcp_sk(sk);
	enum route route;

	if (!peer || test_bit(END_SHADOW, &end->flags))
		return ROUTE_UNPAIRED;
	if (unlikely(msg->msg_flags & MSG_OOB)) {
		unpair_for_urgent(sk, end);
		return ROUTE_SPECIAL;
	}
	if (test_bit(END_TX_CLOSED, &end->flags) || test_bit(END_RX_CLOSED, &peer->flags))
		return ROUTE_CLOSED;
	/* TCP has the answer to all of these. */
	if (!((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)) || sk->sk_err ||
	    (sk->sk_shutdown & SEND_SHUTDOWN) || tp->repair)
		return ROUTE_CLOSED;
	if ((msg->msg_flags & (MSG_ZEROCOPY | MSG_FASTOPEN)) || msg->msg_controllen ||
	    msg->msg_ubuf || READ_ONCE(sk->sk_tsflags) || tp->tcp_tx_delay ||
	    READ_ONCE(sk->sk_max_pacing_rate) != ~0UL)
		return ROUTE_SPECIAL;
	if (!test_bit(END_RX_READY, &peer->flags))
		return test_bit(END_RX_DOUBT, &peer->flags) ? ROUTE_READER : ROUTE_STARTUP;
	/* An end that is to be un-paired uses the ring no more. unpair.c alone would have to wait
	 * for the lock, which a long send keeps. A sender in the kernel may look at TCP's
	 * counters for what has arrived, as ksmbd does.
	 */
	route = unlikely(test_bit(END_DROPPED, &end->flags) || sk->sk_kern_sock) ?
			ROUTE_CLOSED :
			look_at_reader(sk, end, peer);
	if (unlikely(route != ROUTE_RING)) {
		if (route == ROUTE_CLOSED)
			sks_close_ring(sk, end);
		return route;
	}
	if (end->spilled && naps && sks_tx_is_behind(sk, end, peer)) {
		/* If the peer counts by other numbers, the reader would seem behind for ever. */
		if (likely(compare_numbers(sk, end, peer) != NUMBERS_DIFFER))
			return ROUTE_WAIT;
		sks_close_ring(sk, end);
		return ROUTE_CLOSED;
	}
	if (unlikely(!end->ring.pages)) {
		sks_pages_charge(sk, end);
		if (!sks_pages_open(sk, end))
			return ROUTE_MEMORY;
	} else if (unlikely(end->ring_full >= GROW_AFTER_FULL) &&
		   end->ring_limit == end->ring.size) {
		sks_pages_grow(sk, end);
	}
	if (end->seq != tp->write_seq || end->spilled)
		return insert_ring(sk, end, peer);
	return ROUTE_RING;
}

/*
 * Appends a part, up to a quarter of the ring's limit, publishes it and adds its length to
 * *@copied. The caller wakes the reader before it sleeps or returns. ROUTE_RING, or, with nothing
 * appended,
 *	ROUTE_WAIT	the ring holds all that it may
 *	ROUTE_FAULT	a byte could not be read from the sender's memory
 *	ROUTE_CLOSED	the reader has closed its socket: the bytes have to go by TCP, which
 *			answers with a reset
 *	ROUTE_MEMORY	the ring needs more pages, and there are none now
 */
static enum route tx_append(struct sock *sk, struct pair_end *end, struct msghdr *msg,
			    ssize_t *copied)
{
	struct pair_end *peer = sks_end_peer(end);
	const u32 want =
		min3((size_t)end->ring_limit / 4, (size_t)PUBLISH_CHUNK, msg_data_left(msg));
	struct capture_slot slot;
	u32 done = 0, n;

	ring_rewind(&end->ring);
	if (likely(end->ring_limit == end->ring.size))
		n = min(want, ring_space(&end->ring, want));
	else
		n = limited_space(end, want);
	if (unlikely(n > ring_backed(&end->ring)) && !sks_pages_fill(sk, end, n))
		return ROUTE_MEMORY;
	while (done < n) {
		u32 seg, got;
		void *p = ring_write_seg(&end->ring, done, &seg);

		seg = min(seg, n - done);
		/* Without the check that the copy stays within an object of the heap: @p is in
		 * a page of the ring, and @seg ends with that page.
		 */
		got = _copy_from_iter(p, seg, &msg->msg_iter);
		done += got;
		if (got < seg) {
			iov_iter_revert(&msg->msg_iter, done);
			return ROUTE_FAULT;
		}
	}
	if (!done) {
		end->ring_full++;
		return ROUTE_WAIT;
	}

	/* Before the reader can answer. */
	sks_capture_begin(sk, end, done, &slot);
	ring_publish(&end->ring, done);
	/* Head before RX_CLOSED: pairs with the barrier in proto_close(). Either the sender
	 * sees that the reader is gone, or the reader sees unread bytes and resets.
	 * Also head before all that follows on TCP, for rx_readable(). And head before this
	 * socket's lock is free, for close_ring().
	 */
	smp_mb();
	if (unlikely(test_bit(END_RX_CLOSED, &peer->flags))) {
		u32 left;

		/* The reader's last take came before RX_CLOSED, so the tail is final:
		 * pairs with the barrier in sks_rx_consume().
		 */
		smp_rmb();
		left = min(ring_len(&end->ring), done);
		ring_retract(&end->ring, left);
		iov_iter_revert(&msg->msg_iter, left);
		done -= left;
	}
	socksplice_capture_end(end, done, &slot);
	if (unlikely(!done))
		return ROUTE_CLOSED;
	WRITE_ONCE(end->ring_used_at, tcp_jiffies32);
	WRITE_ONCE(end->ring_bytes, end->ring_bytes + done);
	sks_stat_add(SOCKSPLICE_STAT_ring_bytes, done);
	*copied += done;
	return ROUTE_RING;
}

/* Wakes the reader for what was appended. @sk is locked. */
static void notify_reader(const struct sock *sk, struct pair_end *end)
{
	if (unlikely(tcp_sk(sk)->snd_una != tcp_sk(sk)->write_seq))
		sks_rcvlowat_appended(end);
	sks_wake_reader(sks_end_peer(end));
}

static bool linked_since(const struct sock *sk, const struct pair_end *end)
{
	return sks_end_get(sk) == end && sks_end_peer(end);
}

/* Calls TCP's own sendmsg. It may sleep for memory for an unlimited time, with our frame
 * below; inflight.h says what keeps our text meanwhile.
 */
static ssize_t tx_tcp(struct sock *sk, struct msghdr *msg, unsigned int more_flags)
{
	struct pair_end *end = sks_end_get(sk), *peer;
	const unsigned int flags = msg->msg_flags;
	u32 before = 0;
	ssize_t ret;

	if (end) {
		peer = sks_end_hold(end);
		end->sleepers++;
		if (peer && !test_bit(END_SHADOW, &end->flags))
			before = sks_look_rcv_nxt(peer);
	}
	msg->msg_flags |= more_flags;
	ret = tcp_sendmsg_locked(sk, msg, msg_data_left(msg));
	msg->msg_flags = flags;
	if (end) {
		end->sleepers--;
		/* An end that was linked meanwhile and is still attached has a peer now. */
		if (ret > 0 && (peer || linked_since(sk, end)) &&
		    !test_bit(END_SHADOW, &end->flags))
			sks_rcvlowat_sent(end, before);
		sks_end_put(end, peer);
	}
	return ret;
}

/*
 * Sends by TCP the rest of a message whose first bytes are in the ring, as TCP does once it has
 * queued a part: an error is kept for the next call, and raises no signal in this one.
 */
static ssize_t tx_tcp_rest(struct sock *sk, struct msghdr *msg, unsigned int more_flags)
{
	const int disconnects = sk->sk_disconnects;
	ssize_t ret;

	if (sk->sk_err || (sk->sk_shutdown & SEND_SHUTDOWN))
		return 0;
	ret = tx_tcp(sk, msg, more_flags | MSG_NOSIGNAL);
	if (ret >= 0)
		return ret;
	switch (ret) {
	case -EAGAIN:
	case -EINTR:
	case -ERESTARTSYS:
	case -EFAULT:
	case -ENOMEM:
		break;
	/* A reset after the peer's FIN, or this end's own shutdown. The two cannot be told apart
	 * if the peer has acknowledged all bytes before this sender ran again.
	 */
	case -EPIPE:
		if (sk->sk_state == TCP_CLOSE && sock_flag(sk, SOCK_DONE) && !sk->sk_err &&
		    sk->sk_disconnects == disconnects)
			WRITE_ONCE(sk->sk_err, EPIPE);
		break;
	default:	/* sk_stream_error() has taken the error from the socket */
		if (!sk->sk_err)
			WRITE_ONCE(sk->sk_err, -ret);
	}
	return 0;
}

static void sent_by_tcp(struct sock *sk, enum route why, ssize_t n)
{
	struct pair_end *end = sks_end_get(sk);

	if (n <= 0 || why == ROUTE_UNPAIRED)
		return;
	sks_stat_add(route_stats[why], n);
	if (!end)
		return;
	WRITE_ONCE(end->tcp_bytes, end->tcp_bytes + n);
	WRITE_ONCE(end->tcp_msgs, end->tcp_msgs + 1);
}

/* Counts a part that is in the ring, and wakes the reader if it is time. True if the message ends
 * with it.
 */
static bool sent_by_ring(struct sock *sk, struct pair_end *end, struct msghdr *msg)
{
	/* The reader was woken for a full ring. */
	if (!msg_data_left(msg) ||
	    ring_len(&end->ring) >= min(end->ring_limit / 2, 2 * PUBLISH_CHUNK))
		notify_reader(sk, end);
	if (!msg_data_left(msg)) {
		WRITE_ONCE(end->ring_msgs, end->ring_msgs + 1);
		sks_stat_inc(SOCKSPLICE_STAT_ring_messages);
		return true;
	}
	/* As tcp_sendmsg_locked(), for packets that have come meanwhile. */
	sk_flush_backlog(sk);
	/* TCP's function allocates between two parts, which may sleep. Here a reader that is as
	 * fast as the sender would keep it for all of a message.
	 */
	cond_resched();
	return false;
}

/* The wait for the reader has not helped: TCP takes over until the ring is inserted anew. */
static void note_spill(struct sock *sk)
{
	struct pair_end *end = sks_end_get(sk);

	if (end && !end->spilled) {
		WRITE_ONCE(end->spilled, true);
		sks_stat_inc(SOCKSPLICE_STAT_spills);
	}
}

/* Sends by TCP what is left of a message of which @copied bytes are in the ring. Returns what the
 * call returns.
 */
static ssize_t tx_finish(struct sock *sk, struct msghdr *msg, ssize_t copied, enum route why,
			 unsigned int more_flags)
{
	struct pair_end *end;
	ssize_t n;

	if (copied > 0) {
		end = sks_end_get(sk);
		if (end)
			notify_reader(sk, end);
		n = tx_tcp_rest(sk, msg, more_flags);
		sent_by_tcp(sk, why, n);
		copied += n;
	} else {
		copied = tx_tcp(sk, msg, more_flags);
		sent_by_tcp(sk, why, copied);
	}
	sks_end_detach_if_unmatched(sk);
	return copied;
}

/* As sks_tx_sendmsg_locked(). */
static ssize_t tx_locked(struct sock *sk, struct msghdr *msg, bool may_wait, struct tx_wait *w)
{
	const int disconnects = sk->sk_disconnects;
	const bool naps = may_wait && !w->timeo;
	enum route route = ROUTE_UNPAIRED;
	unsigned int more_flags = 0;
	struct pair_end *end;
	ssize_t copied = 0;
	bool again;

	sock_owned_by_me(sk);
	while (msg_data_left(msg)) {
		end = sks_end_get(sk);
		route = tx_route(sk, end, msg, naps);
		if (route == ROUTE_RING)
			route = tx_append(sk, end, msg, &copied);
		if (route == ROUTE_RING) {
			if (sent_by_ring(sk, end, msg))
				return copied;
			continue;
		}
		if (route == ROUTE_FAULT) {
			if (!copied)
				return -EFAULT;
			notify_reader(sk, end);
			return copied;
		}
		if (route != ROUTE_WAIT)
			break;
		again = may_wait && sks_tx_wait(sk, end, w, msg_data_left(msg), copied > 0);
		/* Another sender may have begun a message during the wait. */
		if (may_wait && !copied)
			sks_tx_wait_turn(sk);
		/* The rest belongs to the old connection, though there may be a new one
		 * on this socket; as in sk_stream_wait_memory().
		 */
		if (sk->sk_disconnects != disconnects)
			return copied ?: sk_stream_error(sk, msg->msg_flags, -EPIPE);
		if (again)
			continue;
		if (!w->timeo)
			more_flags = MSG_DONTWAIT;	/* SO_SNDTIMEO, if any, has run out */
		note_spill(sk);
		route = ROUTE_SPILL;
		break;
	}
	return tx_finish(sk, msg, copied, route, more_flags);
}

ssize_t sks_tx_sendmsg_locked(struct sock *sk, struct msghdr *msg, bool may_wait)
{
	struct tx_wait w = { .timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT) };

	return tx_locked(sk, msg, may_wait, &w);
}

int sks_tx_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	int ret;

	sks_enter();
	lock_sock(sk);
	sks_tx_wait_turn(sk);
	ret = sks_tx_sendmsg_locked(sk, msg, true);
	release_sock(sk);
	sks_leave();
	return ret;
}
