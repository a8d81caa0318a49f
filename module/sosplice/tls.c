// SPDX-License-Identifier: GPL-2.0
/*
 * The mover's rounds if the source or the sink has kTLS. They call TLS's own functions: read_sock
 * of the source, sendmsg of the sink.
 *
 * Source. TLS decrypts a record and passes it to take_record(), which returns how many of its bytes
 * the sink took. The rest stays with TLS, for the next round or another reader. A record of another
 * type than application data is not passed on: it stays, too, and ends the splice.
 *
 * Sink. TLS makes a record of what it gets, and passes it to TCP. Two things differ from TCP:
 *   - TLS's sendmsg takes the locks itself: first its tx_lock, then the socket's. So the mover
 *     looks at the sink with its lock held, and drops that for the send. Another task may come
 *     between. The mover never waits for the tx_lock, whose owner may sleep until the sink has
 *     room: send_now() has how. It may wait for the socket's lock as any sender. Movers cannot
 *     wait for each other: each holds its source, and one of a circle finds its sink locked when
 *     it looks.
 *   - A record that TLS has made counts as sent, even if TCP had no room for all of it. TLS passes
 *     on the rest later, but drops it if the socket is shut down or closed first. So the mover
 *     sends no more than TCP has room for. If TCP takes less all the same, the splice waits before
 *     it ends, and sends nothing: SPLICE_UNFLUSHED.
 *
 * Errors. While sk_err holds an error, TLS passes on nothing, and later only if something else has
 * it try. The application may have left a part of a record in the source. So an error of the
 * splice waits for that, too, except ETIMEDOUT. And while the sink has the error of another
 * splice, nothing is sent.
 *
 * Close. The mover holds the sink's file during the send, so the socket is not closed then. Its
 * close waits until the mover puts the file, and then is the work of a kernel thread.
 */
#include <linux/fs.h>
#include <linux/file.h>
#include <linux/task_work.h>
#include <net/strparser.h>
#include <net/tcp.h>
#include <net/tls.h>

#include "pair/end.h"
#include "sosplice/batch.h"
#include "sosplice/endpoint.h"
#include "sosplice/evict.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/mover.h"
#include "sosplice/tls.h"
#include "sosplice/tls_endpoint.h"

#define RECORD_MIN	512U	/* bytes; no smaller records because there is little room */
#define RING_PIECES	8	/* most pieces of a ring in one record */

/* What a look at a sink with kTLS gives. */
struct sink_look {
	struct file *file;	/* held; NULL: the sink cannot send now */
	u32 room;		/* bytes */
};

/* Reading records of a source. */
struct reading {
	struct splice *s;
	u32 *left;		/* as for move() */
	int *why;
	enum mover_next next;
	bool called;		/* TLS had application data */
};

static struct tls_sw_context_tx *tx_of(const struct sock *sk)
{
	return tls_sw_ctx_tx(tls_get_ctx(sk));
}

static struct tls_sw_context_rx *rx_of(const struct sock *sk)
{
	return tls_sw_ctx_rx(tls_get_ctx(sk));
}

/* True if TLS has passed on all records of a socket, which is locked. If not, has it try again: it
 * does so by itself only when an acknowledgment makes room, and memory may have been short.
 */
static bool passed_on(struct sock *sk)
{
	sock_owned_by_me(sk);
	if (list_empty(&tx_of(sk)->tx_list) && !tls_get_ctx(sk)->partially_sent_record)
		return true;
	sks_tls_push(sk);
	return false;
}

/* True if the TLS of the sink has passed on all that the splice gave it, or never will. */
static bool is_flushed(struct splice *s)
{
	struct sock *sk = s->dst;
	bool flushed;

	sock_owned_by_me(s->src);
	if (!test_bit(SPLICE_UNFLUSHED, &s->flags) || test_bit(SPLICE_DROP, &s->flags) ||
	    test_bit(SPLICE_SINK_GONE, &s->flags))
		return true;
	if (!sks_endpoint_trylock(sk))
		return false;
	flushed = !sks_round_sink_is_ours(s) || !sks_tls_proto(sk) || sk->sk_err ||
		  sk->sk_shutdown & SEND_SHUTDOWN || passed_on(sk);
	release_sock(sk);
	if (flushed)
		clear_bit(SPLICE_UNFLUSHED, &s->flags);
	return flushed;
}

/* True if an error in the source's sk_err holds nothing up. */
static bool may_have_error(struct sock *sk)
{
	return sk->sk_err || sk->sk_shutdown & SEND_SHUTDOWN || !sks_tls_proto(sk) ||
	       !sks_tls_can_write(sk) || passed_on(sk);
}

bool sks_tls_may_end(struct splice *s, int why)
{
	sock_owned_by_me(s->src);
	if (why && s->src_tls && !may_have_error(s->src))
		return false;
	return !s->dst_tls || is_flushed(s);
}

/* How many bytes a record may have so that TCP takes it at once. 0 if the sink is full; then an
 * acknowledgment tells the mover of room. The sink is locked.
 */
static u32 sink_room(struct sock *sk)
{
	const int space = sk_stream_wspace(sk);
	const bool idle = tcp_rtx_and_write_queues_empty(sk);
	u32 room;

	sock_owned_by_me(sk);
	/* Twice the bytes: each packet takes memory of its own. */
	room = min_t(u32, max(space, 0) / 2, TLS_MAX_PAYLOAD_SIZE);
	if (!idle && (!sk_stream_memory_free(sk) ||
		      (room < TLS_MAX_PAYLOAD_SIZE && !sk_stream_is_writeable(sk)))) {
		set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
		return 0;
	}
	return max(room, RECORD_MIN);
}

/* Fills @look if the sink can send. Else returns what to do, or sets *@why. The sink is locked. */
static enum mover_next look_locked(struct splice *s, struct sink_look *look, int *why)
{
	struct sock *sk = s->dst;
	const struct splice_endpoint *end = sks_endpoint_of(sk);
	const int own = READ_ONCE(sk->sk_err);

	sock_owned_by_me(sk);
	if (!sks_round_sink_is_ours(s) || !sks_tls_proto(sk)) {
		*why = EPIPE;
		return NEXT_WAIT;
	}
	if (own && own == end->err)
		return NEXT_LATER;	/* until the application has taken it */
	if (own) {
		*why = own;
		return NEXT_WAIT;
	}
	if ((1 << sk->sk_state) & ~(TCPF_ESTABLISHED | TCPF_CLOSE_WAIT))
		return NEXT_WAIT;	/* dead: the next round sees it */
	if (!test_bit(SPLICE_TRACED, &s->flags)) {
		sks_loop_forget(s);
		sks_loop_ident(s->src, &s->src_id);
	}
	if (sks_round_closes_loop(s)) {
		*why = ELOOP;
		return NEXT_WAIT;
	}
	if (!passed_on(sk))
		return NEXT_LATER;
	look->room = sink_room(sk);
	if (!look->room)
		return NEXT_WAIT;
	look->file = get_file_active(&sk->sk_socket->file);
	if (!look->file)
		return NEXT_WAIT;	/* its close is on the way, and queues the mover */
	set_bit(SPLICE_UNFLUSHED, &s->flags);
	return NEXT_ROUND;
}

/* If the sink can send, returns NEXT_ROUND, and the caller puts look->file. The source is
 * locked.
 */
static enum mover_next look_at_sink(struct splice *s, struct sink_look *look, int *why)
{
	enum mover_next next;

	*look = (struct sink_look){};
	if (!sks_endpoint_trylock(s->dst))
		return NEXT_BUSY;
	next = look_locked(s, look, why);
	release_sock(s->dst);
	return next;
}

/* TLS's sendmsg, but does not wait for its tx_lock: -EINTR if another task has that. A pending
 * signal makes the interruptible wait for the mutex a try. Nothing else in a send that does not
 * block looks at signals.
 */
static int send_now(struct splice *s, struct msghdr *msg, size_t len)
{
	const struct proto *prot = sks_tls_proto(s->dst);
	const bool pending = test_thread_flag(TIF_NOTIFY_SIGNAL);
	int ret;

	set_thread_flag(TIF_NOTIFY_SIGNAL);
	/* The source stays locked. Lockdep takes two sockets for one, and does not know that the
	 * wait for the tx_lock is a try.
	 */
	mutex_release(&s->src->sk_lock.dep_map, _RET_IP_);
	ret = prot ? prot->sendmsg(s->dst, msg, len) : -EPIPE;
	mutex_acquire(&s->src->sk_lock.dep_map, 0, 1, _RET_IP_);
	if (pending)
		return ret;
	clear_thread_flag(TIF_NOTIFY_SIGNAL);
	smp_mb__after_atomic();	/* clear the flag before the look: task_work_add() sets it last */
	if (task_work_pending(current))
		set_thread_flag(TIF_NOTIFY_SIGNAL);
	return ret;
}

static int send_batch(struct splice *s, struct batch *b)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec vec[RING_PIECES];
	unsigned int i, n = min_t(unsigned int, b->n, RING_PIECES);
	size_t len = 0;

	if (!b->ring) {
		msg.msg_flags |= MSG_SPLICE_PAGES;
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, b->bv, b->n, b->len);
		return send_now(s, &msg, b->len);
	}
	/* The sender writes into the ring's pages again, so TLS has to copy. */
	for (i = 0; i < n; i++) {
		vec[i].iov_base = bvec_virt(&b->bv[i]);
		vec[i].iov_len = b->bv[i].bv_len;
		len += vec[i].iov_len;
	}
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, vec, n, len);
	return send_now(s, &msg, len);
}

/* Sends @b, and returns how many bytes TLS took. *@next says how to go on if those are not all.
 * The caller holds the sink's file.
 */
static u32 send_records(struct splice *s, struct batch *b, enum mover_next *next, int *why)
{
	struct sock *sk = s->dst;
	const int ret = send_batch(s, b);

	if (ret >= 0) {
		*next = NEXT_ROUND;
		return ret;
	}
	switch (ret) {
	case -EINTR:
	case -ERESTARTSYS:
		*next = NEXT_BUSY;
		break;
	case -EAGAIN:
	case -ENOMEM:
	case -ENOBUFS:
		*next = NEXT_LATER;
		break;
	default:
		if (ret != -EPIPE)
			cmpxchg(&sk->sk_err, 0, -ret);	/* the send may have taken it */
		*why = -ret;
		*next = NEXT_WAIT;
	}
	return 0;
}

/* From a TCP source to TLS. The source is locked, and has data. */
static enum mover_next encrypt(struct splice *s, u32 *left, int *why)
{
	struct sink_look look;
	struct batch b;
	enum mover_next next = look_at_sink(s, &look, why);
	u32 limit, sent;

	if (next != NEXT_ROUND)
		return next;
	limit = min(*left, look.room);
	if (s->max)
		limit = min_t(u64, limit, s->max - s->moved);
	sks_batch_fill(s, &b, limit);
	if (b.len) {
		sent = send_records(s, &b, &next, why);
		sks_batch_free(&b);
		sks_round_settle(s, sent, b.ring);
		*left -= min(*left, sent);
		if (next == NEXT_ROUND && !*left)
			next = NEXT_NOW;
	} else {
		if (b.foreign)
			*why = 0;	/* as in move() */
		next = sks_round_has_data(s->src) ? NEXT_LATER : NEXT_ROUND;
	}
	fput(look.file);
	return next;
}

/* Sends part of a decrypted record by a sink with TCP, which may be paired. */
static u32 pass_to_tcp(struct reading *r, const struct sk_buff *skb, u32 off, u32 len)
{
	struct splice *s = r->s;
	struct batch b;
	bool needs_retry;
	u32 sent = 0;
	int err = 0;

	if (!sks_endpoint_trylock(s->dst)) {
		r->next = NEXT_BUSY;
		return 0;
	}
	if (!test_bit(SPLICE_TRACED, &s->flags)) {
		sks_loop_forget(s);
		sks_loop_ident(s->src, &s->src_id);
	}
	if (sks_round_sink_is_full(s)) {
		r->next = NEXT_WAIT;
		goto out;
	}
	sks_batch_fill_skb(s, &b, skb, off, len);
	if (!b.len) {
		r->next = NEXT_LATER;	/* no memory for a copy */
		goto out;
	}
	sent = sks_round_sink_send(s, &b, &err, &needs_retry);
	sks_batch_free(&b);
	if (err)
		*r->why = err;
	if (sent < len)
		r->next = needs_retry || sent == b.len ? NEXT_LATER : NEXT_WAIT;
out:
	release_sock(s->dst);
	return sent;
}

/* Sends part of a decrypted record by a sink with TLS. */
static u32 pass_to_tls(struct reading *r, const struct sk_buff *skb, u32 off, u32 len)
{
	struct splice *s = r->s;
	struct sink_look look;
	struct batch b;
	u32 sent = 0;

	r->next = look_at_sink(s, &look, r->why);
	if (r->next != NEXT_ROUND)
		return 0;
	sks_batch_fill_skb(s, &b, skb, off, min(len, look.room));
	if (b.len)
		sent = send_records(s, &b, &r->next, r->why);
	else
		r->next = NEXT_LATER;
	sks_batch_free(&b);
	fput(look.file);
	return sent;
}

/* TLS has decrypted a record, whose @len bytes from @off on are next. Returns how many the sink
 * took. The source is locked.
 */
static int take_record(read_descriptor_t *desc, struct sk_buff *skb, unsigned int off, size_t len)
{
	struct reading *r = desc->arg.data;
	struct splice *s = r->s;
	u32 limit = len, sent;

	sock_owned_by_me(s->src);
	r->called = true;
	if (s->max)
		limit = min_t(u64, limit, s->max - s->moved);
	sent = s->dst_tls ? pass_to_tls(r, skb, off, limit) : pass_to_tcp(r, skb, off, limit);
	if (sent)
		sks_round_count(s, sent);
	*r->left -= min(*r->left, sent);
	if (r->next == NEXT_ROUND && !*r->left)
		r->next = NEXT_NOW;
	/* TLS asks this after each record. */
	if (sent < len || r->next != NEXT_ROUND || *r->why >= 0 || sks_round_reached_limit(s))
		desc->count = 0;
	return sent;
}

/* From a source with kTLS, which is locked. */
static enum mover_next decrypt(struct splice *s, u32 *left, int *why)
{
	struct sock *sk = s->src;
	struct reading r = { .s = s, .left = left, .why = why, .next = NEXT_ROUND };
	read_descriptor_t desc = { .arg.data = &r, .count = 1 };
	const int ret = sks_tls_ops(sk)->read_sock(sk, &desc, take_record);

	if (r.called)
		return r.next;
	if (ret == -EAGAIN)
		return NEXT_WAIT;
	if (!ret) {
		*why = 0;	/* the end of the stream */
	} else if (ret == -EINVAL && !skb_queue_empty(&rx_of(sk)->rx_list)) {
		*why = ENOMSG;	/* a record of another type is next */
	} else {
		/* TLS may have taken the error from the socket. */
		*why = sk->sk_err ? 0 : -ret;
	}
	return NEXT_WAIT;
}

u64 sks_tls_unread(const struct sock *sk)
{
	struct sk_buff_head *list;
	struct sk_buff *skb;
	u64 len = 0;

	sock_owned_by_me(sk);
	if (!sks_tls_can_read(sk))
		return 0;
	list = &rx_of(sk)->rx_list;
	for (skb = skb_peek(list); skb; skb = skb_peek_next(skb, list))
		len += skb->len;
	return len;
}

/* Whether no reader is inside TLS, which would keep the mover out. Sends away those that sleep in
 * TLS's function, @first: in the mover's first round. The source is locked.
 */
static bool may_read(struct splice *s, bool first)
{
	struct sock *sk = s->src;
	const bool expelled = first && sks_evict_expel(sk);
	const bool may = !rx_of(sk)->reader_present && !expelled;

	WRITE_ONCE(s->awaits_reader, !may);
	return may;
}

/* Another reader is inside TLS. The source is locked. */
static enum mover_next wait_for_reader(struct sock *sk)
{
	if (skb_queue_empty(&sk->sk_receive_queue) && !sks_tls_proto(sk)->sock_is_readable(sk))
		return NEXT_WAIT;	/* new data queue the mover */
	sks_tls_wake_reader(sk);
	return NEXT_BUSY;
}

enum mover_next sks_tls_round(struct splice *s, u32 *left, bool first, int *why)
{
	struct sock *src = s->src;

	sock_owned_by_me(src);
	if (s->src_tls && !sks_tls_ops(src)) {
		*why = 0;	/* other code has its functions */
		return NEXT_WAIT;
	}
	if (!sks_round_note_sink_error(s, why))
		return NEXT_BUSY;
	if (*why >= 0)
		return NEXT_WAIT;
	if (s->src_tls && may_read(s, first))
		return decrypt(s, left, why);
	if (s->src_tls)
		return wait_for_reader(src);
	if (!sks_round_may_take(s, first))
		return NEXT_BUSY;
	if (sks_round_has_data(src))
		return encrypt(s, left, why);
	if (src->sk_shutdown & RCV_SHUTDOWN || sock_flag(src, SOCK_DONE))
		*why = 0;
	return NEXT_WAIT;
}
