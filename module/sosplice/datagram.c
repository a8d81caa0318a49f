// SPDX-License-Identifier: GPL-2.0
/*
 * The mover's rounds for UDP.
 *
 * The mover takes a datagram off the source's queue, has the sink send it, and puts it back at
 * the head if the sink has not sent it. The source stays locked meanwhile. So whatever ends the
 * splice, the application reads what was not sent. While the socket is a source, its reads are
 * in our function, and wait. A task that was inside UDP's own recvmsg when the splice began
 * takes no lock, and may take a datagram at any time (__skb_recv_udp()). The mover does not have
 * that datagram then.
 *
 * Memory. A datagram that the mover has taken stays charged to the source. So to put it back
 * cannot fail, and what the sink has no room for counts against SO_RCVBUF. As in UDP,
 * reader_queue.lock protects that queue and forward_deficit, and sk_receive_queue.lock protects
 * sk_forward_alloc, which __udp_enqueue_schedule_skb() charges.
 *
 * Locks. The source is locked during the round. The sink is locked to look at it, but not during
 * the send: udp_sendmsg() and udpv6_sendmsg() take that lock themselves if the socket is corked,
 * and would wait for us for ever. The bit SPLICE_SENDING keeps the socket from being closed
 * under the send. A sink cannot be corked: datagram_endpoint.c refuses that. Only a task that
 * was inside UDP's own setsockopt or sendmsg since before the splice can cork it, between the
 * look and the send. The send then waits until no task owns the sink. The datagram joins that
 * task's, and the next look ends the splice.
 *
 * Two movers cannot wait for each other so, nor can more of them in a circle. Say that each is in
 * such a send, holds its source, and waits for its sink, which the next one holds as its source.
 * Each mover had its source before it looked at its sink, and the sink was free then. So each has
 * locked its source later than the mover before it. In a circle that cannot be.
 *
 * A train of datagrams, as UDP_GRO delivers it, goes on as one by UDP_SEGMENT, or not at all.
 */
#include <linux/bvec.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sockios.h>
#include <asm/ioctls.h>
#include <linux/udp.h>
#include <linux/wait_bit.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/udp.h>

#include "core/stats.h"
#include "sosplice/datagram.h"
#include "sosplice/datagram_endpoint.h"
#include "sosplice/endpoint.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/splice.h"

#define PIECES		64	/* most pieces of a datagram that are sent from where they lie */
#define DATAGRAM_COST	512	/* what a datagram costs of the mover's budget, besides its bytes */
#define UDP_MAX_PAYLOAD	65535

/* What a look at the sink allows. */
enum sink_state {
	SINK_READY,
	SINK_FULL,
	SINK_FAILED,	/* *why says how */
};

/* A datagram as the sink sends it. */
struct message {
	struct msghdr msg;
	struct bio_vec bv[PIECES];
	unsigned int n;
	struct kvec copy;		/* iov_base is NULL unless there were too many pieces */
	u8 control[CMSG_SPACE(sizeof(u16))] __aligned(__alignof__(struct cmsghdr));
};

/* Takes the next datagram off the queue. NULL if there is none. UDP's own ioctl, by
 * first_packet_length(), fills the reader's queue from the other one. It drops datagrams whose
 * checksum is wrong, and counts them. If another task takes the one that the ioctl has checked,
 * this checks the next one.
 */
static struct sk_buff *take(struct sock *sk)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	struct sk_buff *skb;
	bool wrong;
	int len;

	do {
		sks_datagram_base(sk)->ioctl(sk, SIOCINQ, &len);
		spin_lock_bh(&queue->lock);
		skb = __skb_dequeue(queue);
		wrong = skb && udp_lib_checksum_complete(skb);
		if (wrong)
			__skb_queue_head(queue, skb);
		spin_unlock_bh(&queue->lock);
	} while (wrong || (!skb && !skb_queue_empty_lockless(&sk->sk_receive_queue)));
	return skb;
}

/* The sink has not sent the datagram. */
static void put_back(struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;

	spin_lock_bh(&queue->lock);
	__skb_queue_head(queue, skb);
	spin_unlock_bh(&queue->lock);
}

/* Adds the pieces of @skb. False if there are too many, or if they are not in pages of memory. */
static bool add_pieces(struct message *m, const struct sk_buff *skb, bool nested)
{
	const struct sk_buff *part;
	int i;

	if (skb_headlen(skb)) {
		if (m->n == PIECES)
			return false;
		bvec_set_virt(&m->bv[m->n++], skb->data, skb_headlen(skb));
	}
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];
		struct page *page = skb_frag_page(frag);

		if (m->n == PIECES || !page)
			return false;
		bvec_set_page(&m->bv[m->n++], page, skb_frag_size(frag), skb_frag_off(frag));
	}
	if (!skb_has_frag_list(skb))
		return true;
	if (nested)
		return false;
	skb_walk_frags(skb, part)
	{
		if (!add_pieces(m, part, true))
			return false;
	}
	return true;
}

/* Copies a datagram in many pieces. False if there is no memory. */
static bool copy_datagram(struct splice *s, struct message *m, const struct sk_buff *skb)
{
	struct mem_cgroup *old = set_active_memcg(s->memcg);
	void *buf = kvmalloc(skb->len, GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);

	set_active_memcg(old);
	if (!buf)
		return false;
	if (skb_copy_bits(skb, 0, buf, skb->len)) {
		kvfree(buf);
		return false;
	}
	m->copy.iov_base = buf;
	m->copy.iov_len = skb->len;
	iov_iter_kvec(&m->msg.msg_iter, ITER_SOURCE, &m->copy, 1, skb->len);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_copied_bytes, skb->len);
	return true;
}

/* The control message says 0 for a single datagram: UDP_SEGMENT may be set on the sink. */
static void set_segment(struct message *m, u16 size)
{
	struct cmsghdr *cmsg = (struct cmsghdr *)m->control;

	cmsg->cmsg_level = SOL_UDP;
	cmsg->cmsg_type = UDP_SEGMENT;
	cmsg->cmsg_len = CMSG_LEN(sizeof(size));
	memcpy(CMSG_DATA(cmsg), &size, sizeof(size));
	m->msg.msg_control = m->control;
	m->msg.msg_controllen = sizeof(m->control);
}

static bool make_message(struct splice *s, struct message *m, const struct sk_buff *skb)
{
	m->msg = (struct msghdr){ .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	m->n = 0;
	m->copy.iov_base = NULL;
	set_segment(m, skb_is_gso(skb) ? skb_shinfo(skb)->gso_size : 0);
	if (!add_pieces(m, skb, false))
		return copy_datagram(s, m, skb);
	iov_iter_bvec(&m->msg.msg_iter, ITER_SOURCE, m->bv, m->n, skb->len);
	return true;
}

static bool has_room(const struct sock *sk)
{
	return sk_wmem_alloc_get(sk) < READ_ONCE(sk->sk_sndbuf);
}

/* True if the sink still has no room. Then hooked_write_space() queues the mover. */
static bool wait_for_room(struct splice *s)
{
	set_bit(SPLICE_NEEDS_ROOM, &s->flags);
	smp_mb__after_atomic();	/* set the bit before the look; pairs with hooked_write_space() */
	return !sock_writeable(s->dst);
}

/* Looks at the sink. If it is ready, SPLICE_SENDING is set. *@taken is the error of another splice
 * that was taken out for the send, or -1. The sink is locked.
 */
static enum sink_state look_at_sink(struct splice *s, int *taken, int *why)
{
	struct sock *sk = s->dst;
	struct splice_endpoint *end = sks_endpoint_in_table(sk);
	const int own = READ_ONCE(sk->sk_err);

	sock_owned_by_me(sk);
	*taken = -1;
	if (!end || end->in != s || !sk->sk_socket || !sks_datagram_base(sk) ||
	    sk->sk_state != TCP_ESTABLISHED) {
		*why = EPIPE;
		return SINK_FAILED;
	}
	if (own && own != end->err) {
		*why = own;
		return SINK_FAILED;
	}
	if (sks_datagram_is_corked(sk)) {
		*why = EBUSY;
		return SINK_FAILED;
	}
	if (!has_room(sk))
		return SINK_FULL;
	if (own) {
		sks_endpoint_err_out(end);
		*taken = xchg(&sk->sk_err, 0);
	}
	set_bit(SPLICE_SENDING, &s->flags);
	return SINK_READY;
}

/* The send is over. The sink is not locked, but it cannot become another splice's while the source
 * is. If it was closed meanwhile, its endpoint is gone.
 */
static void leave_sending(struct splice *s, int taken)
{
	struct splice_endpoint *end;

	if (taken >= 0) {
		if (taken)
			cmpxchg(&s->dst->sk_err, 0, taken);	/* it was reported when it came */
		rcu_read_lock();
		end = sks_endpoint_in_table(s->dst);
		if (end && READ_ONCE(end->in) == s)
			smp_store_release(&end->err_moves, end->err_moves + 1);
		rcu_read_unlock();
	}
	clear_and_wake_up_bit(SPLICE_SENDING, &s->flags);
}

/* True if the datagram went to a broadcast or multicast address. */
static bool was_to_many(const struct splice *s, const struct sk_buff *skb)
{
	const struct iphdr *iph = ip_hdr(skb);

	if (iph->version == 6)
		return ipv6_addr_is_multicast(&ipv6_hdr(skb)->daddr);
	switch (inet_addr_type(sock_net(s->src), iph->daddr)) {
	case RTN_BROADCAST:
	case RTN_MULTICAST:
		return true;
	default:
		return ipv4_is_lbcast(iph->daddr);
	}
}

/* A broadcast that a splice has sent would be multiplied by each splice that it comes to. */
static bool loops(const struct splice *s, const struct sk_buff *skb, unsigned int hops)
{
	if (hops < LOOP_HOPS_MAX && !(hops && was_to_many(s, skb)))
		return false;
	sks_stat_inc(SOCKSPLICE_STAT_so_splice_loops);
	return true;
}

/* Has the sink send @skb. The source is locked, and SPLICE_SENDING is set. Returns as sendmsg(). */
static int send_datagram(struct splice *s, const struct sk_buff *skb, unsigned int hops)
{
	const u32 hash = sks_loop_hash(s, hops);
	struct sock *sk = s->dst;
	const struct proto *base = sks_datagram_base(sk);
	struct message *m;
	int ret = -ENOMEM;
	u32 old;

	m = kmalloc(sizeof(*m), GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	if (!m)
		return ret;
	if (make_message(s, m, skb)) {
		old = READ_ONCE(sk->sk_txhash);
		WRITE_ONCE(sk->sk_txhash, hash);
		ret = base ? base->sendmsg(sk, &m->msg, skb->len) : -EPIPE;
		cmpxchg(&sk->sk_txhash, hash, old);	/* connect() may have set another */
	}
	kvfree(m->copy.iov_base);
	kfree(m);
	return ret;
}

/* Counts a datagram that the sink has sent. */
static void count(struct splice *s, u32 len)
{
	sock_owned_by_me(s->src);
	WRITE_ONCE(s->moved, s->moved + len);
	if (!s->max || s->moved < s->max)	/* else sks_splice_end() does so */
		sks_splice_show_count(sks_endpoint_in_table(s->src), s);
	sks_stat_add(SOCKSPLICE_STAT_so_splice_bytes, len);
	sks_stat_inc(SOCKSPLICE_STAT_so_splice_datagrams);
	s->last = jiffies;
}

static void count_received(const struct sock *sk, const struct sk_buff *skb)
{
	struct net *net = sock_net(sk);

#if IS_ENABLED(CONFIG_IPV6)
	if (skb->protocol == htons(ETH_P_IPV6)) {
		SNMP_INC_STATS(net->mib.udp_stats_in6, UDP_MIB_INDATAGRAMS);
		return;
	}
#endif
	SNMP_INC_STATS(net->mib.udp_statistics, UDP_MIB_INDATAGRAMS);
}

/* The sink has sent the datagram: frees it, and uncharges it as udp_rmem_release() does for a
 * reader. What readers have left charged so far is uncharged, too.
 */
static void consume(struct splice *s, struct sk_buff *skb)
{
	struct sock *sk = s->src;
	struct udp_sock *up = udp_sk(sk);
	int size = skb->truesize;

	sock_owned_by_me(sk);
	s->queued -= min_t(u64, s->queued, size);
	sk_peek_offset_bwd(sk, skb->len);
	count_received(sk, skb);
	spin_lock_bh(&up->reader_queue.lock);
	size += up->forward_deficit;
	up->forward_deficit = 0;
	spin_lock(&sk->sk_receive_queue.lock);
	atomic_sub(size, &sk->sk_rmem_alloc);
	sk_mem_uncharge(sk, size);
	spin_unlock(&sk->sk_receive_queue.lock);
	spin_unlock_bh(&up->reader_queue.lock);
	consume_skb(skb);
}

/* What a failed send means for the splice. */
static enum mover_next note_failure(struct splice *s, const struct sk_buff *skb, int err, int *why)
{
	switch (err) {
	case -EAGAIN:
		return wait_for_room(s) ? NEXT_WAIT : NEXT_NOW;
	case -ENOMEM:
	case -ENOBUFS:		/* with IP_RECVERR, also if the device's queue has dropped it */
		return NEXT_LATER;
	case -EDESTADDRREQ:
	case -EPIPE:
		*why = EPIPE;
		return NEXT_WAIT;
	case -EMSGSIZE:
		*why = EMSGSIZE;
		return NEXT_WAIT;
	case -EINVAL:
	case -EIO:
		if (skb_is_gso(skb)) {	/* the sink cannot send this train */
			*why = EMSGSIZE;
			return NEXT_WAIT;
		}
		fallthrough;
	default:
		/* The send may have taken an error that had come to the sink. */
		cmpxchg(&s->dst->sk_err, 0, -err);
		*why = -err;
		return NEXT_WAIT;
	}
}

/* Sends @skb if the sink can. Returns NEXT_ROUND if it has done so. The source is locked. */
static enum mover_next forward(struct splice *s, const struct sk_buff *skb, int *why)
{
	const unsigned int hops = sks_loop_hops(s, skb);
	enum sink_state state;
	int taken, ret;

	if (s->max && skb->len > s->max - s->moved) {
		*why = 0;	/* it is not split, and stays */
		return NEXT_WAIT;
	}
	if (loops(s, skb, hops)) {
		*why = ELOOP;
		return NEXT_WAIT;
	}
	if (skb->len > READ_ONCE(s->dst->sk_sndbuf) || skb->len > UDP_MAX_PAYLOAD) {
		*why = EMSGSIZE;
		return NEXT_WAIT;
	}
	clear_bit(SPLICE_NEEDS_ROOM, &s->flags);
	if (!sks_endpoint_trylock(s->dst))
		return NEXT_BUSY;
	state = look_at_sink(s, &taken, why);
	release_sock(s->dst);
	switch (state) {
	case SINK_READY:
		break;
	case SINK_FULL:
		return wait_for_room(s) ? NEXT_WAIT : NEXT_NOW;
	case SINK_FAILED:
		return NEXT_WAIT;
	}
	ret = send_datagram(s, skb, hops);
	leave_sending(s, taken);
	if (ret < 0)
		return note_failure(s, skb, ret, why);
	count(s, skb->len);
	return NEXT_ROUND;
}

/* An error of a sink to which nothing is sent now. */
static bool note_sink_error(struct splice *s, int *why)
{
	struct sock *sk = s->dst;
	const struct splice_endpoint *end;
	int own;

	if (likely(!READ_ONCE(sk->sk_err)))
		return true;
	if (!sks_endpoint_trylock(sk))
		return false;
	end = sks_endpoint_in_table(sk);
	own = READ_ONCE(sk->sk_err);
	if (own && end && end->in == s && own != end->err)
		*why = own;
	release_sock(sk);
	return true;
}

enum mover_next sks_datagram_round(struct splice *s, u32 *left, int *why)
{
	enum mover_next next = NEXT_ROUND;
	struct sock *src = s->src;
	struct sk_buff *skb;

	sock_owned_by_me(src);
	if (!sks_datagram_base(src)) {
		*why = 0;	/* other code has its functions */
		return NEXT_WAIT;
	}
	if (!note_sink_error(s, why))
		return NEXT_BUSY;
	sks_loop_join(s);
	while (*why < 0 && next == NEXT_ROUND) {
		skb = READ_ONCE(src->sk_err) ? NULL : take(src);
		if (!skb) {
			if (READ_ONCE(src->sk_err) || src->sk_shutdown & RCV_SHUTDOWN)
				*why = 0;
			return NEXT_WAIT;
		}
		next = forward(s, skb, why);
		if (next == NEXT_ROUND) {
			*left -= min(*left, skb->len + DATAGRAM_COST);
			consume(s, skb);
		} else {
			put_back(src, skb);
		}
		if (s->max && s->moved >= s->max)
			break;		/* the caller ends the splice */
		if (!*left && next == NEXT_ROUND)
			next = NEXT_NOW;
	}
	return next;
}
