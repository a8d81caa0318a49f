/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_SPLICE: the kernel forwards what one TCP socket, the source, receives into
 * another one, the sink.
 *
 * A struct splice is one such direction. A struct splice_endpoint is what the module knows
 * of a socket that is, or was, at an end of one; it can be the source of one splice
 * and the sink of another.
 *
 * Lifetime
 *   - icsk_ulp_data points to the endpoint while it is attached: from the first splice
 *     until the socket is closed, disconnected, given to another ULP, or `drain`.
 *     On a socket that is paired, it points to the end, and end->guest to the endpoint.
 *     Attached and detached under the socket's lock; freed by RCU.
 *   - A splice is held by endpoint->out of its source, endpoint->in of its sink, by a
 *     queued or running work, by a pending tick and by its place in budget.c's line. It
 *     holds both sockets, so it is ended soon after one of them is closed.
 *     Freed by RCU: the writer into a paired source's ring finds it by endpoint->out without
 *     a lock.
 *   - Each attached endpoint holds the module.
 *
 * Locks: that of a socket. Only the mover has two, the source's and the sink's, and it
 * waits for neither: it tries, and comes back when their owner has left
 * (proto.release_cb). The caller of setsockopt() moves what was queued before: it waits
 * for the source's lock, with none, and tries the sink's.
 */
#ifndef SOCKSPLICE_SOSPLICE_H
#define SOCKSPLICE_SOSPLICE_H

#include <linux/completion.h>
#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <net/inet_connection_sock.h>
#include <net/sock.h>

#include "core/ordered.h"
#include "pair/end.h"

/* Bits of splice->flags; set_bit, test_bit. */
enum splice_flag {
	SPLICE_RUNNING,	/* set up: the mover may move */
	SPLICE_ENDED,		/* its source is free again, or gone; the source's lock */
	SPLICE_SINK_GONE,	/* its sink was closed */
	SPLICE_SINK_KNOWS,	/* its sink points to it, by endpoint->in; the sink's lock. Read
				 * without by who ends it, and final once it is clear again
				 */
	SPLICE_SOURCE_GONE,	/* its source was destroyed; holds endpoint->out's reference */
	SPLICE_DROP,		/* the administrator wants it ended */
	SPLICE_TRACED,	/* loop.c has looked; both sockets' locks */
	SPLICE_SETTLED,	/* setsockopt() may return */
	SPLICE_UNDONE,	/* it failed, and the sink got its end for it; before the end */
};

/* Both ends of a connection by their initial sequence numbers; see loop.c. */
struct loop_ident {
	u32 irs;
	u32 iss;		/* or one more */
};

struct splice {
	refcount_t ref;
	unsigned long flags;		/* enum splice_flag */

	/* Constant. Both sockets are held until the splice is freed. */
	struct sock *src, *dst;
	u64 max;			/* bytes, 0: no limit */
	unsigned long idle;		/* jiffies, 0: for ever */
	struct budget_user *user;	/* who pays */
	struct mem_cgroup *memcg;	/* who pays for copies; held, may be NULL */
	kuid_t uid;
	u64 start;			/* ktime_get_ns() of the setsockopt() */

	/* The source's lock. */
	u64 moved;			/* read without */
	unsigned long last;		/* jiffies, of the last move */
	struct page_frag frag;		/* one page for what has to be copied */
	u64 queued;			/* bytes, when it began; constant while RUNNING */
	bool awaits_reader;		/* another reader's turn comes first; read without */

	struct completion settled;	/* completed with SPLICE_SETTLED */

	unsigned int backoff;		/* jiffies, until it tries again; the mover only */

	struct work_struct work;	/* the mover */
	struct delayed_work tick;	/* queues work: idle time, or try again */

	struct list_head line;		/* that wait for the CPU, holding it; budget_user->lock.
					 * Whether it is in one is read without
					 */

	struct ordered_node all;		/* that live; splices_lock */

	/* loop.c */
	struct hlist_node loop_source, loop_sink;	/* loop_lock */
	struct loop_ident src_id, dst_id;	/* both sockets' locks, before it is on the table */

	struct rcu_head rcu;
};

struct splice_endpoint {
	enum slot_kind slot;		/* SLOT_SPLICE; first, constant */

	/* The socket's lock. */
	struct splice *out;		/* whose source this is; callbacks and peer by RCU */
	struct splice *in;		/* whose sink this is; may have ended; callbacks by RCU */
	bool hooked;			/* the socket's functions are ours */
	bool lowat_hidden;		/* a source's SO_RCVLOWAT is kept here instead */
	int rcvlowat;
	int err;			/* what the last splice left in sk_err, or 0 */
	unsigned int err_moves;		/* odd: the mover has it just now; read without */
	bool wanted;			/* a mover waits for the socket's lock; its spinlock */
	u64 moved;			/* by the last splice; read without the lock */

	struct sock *sk;		/* not held: among all means attached */
	struct ordered_node all;		/* that are attached; endpoints_lock */
	struct rcu_head rcu;
};

/* The end of a socket whose lock the caller holds, or NULL. */
static inline struct splice_endpoint *sks_endpoint_get(const struct sock *sk)
{
	struct pair_end *paired = sks_end_get(sk);

	return paired ? paired->guest : sks_slot_get(sk, SLOT_SPLICE);
}

/* The same under rcu_read_lock() only. */
static inline struct splice_endpoint *sks_endpoint_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = sks_slot_get_rcu(sk);

	if (!slot)
		return NULL;
	if (*slot == SLOT_PAIR)
		return READ_ONCE(container_of(slot, struct pair_end, slot)->guest);
	return container_of(slot, struct splice_endpoint, slot);
}

int sks_splices_init(void);

/* Waits until all splices have been freed. They have ended, and no sink points to one. */
void sks_splices_exit(void);

/* Makes a splice that @mover moves, with one reference, the caller's. NULL: no memory. Sleeps. */
struct splice *sks_splice_alloc(struct sock *src, struct sock *dst, s64 max,
				u64 idle_us, work_func_t mover);

/* A splice whose source points to it is live until it has ended. */
void sks_splices_add(struct splice *s);
void sks_splices_remove(struct splice *s);

void sks_splice_put(struct splice *s);
unsigned int sks_splices_live(void);

/* Calls @fn for each live splice that came after number *@last, under a spinlock, and
 * sets *@last; stops when @fn returns non-zero and returns that.
 */
int sks_splices_walk(u64 *last, int (*fn)(struct splice *s, void *arg),
		     void *arg);

/* What the caller of setsockopt() waits for has come about. Any context. */
void sks_splice_settle(struct splice *s);

/* Has the mover look at @s, which somebody holds. Any context. */
void sks_mover_queue(struct splice *s);

/* The same under RCU only: false if nobody holds it any more. */
bool sks_mover_queue_rcu(struct splice *s);

/* The same for data that have arrived by TCP: on the CPU that serves the sink. */
bool sks_mover_queue_arrived(struct splice *s);

/* Has the mover look at @s in @delay jiffies, or stops that. */
void sks_mover_tick(struct splice *s, unsigned long delay);
void sks_mover_stop_tick(struct splice *s);

/* As queue_delayed_work() for a work of budget.c, whose timer is this CPU's. Not preemptible. */
bool sks_mover_later(struct delayed_work *work, unsigned long delay);

#endif /* SOCKSPLICE_SOSPLICE_H */
