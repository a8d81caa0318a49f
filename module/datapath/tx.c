// SPDX-License-Identifier: GPL-2.0
/*
 * Sending.
 *
 * The ring is a segment that is inserted into the byte stream at one sequence
 * number, end->seq. While it holds bytes, more may be appended only if TCP has
 * sent nothing since (write_seq == seq); once it is empty it may be inserted
 * anew, at what write_seq is then. So the sender may go back to TCP at any
 * time, for a message or for ever, and the reader always knows the order:
 * TCP up to seq, the ring, TCP from seq on.
 *
 * All of it happens under the sender's own socket lock, as in tcp_sendmsg(), so
 * that state, errors, shutdown and write_seq stand still meanwhile. Who waits for
 * space in the middle of a message drops it, and goes on over TCP as soon as another
 * wants to send (tx_turns): so a message is as whole among other threads' messages as
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
#include "pair/end.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "pair/pages.h"
#include "pair/wake.h"

/* Bytes are published in such parts, so that a reader that is awake copies while we do. It is
 * woken for a whole message, or for twice as much of it: each wake-up costs more than
 * such a copy.
 */
#define PUBLISH_CHUNK	16384U

/* A ring that was full so often is too small for what is sent, if it may grow. */
#define GROW_AFTER_FULL	8

/* The least that a ring may be limited to. SO_RCVBUF cannot ask for less, but the sysctl
 * tcp_rmem can.
 */
#define LIMIT_MIN	1024

/* Where bytes go: the ring, or TCP for the reason that is counted. */
enum route {
	ROUTE_RING = -1,
	ROUTE_BEHIND = -2,	/* TCP for now: sks_tx_is_behind() */
	ROUTE_UNPAIRED = SOCKSPLICE_STAT_MAX,	/* TCP, and nothing to count */
	ROUTE_STARTUP = SOCKSPLICE_STAT_tcp_bytes_startup,
	ROUTE_READER = SOCKSPLICE_STAT_tcp_bytes_reader,
	ROUTE_SPILL = SOCKSPLICE_STAT_tcp_bytes_spill,
	ROUTE_SPECIAL = SOCKSPLICE_STAT_tcp_bytes_special,
	ROUTE_MEMORY = SOCKSPLICE_STAT_tcp_bytes_memory,
	ROUTE_CLOSED = SOCKSPLICE_STAT_tcp_bytes_closed,
	ROUTE_IDLE = SOCKSPLICE_STAT_tcp_bytes_idle,
};

/*
 * How many bytes of a ring of @size the reader @psk may leave unread.
 *
 * To TCP the bytes of a ring are acknowledged. So no more of them may wait than TCP would
 * acknowledge while the reader takes nothing, which is what its receive buffer holds. All
 * else goes by TCP and meets a window that closes: TCP's own timers end the connection
 * then, as TCP_USER_TIMEOUT or the retries of an orphan say. Half of sk_rcvbuf is what
 * SO_RCVBUF asked for: the kernel doubles that, for overhead. A buffer that TCP tunes counts
 * as grown to its bound, as it would have been had its bytes gone by TCP.
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

/* The limit is not the ring's size, or must not be. */
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

/* Also sets the limit of the ring that @end, of @sk, sends into.
 *
 * ROUTE_CLOSED if a consumer in the kernel took the peer's socket over: it reads below
 * sk_prot, where it would never see the ring. Also if the reader has attached a
 * filter since, or asked for timestamps, which bytes of a ring do not have; or
 * if its TCP would answer data with a reset. ROUTE_IDLE where one of the two has not
 * heard of the other lately, which the packets of probe.h see to while a ring is in use:
 * bytes of the ring go where packets go.
 */
static enum route look_at_reader(const struct sock *sk, struct pair_end *end,
				 const struct pair_end *peer)
{
	enum route route = ROUTE_RING;
	const struct sock *psk;

	rcu_read_lock();
	psk = rcu_dereference(peer->sk);
	if (!psk || !sks_callbacks_are_known(peer, psk) ||
	    rcu_access_pointer(psk->sk_filter) ||
	    READ_ONCE(psk->sk_shutdown) == SHUTDOWN_MASK ||
	    READ_ONCE(psk->sk_state) == TCP_CLOSE ||
	    READ_ONCE(psk->sk_tsflags) || sock_flag(psk, SOCK_RCVTSTAMP))
		route = ROUTE_CLOSED;
	else if (!sks_path_is_fresh(sk) ||
		 (sks_path_asks(psk) && !sks_path_is_fresh(psk)))
		route = ROUTE_IDLE;
	else if (unlikely(is_limited(end, psk)))
		WRITE_ONCE(end->ring_limit, limit_of(psk, end->ring.size));
	rcu_read_unlock();
	return route;
}

enum numbers {
	NUMBERS_AGREE,
	NUMBERS_DIFFER,
	NUMBERS_UNKNOWN,	/* until all that TCP was given is acknowledged */
};

/*
 * Whether both ends count the bytes that went by TCP alike, as end->seq tells the reader nothing
 * otherwise. A helper of NAT (of FTP, say) that changes the length of a payload shifts all
 * sequence numbers behind it. Where they agree, what the peer expects next is not
 * acknowledged, and was sent at most. That does not show a change that is still in flight.
 * Conntrack changes numbers on translated connections only. There, everything has to be
 * acknowledged; then the peer expects exactly what comes next. @sk is locked.
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

/* Inserts the ring into the stream at write_seq, if it may stand there: ROUTE_RING. */
static enum route insert_ring(struct sock *sk, struct pair_end *end,
			      const struct pair_end *peer)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!ring_is_empty(end))
		return ROUTE_SPILL;
	/* TCP holds bytes back, and only its next send would push them:
	 * behind them the ring would wait. (Where packets are in
	 * flight, their ACKs do it, unless the socket is corked.)
	 */
	if (tp->snd_nxt != tp->write_seq &&
	    (!tp->packets_out || (tp->nonagle & TCP_NAGLE_CORK)))
		return ROUTE_SPILL;
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
 * Where the next bytes of @msg go. Opens the ring where it may be opened; may
 * sleep, for memory, with the lock held. @moments: who sends waits for no more than a moment
 * (tx_wait.c), so ROUTE_BEHIND rather than a ring that the reader will not come to for long.
 */
static enum route tx_route(struct sock *sk, struct pair_end *end,
			   const struct msghdr *msg, bool moments)
{
	struct pair_end *peer = end ? sks_end_peer(end) : NULL;
	const struct tcp_sock *tp = tcp_sk(sk);
	enum route route;

	if (!peer || test_bit(END_SHADOW, &end->flags))
		return ROUTE_UNPAIRED;
	if (test_bit(END_TX_CLOSED, &end->flags) ||
	    test_bit(END_RX_CLOSED, &peer->flags))
		return ROUTE_CLOSED;
	/* TCP has the answer to all of these. */
	if (!((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)) ||
	    sk->sk_err || (sk->sk_shutdown & SEND_SHUTDOWN) || tp->repair)
		return ROUTE_CLOSED;
	if ((msg->msg_flags & (MSG_OOB | MSG_ZEROCOPY | MSG_FASTOPEN)) ||
	    msg->msg_controllen || msg->msg_ubuf ||
	    READ_ONCE(sk->sk_tsflags) || tp->tcp_tx_delay ||
	    READ_ONCE(sk->sk_max_pacing_rate) != ~0UL)
		return ROUTE_SPECIAL;
	if (!test_bit(END_RX_READY, &peer->flags))
		return test_bit(END_RX_DOUBT, &peer->flags) ? ROUTE_READER : ROUTE_STARTUP;
	/* A drop is not left to unpair.c alone, which would wait for us to let go of the
	 * socket: in the middle of a send that may be as long as we like. The kernel
	 * itself may look at TCP's counters for what has arrived, as ksmbd does.
	 */
	route = unlikely(test_bit(END_DROPPED, &end->flags) || sk->sk_kern_sock) ?
		ROUTE_CLOSED : look_at_reader(sk, end, peer);
	if (unlikely(route != ROUTE_RING)) {
		if (route == ROUTE_CLOSED)
			sks_close_ring(sk, end);
		return route;
	}
	if (end->spilled && moments && sks_tx_is_behind(sk, end, peer)) {
		/* By numbers that are not the peer's it would be for ever. */
		if (likely(compare_numbers(sk, end, peer) != NUMBERS_DIFFER))
			return ROUTE_BEHIND;
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
 * Appends a part, up to a quarter of what the ring may hold, and publishes it; the caller wakes the
 * reader, before it sleeps or returns. Returns the number of bytes, 0 if the
 * ring holds all that it may, or, with nothing taken,
 *	-EFAULT	a byte could not be read from the sender's memory
 *	-EPIPE	the reader closed its socket meanwhile: the bytes must go by TCP,
 *		which answers with a reset
 *	-ENOMEM	the pages of the ring have no room for them, and there are no more now
 */
static ssize_t tx_append(struct sock *sk, struct pair_end *end, struct msghdr *msg)
{
	struct pair_end *peer = sks_end_peer(end);
	const u32 want = min3((size_t)end->ring_limit / 4, (size_t)PUBLISH_CHUNK,
			      msg_data_left(msg));
	struct capture_slot slot;
	u32 done = 0, n;

	ring_rewind(&end->ring);
	if (likely(end->ring_limit == end->ring.size))
		n = min(want, ring_space(&end->ring, want));
	else
		n = limited_space(end, want);
	if (unlikely(n > ring_backed(&end->ring)) && !sks_pages_fill(sk, end, n))
		return -ENOMEM;
	while (done < n) {
		u32 seg, got;
		void *p = ring_write_seg(&end->ring, done, &seg);

		seg = min(seg, n - done);
		/* Without the check that @p stays within an object of the heap: it is a page
		 * of its own, and @seg ends with it.
		 */
		got = _copy_from_iter(p, seg, &msg->msg_iter);
		done += got;
		if (got < seg) {
			iov_iter_revert(&msg->msg_iter, done);
			return -EFAULT;
		}
	}
	if (!done)
		return 0;

	/* Before the reader can answer. */
	sks_capture_begin(sk, end, done, &slot);
	ring_publish(&end->ring, done);
	/* Head before RX_CLOSED: pairs with the barrier in proto_close(). Either
	 * we see that the reader is gone, or it sees unread bytes and resets.
	 * Also head before all that follows on TCP, for rx_readable(), and before this
	 * socket's lock is free, for who closes the ring then (close_ring()).
	 */
	smp_mb();
	if (unlikely(test_bit(END_RX_CLOSED, &peer->flags))) {
		u32 left;

		/* Its last take came before RX_CLOSED, so the tail is final: pairs
		 * with the barrier in sks_rx_consume().
		 */
		smp_rmb();
		left = min(ring_len(&end->ring), done);
		ring_retract(&end->ring, left);
		iov_iter_revert(&msg->msg_iter, left);
		done -= left;
	}
	socksplice_capture_end(end, done, &slot);
	if (unlikely(!done))
		return -EPIPE;
	end->ring_bytes += done;
	sks_stat_add(SOCKSPLICE_STAT_ring_bytes, done);
	return done;
}

/* Of what was appended. @sk is locked. */
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

/* TCP's own sendmsg. It may sleep for memory as long as it likes, with our frame
 * below; inflight.h has what keeps our text meanwhile.
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
		/* If it was linked meanwhile, and is attached, it has a peer, too. */
		if (ret > 0 && (peer || linked_since(sk, end)) &&
		    !test_bit(END_SHADOW, &end->flags))
			sks_rcvlowat_sent(end, before);
		sks_end_put(end, peer);
	}
	return ret;
}

/*
 * What TCP would do with the rest of a message of which @copied bytes are
 * queued already: an error that stops it is kept for the next call, and raises
 * no signal in this one.
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
	/* A reset after the peer's FIN, or just this end's shutdown, which is not told apart
	 * where the peer has acknowledged all before we ran again.
	 */
	case -EPIPE:
		if (sk->sk_state == TCP_CLOSE && sock_flag(sk, SOCK_DONE) && !sk->sk_err &&
		    sk->sk_disconnects == disconnects)
			WRITE_ONCE(sk->sk_err, EPIPE);
		break;
	default:	/* sk_stream_error() consumed it */
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
	sks_stat_add((enum sks_stat)why, n);
	if (!end)
		return;
	end->tcp_bytes += n;
	end->tcp_msgs++;
}

/* As sks_tx_sendmsg_locked(). */
static ssize_t tx_locked(struct sock *sk, struct msghdr *msg, bool may_wait, struct tx_wait *w)
{
	const int disconnects = sk->sk_disconnects;
	const bool moments = may_wait && !w->timeo;
	enum route route = ROUTE_UNPAIRED;
	unsigned int more_flags = 0;
	struct pair_end *end;
	ssize_t copied = 0, n;

	sock_owned_by_me(sk);
	while (msg_data_left(msg)) {
		bool again;

		end = sks_end_get(sk);
		route = tx_route(sk, end, msg, moments);
		if (route == ROUTE_BEHIND)
			goto wait;
		if (route != ROUTE_RING)
			break;
		n = tx_append(sk, end, msg);
		if (n == -EPIPE) {
			route = ROUTE_CLOSED;
			break;
		}
		if (n == -ENOMEM) {
			route = ROUTE_MEMORY;
			break;
		}
		if (n < 0) {
			if (copied)
				notify_reader(sk, end);
			else
				copied = n;
			return copied;
		}
		copied += n;
		/* Of a full ring it has been told. */
		if (n && (!msg_data_left(msg) ||
			  ring_len(&end->ring) >= min(end->ring_limit / 2, 2 * PUBLISH_CHUNK)))
			notify_reader(sk, end);
		if (!msg_data_left(msg)) {
			end->ring_msgs++;
			sks_stat_inc(SOCKSPLICE_STAT_ring_messages);
			return copied;
		}
		if (n) {
			/* as tcp_sendmsg_locked(), of what has come meanwhile */
			sk_flush_backlog(sk);
			/* It allocates meanwhile, which may sleep; a reader that is as fast
			 * as we are would keep us here for all of a message.
			 */
			cond_resched();
			continue;
		}
		end->ring_full++;
wait:
		again = may_wait && sks_tx_wait(sk, end, w, msg_data_left(msg), copied > 0);
		/* While we waited, somebody may have begun a message. */
		if (may_wait && !copied)
			sks_tx_wait_turn(sk);
		/* The rest belongs to the connection that was, though there may
		 * be a new one; as sk_stream_wait_memory() has it.
		 */
		if (sk->sk_disconnects != disconnects) {
			if (!copied)
				copied = sk_stream_error(sk, msg->msg_flags, -EPIPE);
			return copied;
		}
		if (again)
			continue;
		if (!w->timeo)
			more_flags = MSG_DONTWAIT;	/* all of SO_SNDTIMEO is gone, if any was */
		end = sks_end_get(sk);
		if (end && !end->spilled) {
			WRITE_ONCE(end->spilled, true);
			sks_stat_inc(SOCKSPLICE_STAT_spills);
		}
		route = ROUTE_SPILL;
		break;
	}

	if (copied > 0) {
		end = sks_end_get(sk);
		if (end)
			notify_reader(sk, end);
		n = tx_tcp_rest(sk, msg, more_flags);
		sent_by_tcp(sk, route, n);
		copied += n;
	} else {
		copied = tx_tcp(sk, msg, more_flags);
		sent_by_tcp(sk, route, copied);
	}
	sks_end_detach_if_unmatched(sk);
	return copied;
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
