/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A chan is what the module knows of one enrolled socket: the direction that
 * this socket sends into (the ring its peer reads), its identity while it
 * waits for a peer, and the peer's chan.
 *
 * Lifetime
 *   - icsk_ulp_data points to the chan while it is attached. Attached and
 *     detached under the socket's lock only, so whoever holds that lock may
 *     use the chan without a reference.
 *   - One reference belongs to the attachment, one to the peer's chan, and one
 *     to each task that sleeps or copies with the lock dropped. Tasks that only
 *     wait are counted in chan->pins instead, and share a reference if the chan
 *     is detached before they are back.
 *   - Whoever holds such a reference holds one on the peer's chan too
 *     (socksplice_chan_hold), because detaching drops the reference between
 *     the chans: two chans that kept each other would never be freed.
 *   - chan->sk holds a reference on the socket until one RCU grace period
 *     after the detachment; the peer reaches it under rcu_read_lock() only.
 *   - The ring belongs to the sender's chan and so outlives both sockets for
 *     as long as the reader is attached. No TCP state frees it. Its pages come and go
 *     as pages.h says.
 */
#ifndef SOCKSPLICE_CHAN_H
#define SOCKSPLICE_CHAN_H

#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <net/sock.h>

#include "core/ident.h"
#include "core/ring.h"
#include "core/slot.h"
#include "uapi/socksplice.h"

struct soend;

/* Bits of chan->flags; set_bit, test_bit: written by both ends. */
enum chan_flag {
	CHAN_PARKED,	/* in the identity table; changed under its bucket lock */
	CHAN_RX_READY,	/* a reader of this socket knows of the ring */
	CHAN_RX_CLOSED,	/* nobody will read this socket again */
	CHAN_TX_CLOSED,	/* nothing more goes into this end's ring: set while nobody
			 * is in the middle of an append, after the last of which
			 * it becomes visible
			 */
	CHAN_SHADOW,	/* matched and counted only */
	CHAN_KICKED,	/* on the list of rcvlowat.c, which holds the chan */
	CHAN_ACTIVE,	/* this end called connect() */
	CHAN_ENDED,	/* detached; changed under pairs_lock */
	CHAN_DROPPED,	/* to be un-paired, both ends; see unpair.h */
	CHAN_YIELDS,	/* gives way to who captures packets; see yield.h */
	CHAN_LIMITED,	/* it was told that this end had no room in its ring */
	CHAN_TRIMMED,	/* a lock: somebody takes pages of a ring whose sender is detached */
	CHAN_CHARGED,	/* this chan is charged to the memory cgroup of a task that uses it */
	CHAN_TRANSLATED, /* the two ends see different addresses; set before the link */
	/* What mark_ready in rx.c goes by. Each is set once, and never cleared. */
	CHAN_RX_KNOWN,	/* when sk_prot became ours, nobody was inside TCP's own functions;
			 * set by socksplice_enroll(), with the socket locked
			 */
	CHAN_RX_EARLY,	/* since then, and before the link, splice(2) or TCP_ZEROCOPY_RECEIVE
			 * went to TCP's own functions, uncounted
			 */
	CHAN_RX_DOUBT,	/* a reader came, and another may be inside TCP's own functions */
};

/* Of the ring that an end sends into. */
struct chan_memory {
	u32 ring_size;			/* at first, and anew when it was given back */
	u32 ring_max;			/* what it may grow to */
	u32 group_id;			/* see struct socksplice_pair_opts */
	struct memory_group *group;	/* that of a cap, or NULL; the chan puts it */
	u64 cap;			/* most bytes of the group's rings; 0: no limit */
};

/* What both ends look at for every byte stands on the first line and is seldom
 * written; what an end writes for every byte of its own follows on other lines, since a
 * line that one end writes and the other reads costs as much as the rest of a short
 * message. The ring has its own.
 */
struct socksplice_chan {
	enum slot_kind slot;		/* SLOT_CHAN; first, constant */
	unsigned long flags;		/* enum chan_flag, atomic bit operations */

	/* The peer's chan. Written once, under the bucket lock, with release
	 * (pairs with socksplice_chan_peer()); NULL until linked. The reference
	 * is dropped when this chan detaches.
	 */
	struct socksplice_chan *peer;

	/* NULL once detached. RCU; cleared under the socket's lock. */
	struct sock __rcu *sk;
	/* The socket's own, as found; constant since before the chan was attached. */
	void (*data_ready)(struct sock *sk);
	/* Of a socket that is, or was, spliced while paired: not in the slot then, which is
	 * this chan's, and handed the slot when this chan is detached. Written under the
	 * socket's lock; the peer follows it under RCU, which frees it.
	 */
	struct soend *end;

	/* The sequence number at which the ring's bytes stand in the TCP
	 * stream. Written by the producer under its socket's lock, and only
	 * while the ring is empty; read by the consumer after it has seen
	 * bytes in the ring (barrier A of ring.h).
	 */
	u32 seq;
	/* Set by a producer that sleeps for space, cleared by the consumer that
	 * wakes all of them, and by the last that goes; see want_space in tx_wait.c and
	 * rx.c for the barriers.
	 */
	int want_space;
	/* Bytes the consumer took from this direction by TCP. Written by the consumer
	 * under its socket's lock; see socksplice_chan_progress().
	 */
	u32 tcp_taken;

	/* Set before the chan is attached, constant afterwards. */
	u16 family;
	u32 id;				/* lower half of order, which is what users see */
	u64 order;			/* of the pair among all; set when linked */
	struct chan_memory memory;
	u64 start;			/* ktime_get_ns() of the enrolment */
	u32 busy_poll_usec;		/* as enrolled; written once, soon after the attachment */
	u32 netns_inum;

	refcount_t ref ____cacheline_aligned;

	/* The socket's lock, all of these. */
	bool rx_between;	/* a reader holds rx_mutex, between two parts of a read */
	bool spilled;		/* counted as one spill until it reopens; read without it, too */
	/* Both are read without it, too, by who waits for the other: wait_var_event() on the
	 * first, whose barrier is the partner of the one before wake_up_var() in tx_wait.c.
	 */
	bool tx_between;	/* a sender waits for space, part of its message in the ring */
	int tx_turns;		/* others who want to send: the rest goes by TCP at once */
	bool pinned;		/* the pins of an ended chan hold references */
	int pins;		/* see socksplice_chan_pin() */
	int rx_taking;		/* readers that wait for their turn */
	int rx_partial;		/* readers that dropped the lock with bytes in hand */
	int tcp_readers;	/* in TCP's recvmsg through us, asleep or about to be */
	int sleepers;		/* asleep through us, with woken_wake_function */
	int rx_sleepers;	/* in socksplice_rx_wait(): spinning, asleep, or just woken */
	int space_waiters;	/* sleepers that wait for space in the ring */
	unsigned char rx_short;	/* readers' waits in turn that were short, or enough; rx_wait.c */
	/* tx_wait.c: moments that are yet to be left out; how many, after the last one in vain */
	unsigned char vain_skips, vain_run;
	bool rx_hot;		/* the last that spun had bytes at once; rx_wait.c */
	u64 rx_sent;		/* bytes sent, when it did */
	/* pages.c; while the ring is open. Of a detached chan it and the ring are changed under
	 * CHAN_TRIMMED, or without references.
	 */
	struct ring_entry *ring_entry;
	unsigned long ring_retry;	/* jiffies; until then no page more is asked for; else 0 */
	unsigned int ring_full;		/* times, since it last had another size */
	/* Most bytes that the ring may hold: its size, or less where the reader's receive
	 * buffer is smaller (tx.c). The sender sets it before an append. Both ends read
	 * it without the lock, for wake-ups only.
	 */
	u32 ring_limit;
	u64 ring_bytes;		/* sent from this socket to its peer, as the next three */
	u64 ring_msgs;
	u64 tcp_bytes;
	u64 tcp_msgs;
	u32 capture_id;		/* capture.c: the capture that was asked */
	bool captured;		/* and whether it wants this pair */

	/* Orders readers that take bytes from TCP with the socket lock dropped.
	 * rx_mutex, then the socket's lock; never the other way round.
	 */
	struct mutex rx_mutex;

	struct ident ident;
	struct rb_node in_pairs;	/* all pairs; pairs_lock */
	struct rcu_head rcu;
	struct sock *gone_sk;		/* for the callback of rcu only */

	struct llist_node kick;		/* rcvlowat.c; valid with CHAN_KICKED */
	/* How far the reader's TCP had received when all who wait had been told, or were about
	 * to be. Written by who sets CHAN_KICKED, by the work while it holds the bit, and by
	 * who has sent, appended or set the mark: an older value than another's costs one wake-up.
	 */
	u32 kick_known;

	/* The same of this end's TCP, once the peer is detached: written by that before it
	 * clears its @sk, then by unpair.c's work.
	 */
	u32 left_known;

	/* probe.c; its work only. */
	u64 probe_bytes;		/* by both rings, at the last look */
	unsigned long probe_since;	/* jiffies when the first of those was sent */
	u32 probe_tstamp;		/* tp->rcv_tstamp then */
	bool probe_pending;		/* some were sent, none is known to be answered */

	bool tapped;			/* yield.c's work only: captured, at its last look */

	u64 idle_bytes;			/* reclaim.c's work only: ring_bytes, at the last look */
	unsigned long idle_since;	/* reclaim.c's work only: jiffies */

	struct ring ring;		/* the direction from this socket to its peer */
};

/* Bytes that the consumer has taken from this direction, modulo 2^32. */
static inline u32 socksplice_chan_progress(const struct socksplice_chan *c)
{
	return READ_ONCE(c->ring.tail) + READ_ONCE(c->tcp_taken);
}

/* The chan of a socket whose lock the caller holds, or NULL. */
static inline struct socksplice_chan *socksplice_chan_get(const struct sock *sk)
{
	return socksplice_slot_get(sk, SLOT_CHAN);
}

/* The same under rcu_read_lock() only. */
static inline struct socksplice_chan *socksplice_chan_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = socksplice_slot_get_rcu(sk);

	return slot && *slot == SLOT_CHAN ?
	       container_of(slot, struct socksplice_chan, slot) : NULL;
}

static inline struct socksplice_chan *socksplice_chan_peer(const struct socksplice_chan *c)
{
	return smp_load_acquire(&c->peer);	/* pairs with socksplice_chan_link */
}

/* @unpark takes a chan out of the table of those that wait for a peer, if it is there;
 * nothing links it after that. Any context.
 */
int socksplice_chan_init(void (*unpark)(struct socksplice_chan *c));
void socksplice_chan_exit(void);

/* Makes a chan and attaches it. The caller has the socket locked, or is the
 * softirq that owns it; never sleeps. @flags: CHAN_ACTIVE, CHAN_SHADOW, CHAN_YIELDS.
 * Returns the chan, which then holds the group of @memory, or an ERR_PTR.
 */
struct socksplice_chan *socksplice_chan_attach(struct sock *sk, const struct ident *id,
					       const struct chan_memory *memory,
					       unsigned long flags);

/* Undoes the attachment; the socket is locked, by its owner or as by
 * socksplice_chan_trylock(), and goes on as plain TCP. Its splices live on.
 */
void socksplice_chan_detach(struct sock *sk);

/* Detaches @sk, which is locked, if it is neither paired nor waits for a peer. */
void socksplice_chan_settle(struct sock *sk);

/* True if @sk, which is locked, can go on as plain TCP: its chan @c has read the
 * closed ring of @peer to the bottom, no reader is in the middle of a call, whose
 * rest TCP's own recvmsg could not give it, and none sleeps until a low-water mark
 * is reached, which TCP would take for a new call and let begin with less. Nor is a sender
 * half-way through a message: another thread must not send before it goes on.
 */
bool socksplice_chan_is_done(const struct sock *sk, const struct socksplice_chan *c,
			     const struct socksplice_chan *peer);

/* References for who drops the socket's lock; the lock is held for _hold, which
 * returns the peer that it took one on, or NULL, for _put.
 */
struct socksplice_chan *socksplice_chan_hold(struct socksplice_chan *c);
void socksplice_chan_put(struct socksplice_chan *c, struct socksplice_chan *peer);

/* The same for who only sleeps or spins until the lock is its own again: nothing that
 * the peer's CPU uses is written unless the chan ends meanwhile. The socket is locked
 * for both; @c may be gone after _unpin.
 */
static inline void socksplice_chan_pin(const struct sock *sk, struct socksplice_chan *c)
{
	sock_owned_by_me(sk);
	c->pins++;
}
void socksplice_chan_unpin(const struct sock *sk, struct socksplice_chan *c);

/* The socket of @c, held by its spinlock as a softirq would hold it: NULL if @c is
 * detached, -EBUSY if a task owns the socket. For who must not wait for a task
 * that may own it across a page fault that never ends. No sleep until _unlock.
 */
struct sock *socksplice_chan_trylock(struct socksplice_chan *c);
void socksplice_chan_unlock(struct sock *sk);

#endif /* SOCKSPLICE_CHAN_H */
