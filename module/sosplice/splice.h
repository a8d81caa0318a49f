/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_SPLICE: the kernel forwards what one socket, the source, receives into another one, the sink.
 * Both are TCP, with or without kTLS (tls.h), or both are UDP (datagram.h).
 *
 * The room sosplice/ holds all of it: the socket option, the endpoints, the mover and its budget.
 * It may call datapath/, pair/ and core/. Only ctl/ and main.c may call it. pair/ reaches it by
 * struct guest_ops.
 *
 * A struct splice is one such direction. A struct splice_endpoint is what the module knows of a
 * socket that is, or was, the source or the sink of a splice. It can be the source of one splice
 * and the sink of another.
 *
 * Lifetime
 *   - icsk_ulp_data points to the endpoint while it is attached. That is from the first splice
 *     until the socket is closed, disconnected or given to another ULP, or until `drain`. On a
 *     paired socket icsk_ulp_data points to the end (struct pair_end), and end->guest to the
 *     endpoint. The endpoint is attached and detached under the socket's lock, and freed by RCU.
 *   - These hold a splice: endpoint->out of its source, endpoint->in of its sink, a queued or
 *     running work, a pending tick, and its place in budget.c's line. The splice holds both
 *     sockets, so it is ended soon after one of them is closed. It is freed by RCU, because the
 *     writer into a paired source's ring finds it by endpoint->out without a lock.
 *   - A UDP socket has no such slot, and kTLS has that of its socket. Their endpoints are in a
 *     table, from the first splice until the socket is closed.
 *   - Each attached endpoint holds the module.
 *
 * Locks: that of a socket. Only the mover has two, the source's and the sink's. It waits for
 * neither: it tries, and comes back when the owner has left (proto.release_cb). The caller of
 * setsockopt() moves what was queued before. It waits for the source's lock while it holds none,
 * and tries the sink's.
 */
#ifndef SOCKSPLICE_SPLICE_H
#define SOCKSPLICE_SPLICE_H

#include <linux/completion.h>
#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/rhashtable-types.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <net/inet_connection_sock.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "core/ordered.h"
#include "pair/end.h"

/* Bits of splice->flags, set with atomic bit operations. */
enum splice_flag {
	SPLICE_RUNNING,	/* set up: the mover may move */
	SPLICE_ENDED,		/* its source is free again, or gone; written under the source's
				 * lock
				 */
	SPLICE_SINK_GONE,	/* its sink was closed */
	SPLICE_SINK_KNOWS,	/* its sink points to it, by endpoint->in. Written under the sink's
				 * lock. The task that ends the splice reads it without. Once it is
				 * clear again, that is final.
				 */
	SPLICE_SOURCE_GONE,	/* its source was destroyed; has endpoint->out's reference */
	SPLICE_DROP,		/* the administrator wants it ended */
	SPLICE_TRACED,	/* loop.c has checked it; set under both sockets' locks, cleared under
			 * one
			 */
	SPLICE_SETTLED,	/* setsockopt() may return */
	SPLICE_SINK_FRESH,	/* its sink's endpoint is what an earlier, failed attempt left; the
				 * thread in setsockopt() only
				 */
	SPLICE_UNDONE,	/* it failed, and the sink got its endpoint for it; set before it ends */
	SPLICE_SENDING,	/* UDP: the mover is in the sink's sendmsg, without its lock; set under the
			 * sink's lock, which the sink's close takes before it waits for the bit
			 */
	SPLICE_UNFLUSHED,	/* kTLS: the sink's TLS may have bytes that TCP has not; written by
				 * the mover, under the source's lock
				 */
	SPLICE_NEEDS_ROOM,	/* UDP: the mover waits until the sink has room; written by the
				 * mover, under the source's lock
				 */
};

/* What a round of the mover leaves to do. */
enum mover_next {
	NEXT_WAIT,	/* until something happens */
	NEXT_NOW,	/* behind the works that are queued */
	NEXT_LATER,	/* soon: there was no memory */
	NEXT_BUSY,	/* soon: another task has a socket, or is in the middle of a read */
	NEXT_ROUND,	/* at once */
};

/* Identifies an end of a connection by both initial sequence numbers; see loop.c. */
struct loop_ident {
	u32 irs;
	u32 iss;		/* the number, or one more: see sks_loop_ident() */
};

struct splice {
	refcount_t ref;
	unsigned long flags;		/* enum splice_flag */

	/* Constant. Both sockets are held until the splice is freed. */
	struct sock *src, *dst;
	bool datagrams;			/* both are UDP */
	bool src_tls, dst_tls;		/* has kTLS; written before RUNNING */
	u64 max;			/* bytes, 0: no limit */
	unsigned long idle;		/* jiffies, 0: for ever */
	struct budget_user *user;	/* charged for the CPU time; held */
	struct mem_cgroup *memcg;	/* charged for copies; held; may be NULL */
	kuid_t uid;
	u64 start;			/* ktime_get_ns() of the setsockopt() */

	/* The source's lock protects the fields up to @awaits_reader. */
	u64 moved;			/* bytes; also read without */
	unsigned long last;		/* jiffies at the last move */
	struct page_frag frag;		/* one page for bytes that have to be copied */
	u64 queued;			/* bytes queued when it began; constant while RUNNING. UDP:
					 * what is left of that, in bytes of memory
					 */
	u64 moved_before;		/* the count of the source's last splice; set with
					 * RUNNING
					 */
	bool awaits_reader;		/* another reader comes first; also read without */

	struct completion settled;	/* completed with SPLICE_SETTLED */

	unsigned int backoff;		/* jiffies until the next try; the mover only */

	struct work_struct work;	/* the mover */
	struct delayed_work tick;	/* queues the mover, after the idle time or to try again */

	struct list_head line;		/* in a line of budget.c, which holds it;
					 * budget_user->lock. list_empty() reads it without.
					 */

	struct ordered_node all;		/* in the order of live splices; splices_lock */

	/* loop.c */
	struct hlist_node loop_source, loop_sink;	/* loop_lock */
	u32 hops_id;			/* UDP: 25 bits, set under loop_lock when it gets on the
					 * table; the mover reads it under the source's lock
					 */
	struct loop_ident src_id, dst_id;	/* written under both sockets' locks, before it is
						 * on the table
						 */

	struct rcu_head rcu;
};

struct tls_part;

struct splice_endpoint {
	enum slot_kind slot;		/* SLOT_SPLICE; first, constant */

	/* The socket's lock protects the fields up to @moved. */
	struct splice *out;		/* the splice that the socket is the source of; callbacks
					 * and the peer read it under RCU
					 */
	struct splice *in;		/* the splice that it is the sink of; may have ended;
					 * callbacks read it under RCU
					 */
	bool hooked;			/* the socket's functions are ours */
	bool lowat_hidden;		/* a source's SO_RCVLOWAT is kept in @rcvlowat instead */
	int rcvlowat;
	int err;			/* the error that the last splice left in sk_err, or 0 */
	unsigned int err_moves;		/* odd: the mover has the error out; also read without */
	bool wanted;			/* a mover waits for the socket's lock; the socket's
					 * spinlock
					 */
	u64 moved;			/* bytes, by the last splice; also read without the lock */

	struct rhash_head table;	/* UDP, kTLS: in the table of splice.c */
	struct tls_part *tls;		/* what tls_endpoint.c knows of a socket that has kTLS, or
					 * NULL; constant while attached
					 */
	struct sock *sk;		/* not held: valid while the endpoint is attached */
	struct ordered_node all;		/* in the order of attached endpoints;
						 * endpoints_lock
						 */
	struct rcu_head rcu;
};

/* The endpoint of a TCP socket whose lock the caller holds, or NULL. */
static inline struct splice_endpoint *sks_endpoint_get(const struct sock *sk)
{
	struct pair_end *paired = sks_end_get(sk);

	return paired ? paired->guest : sks_slot_get(sk, SLOT_SPLICE);
}

/* Like sks_endpoint_get(), but under rcu_read_lock() only. */
static inline struct splice_endpoint *sks_endpoint_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = sks_slot_get_rcu(sk);

	if (!slot)
		return NULL;
	if (*slot == SLOT_PAIR)
		return READ_ONCE(container_of(slot, struct pair_end, slot)->guest);
	return container_of(slot, struct splice_endpoint, slot);
}

static inline bool sks_splice_is_udp(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP;
}

/* True if the socket has kTLS. Once it has, that is until it is closed. */
static inline bool sks_splice_is_tls(const struct sock *sk)
{
	const struct tcp_ulp_ops *ulp;
	bool is;

	if (sks_splice_is_udp(sk))
		return false;
	rcu_read_lock();	/* the TLS module waits for readers before it goes */
	ulp = READ_ONCE(inet_csk(sk)->icsk_ulp_ops);
	is = ulp && !strcmp(ulp->name, "tls");
	rcu_read_unlock();
	return is;
}

/* The endpoint in the table, of a UDP socket or one with kTLS, or NULL. It stays while the caller
 * has the socket's lock, or is under rcu_read_lock().
 */
struct splice_endpoint *sks_endpoint_in_table(const struct sock *sk);

/* Add an endpoint to the table, or remove it. The first may return an error. */
int sks_endpoint_table_add(struct splice_endpoint *end);
void sks_endpoint_table_remove(struct splice_endpoint *end);

/* Like sks_endpoint_get() and sks_endpoint_get_rcu(), for a socket that may be UDP or have kTLS. */
static inline struct splice_endpoint *sks_endpoint_of(const struct sock *sk)
{
	struct splice_endpoint *end = sks_splice_is_udp(sk) ? NULL : sks_endpoint_get(sk);

	return end ?: sks_endpoint_in_table(sk);
}

static inline struct splice_endpoint *sks_endpoint_of_rcu(const struct sock *sk)
{
	struct splice_endpoint *end = sks_splice_is_udp(sk) ? NULL : sks_endpoint_get_rcu(sk);

	return end ?: sks_endpoint_in_table(sk);
}

int sks_splices_init(void);

/* Waits until all splices have been freed. They have ended, and no sink points to one. */
void sks_splices_exit(void);

/* Makes a splice that @mover moves. The caller gets the one reference. NULL if there is no memory.
 * Sleeps.
 */
struct splice *sks_splice_alloc(struct sock *src, struct sock *dst, s64 max, u64 idle_us,
				work_func_t mover);

/* Add a splice to the live ones, or remove it. A splice is live from the time its source points to
 * it until it has ended.
 */
void sks_splices_add(struct splice *s);
void sks_splices_remove(struct splice *s);

void sks_splice_put(struct splice *s);
unsigned int sks_splices_live(void);

/* Calls @fn for each live splice that came after number *@last, under a spinlock, and sets *@last.
 * Stops when @fn returns non-zero, and returns that.
 */
int sks_splices_walk(u64 *last, int (*fn)(struct splice *s, void *arg), void *arg);

/* Ends the wait of the caller of setsockopt(). Any context. */
void sks_splice_settle(struct splice *s);

/* Queues the mover of @s. The caller knows that @s has a reference. Any context. */
void sks_mover_queue(struct splice *s);

/* Like sks_mover_queue(), but under RCU only. False if the last reference is gone. */
bool sks_mover_queue_rcu(struct splice *s);

/* Like sks_mover_queue_rcu(), for data that have arrived by TCP. Queues on the CPU that serves the
 * sink.
 */
bool sks_mover_queue_arrived(struct splice *s);

/* Queue the mover of @s in @delay jiffies, or stop that. */
void sks_mover_tick(struct splice *s, unsigned long delay);
void sks_mover_stop_tick(struct splice *s);

/* Like queue_delayed_work(), for a work of budget.c, with the timer on this CPU. The caller is not
 * preemptible.
 */
bool sks_mover_later(struct delayed_work *work, unsigned long delay);

#endif /* SOCKSPLICE_SPLICE_H */
