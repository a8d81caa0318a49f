/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_SPLICE: the kernel forwards what one TCP socket, the source, receives into
 * another one, the sink.
 *
 * A struct sosplice is one such direction. A struct soend is what the module knows
 * of a socket that is, or was, at an end of one; it can be the source of one splice
 * and the sink of another.
 *
 * Lifetime
 *   - icsk_ulp_data points to the soend while it is attached: from the first splice
 *     until the socket is closed, disconnected, given to another ULP, or `drain`.
 *     On a socket that is paired, it points to the chan, and chan->end to the soend.
 *     Attached and detached under the socket's lock; freed by RCU.
 *   - A splice is held by soend->out of its source, soend->in of its sink, by a
 *     queued or running work, by a pending tick and by its place in budget.c's line. It
 *     holds both sockets, so it is ended soon after one of them is closed.
 *     Freed by RCU: the writer into a paired source's ring finds it by soend->out without
 *     a lock.
 *   - Each attached soend holds the module.
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

/* Bits of sosplice->flags; set_bit, test_bit. */
enum sosplice_flag {
	SOSPLICE_RUNNING,	/* set up: the mover may move */
	SOSPLICE_ENDED,		/* its source is free again, or gone; the source's lock */
	SOSPLICE_SINK_GONE,	/* its sink was closed */
	SOSPLICE_SINK_KNOWS,	/* its sink points to it, by soend->in; the sink's lock. Read
				 * without by who ends it, and final once it is clear again
				 */
	SOSPLICE_SOURCE_GONE,	/* its source was destroyed; holds soend->out's reference */
	SOSPLICE_DROP,		/* the administrator wants it ended */
	SOSPLICE_TRACED,	/* loop.c has looked; both sockets' locks */
	SOSPLICE_SETTLED,	/* setsockopt() may return */
	SOSPLICE_UNDONE,	/* it failed, and the sink got its end for it; before the end */
};

/* Both ends of a connection by their initial sequence numbers; see loop.c. */
struct loop_ident {
	u32 irs;
	u32 iss;		/* or one more */
};

struct sosplice {
	refcount_t ref;
	unsigned long flags;		/* enum sosplice_flag */

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

	struct completion settled;	/* completed with SOSPLICE_SETTLED */

	unsigned int backoff;		/* jiffies, until it tries again; the mover only */

	struct work_struct work;	/* the mover */
	struct delayed_work tick;	/* queues work: idle time, or try again */

	struct list_head line;		/* that wait for the CPU, holding it; budget_user->lock.
					 * Whether it is in one is read without
					 */

	struct order_node all;		/* that live; sosplices_lock */

	/* loop.c */
	struct hlist_node loop_source, loop_sink;	/* loop_lock */
	struct loop_ident src_id, dst_id;	/* both sockets' locks, before it is on the table */

	struct rcu_head rcu;
};

struct soend {
	enum slot_kind slot;		/* SLOT_SOEND; first, constant */

	/* The socket's lock. */
	struct sosplice *out;		/* whose source this is; callbacks and peer by RCU */
	struct sosplice *in;		/* whose sink this is; may have ended; callbacks by RCU */
	bool hooked;			/* the socket's functions are ours */
	bool lowat_hidden;		/* a source's SO_RCVLOWAT is kept here instead */
	int rcvlowat;
	int err;			/* what the last splice left in sk_err, or 0 */
	unsigned int err_moves;		/* odd: the mover has it just now; read without */
	bool wanted;			/* a mover waits for the socket's lock; its spinlock */
	u64 moved;			/* by the last splice; read without the lock */

	struct sock *sk;		/* not held: among all means attached */
	struct order_node all;		/* that are attached; soends_lock */
	struct rcu_head rcu;
};

/* The end of a socket whose lock the caller holds, or NULL. */
static inline struct soend *socksplice_soend_get(const struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);

	return c ? c->end : socksplice_slot_get(sk, SLOT_SOEND);
}

/* The same under rcu_read_lock() only. */
static inline struct soend *socksplice_soend_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = socksplice_slot_get_rcu(sk);

	if (!slot)
		return NULL;
	if (*slot == SLOT_CHAN)
		return READ_ONCE(container_of(slot, struct socksplice_chan, slot)->end);
	return container_of(slot, struct soend, slot);
}

int socksplice_sosplices_init(void);

/* Waits until all splices have been freed. They have ended, and no sink points to one. */
void socksplice_sosplices_exit(void);

/* Makes a splice that @mover moves, with one reference, the caller's. NULL: no memory. Sleeps. */
struct sosplice *socksplice_sosplice_alloc(struct sock *src, struct sock *dst, s64 max,
					   u64 idle_us, work_func_t mover);

/* A splice whose source points to it is live until it has ended. */
void socksplice_sosplices_add(struct sosplice *s);
void socksplice_sosplices_remove(struct sosplice *s);

void socksplice_sosplice_put(struct sosplice *s);
unsigned int socksplice_sosplices_live(void);

/* Calls @fn for each live splice that came after number *@last, under a spinlock, and
 * sets *@last; stops when @fn returns non-zero and returns that.
 */
int socksplice_sosplices_walk(u64 *last, int (*fn)(struct sosplice *s, void *arg),
			      void *arg);

/* What the caller of setsockopt() waits for has come about. Any context. */
void socksplice_sosplice_settle(struct sosplice *s);

/* Has the mover look at @s, which somebody holds. Any context. */
void socksplice_mover_queue(struct sosplice *s);

/* The same under RCU only: false if nobody holds it any more. */
bool socksplice_mover_queue_rcu(struct sosplice *s);

/* The same for data that have arrived by TCP: on the CPU that serves the sink. */
bool socksplice_mover_queue_arrived(struct sosplice *s);

/* Has the mover look at @s in @delay jiffies, or stops that. */
void socksplice_mover_tick(struct sosplice *s, unsigned long delay);
void socksplice_mover_stop_tick(struct sosplice *s);

/* As queue_delayed_work() for a work of budget.c, whose timer is this CPU's. Not preemptible. */
bool socksplice_mover_later(struct delayed_work *work, unsigned long delay);

#endif /* SOCKSPLICE_SOSPLICE_H */
