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
	const struct inet_connection_sock *icsk = inet_csk(sk);
	struct socksplice_chan *c = socksplice_chan_get(sk);

	if (c)
		return c->end;
	if (READ_ONCE(icsk->icsk_ulp_ops) != socksplice_soend_ulp)
		return NULL;
	return (__force void *)rcu_access_pointer(icsk->icsk_ulp_data);
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

/* endpoint.c: the hooks of one socket. All with the socket's lock held. */

int socksplice_soend_init(void);
void socksplice_soend_exit(void);

/* Hooks the socket, and attaches *@spare and sets it to NULL if it has no end yet. One
 * that is paired stays so; one that waits for its peer does not any more. The
 * caller gives it a splice, or calls update. 0, or
 * -EOPNOTSUPP for a listener, -ENOTCONN, -EINVAL for what cannot be spliced (kTLS,
 * MPTCP, a sockmap's, a socket that something in the kernel reads or repairs).
 */
int socksplice_soend_claim(struct sock *sk, struct soend **spare);

/* Gives the socket its own functions again once it has no splice. */
void socksplice_soend_update(struct sock *sk, struct soend *end);

/* Takes the end off a socket that has no splice. */
void socksplice_soend_detach(struct sock *sk);

/* A paired socket goes back to TCP and lives on with @end: the slot, and a struct proto
 * that knows no ring. The chan's detach only.
 */
void socksplice_soend_inherit(struct sock *sk, struct soend *end);

/* The socket is being destroyed: leaves its splices to the mover, frees the end. Any
 * context.
 */
void socksplice_soend_release(struct sock *sk, struct soend *end);

/* Whether the socket's callbacks are those of @end, which may be NULL. Exact under
 * sk_callback_lock.
 */
bool socksplice_soend_has_callbacks(const struct sock *sk, const struct soend *end);

/* Wakes all who wait for anything on a source that is free again. */
void socksplice_soend_wake(struct sock *sk);

/* Around the time for which the mover has the error of another splice out of sk_err, to
 * send: poll sees the error all the same.
 */
void socksplice_soend_err_out(struct soend *end);
void socksplice_soend_err_back(struct soend *end);

/* As lock_sock(), without waiting: false where the socket is owned, and then @end's
 * works are queued once it no longer is.
 */
bool socksplice_soend_trylock(struct sock *sk);

/* Ends the splices of all sockets that have an end now, and detaches those, in the
 * background, until it is done.
 */
void socksplice_soend_drop_all(void);

/* evict.c */

/* Sends tasks that sleep in a read of the source, which is locked, out of it, to call ours
 * for sources instead. True if there were some: they are on their way. Also if one could
 * not be looked at just now.
 */
bool socksplice_sleeper_expel(struct sock *sk);

/* splice.c: one splice. */

int socksplice_sosplice_init(void);
void socksplice_sosplice_exit(void);

extern bool socksplice_sosplice_enabled;	/* set by socksplice_sopt_enable() */
extern bool socksplice_sosplice_unprivileged;	/* else CAP_NET_ADMIN */

bool socksplice_sosplice_is_tcp(const struct sock *sk);

/* setsockopt(SO_SPLICE). @src is not locked. @max in bytes, @idle_us in µs; 0 means
 * none for both. @fd < 0 ends the splice. Returns 0 or the errno of so_splice(4).
 */
int socksplice_sosplice_set(struct sock *src, int fd, s64 max, u64 idle_us);

/* Bytes that the splice has moved, or the last one has. */
u64 socksplice_sosplice_moved(const struct sock *sk);

/* Ends @s, whose source the caller has locked. @err, if not 0, is left in SO_ERROR of the
 * source. The sink is seen to by the mover. Drops soend->out's reference.
 */
void socksplice_sosplice_end(struct sosplice *s, int err);

/* The same where there is no source any more: SOSPLICE_SOURCE_GONE. The mover only. */
void socksplice_sosplice_end_orphan(struct sosplice *s);

/* Ends what the socket, which is locked and about to be closed or disconnected, is an
 * end of.
 */
void socksplice_sosplice_leave(struct sock *sk, struct soend *end);

/* Takes its splices from the end of a socket that is being destroyed, and leaves them to
 * the mover. Any context.
 */
void socksplice_sosplice_abandon(struct soend *end);

/* Has a sink, which is locked, forget a splice that has ended. */
void socksplice_sosplice_tidy(struct sock *sk, struct soend *end);

/* What the caller of setsockopt() waits for has come about. Any context. */
void socksplice_sosplice_settle(struct sosplice *s);

void socksplice_sosplice_put(struct sosplice *s);
unsigned int socksplice_sosplices_live(void);

/* Calls @fn for each live splice that came after number *@last, under a spinlock, and
 * sets *@last; stops when @fn returns non-zero and returns that.
 */
int socksplice_sosplices_walk(u64 *last, int (*fn)(struct sosplice *s, void *arg),
			      void *arg);

/* mover.c */

int socksplice_mover_init(void);
void socksplice_mover_exit(void);
void socksplice_mover_prepare(struct sosplice *s);

/* The first rounds, run by the caller of setsockopt(), which holds @s: until what was queued has
 * moved or the sink takes no more. Where another task is in the way, the mover goes on, and
 * says so by SOSPLICE_SETTLED.
 */
void socksplice_mover_begin(struct sosplice *s);

/* Has the mover look at @s, which somebody holds. Any context. */
void socksplice_mover_queue(struct sosplice *s);

/* The same under RCU only: false if nobody holds it any more. */
bool socksplice_mover_queue_rcu(struct sosplice *s);

/* The same for data that have arrived by TCP: on the CPU that serves the sink. */
bool socksplice_mover_queue_arrived(struct sosplice *s);

void socksplice_mover_stop_tick(struct sosplice *s);

/* As queue_delayed_work() for a work of budget.c, whose timer is this CPU's. Not preemptible. */
bool socksplice_mover_later(struct delayed_work *work, unsigned long delay);

/* loop.c */

void socksplice_loop_init(void);

void socksplice_loop_ident(const struct sock *sk, struct loop_ident *id);

/* Puts @s on the table, once. True if what it moves comes back to it, or if that would
 * take too long to find out.
 */
bool socksplice_loop_closes(struct sosplice *s);
void socksplice_loop_forget(struct sosplice *s);

/* budget.c */

struct budget_user *socksplice_budget_get(kuid_t uid);
void socksplice_budget_put(struct budget_user *user);

/* Waits until no user is left; all splices have been freed. */
void socksplice_budget_exit(void);

/* Whether @s's mover may work on this CPU now: what socksplice_budget_leave() takes. NULL where
 * its user's movers are over their share, or too many are at work, most of them asleep. The
 * mover stands in line then, unless the splice has ended, and is queued at its turn.
 */
struct budget_cpu *socksplice_budget_enter(struct sosplice *s);

/* Charges @ns of this CPU to the user. @entered may be NULL. Has the next in line work. */
void socksplice_budget_leave(struct budget_user *user, struct budget_cpu *entered, u64 ns);

/* Takes a splice that has ended, and that the caller holds, out of the line. */
void socksplice_budget_forget(struct sosplice *s);

/* Whether @s stands in line: its mover, at its turn, finds what the caller has left. */
bool socksplice_budget_waits(const struct sosplice *s);

extern unsigned int socksplice_budget_percent;

#endif /* SOCKSPLICE_SOSPLICE_H */
