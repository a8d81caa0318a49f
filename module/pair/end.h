/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A end is what the module knows of one enrolled socket: the direction that
 * this socket sends into (the ring its peer reads), its identity while it
 * waits for a peer, and the peer's end.
 *
 * Lifetime
 *   - icsk_ulp_data points to the end while it is attached. Attached and
 *     detached under the socket's lock only, so whoever holds that lock may
 *     use the end without a reference.
 *   - One reference belongs to the attachment, one to the peer's end, and one
 *     to each task that sleeps or copies with the lock dropped. Tasks that only
 *     wait are counted in end->pins instead, and share a reference if the end
 *     is detached before they are back.
 *   - Whoever holds such a reference holds one on the peer's end too
 *     (sks_end_hold), because detaching drops the reference between
 *     the ends: two ends that kept each other would never be freed.
 *   - end->sk holds a reference on the socket until one RCU grace period
 *     after the detachment; the peer reaches it under rcu_read_lock() only.
 *   - The ring belongs to the sender's end and so outlives both sockets for
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

struct splice_endpoint;

/* Bits of end->flags; set_bit, test_bit: written by both ends. */
enum end_flag {
	END_PARKED,	/* in the identity table; changed under its bucket lock */
	END_RX_READY,	/* a reader of this socket knows of the ring */
	END_RX_CLOSED,	/* nobody will read this socket again */
	END_TX_CLOSED,	/* nothing more goes into this end's ring: set while nobody
			 * is in the middle of an append, after the last of which
			 * it becomes visible
			 */
	END_SHADOW,	/* matched and counted only */
	END_LOWAT_QUEUED,	/* on the list of rcvlowat.c, which holds the end */
	END_ACTIVE,	/* this end called connect() */
	END_ENDED,	/* detached; changed under pairs_lock */
	END_DROPPED,	/* to be un-paired, both ends; see unpair.h */
	END_YIELDS,	/* gives way to who captures packets; see yield.h */
	END_LIMITED,	/* it was told that this end had no room in its ring */
	END_TRIMMED,	/* a lock: somebody takes pages of a ring whose sender is detached */
	END_CHARGED,	/* this end is charged to the memory cgroup of a task that uses it */
	END_TRANSLATED, /* the two ends see different addresses; set before the link */
	/* What mark_ready in rx.c goes by. Each is set once, and never cleared. */
	END_RX_KNOWN,	/* when sk_prot became ours, nobody was inside TCP's own functions;
			 * set by sks_enroll(), with the socket locked
			 */
	END_RX_EARLY,	/* since then, and before the link, splice(2) or TCP_ZEROCOPY_RECEIVE
			 * went to TCP's own functions, uncounted
			 */
	END_RX_DOUBT,	/* a reader came, and another may be inside TCP's own functions */
};

/* Of the ring that an end sends into. */
struct end_memory {
	u32 ring_size;			/* at first, and anew when it was given back */
	u32 ring_max;			/* what it may grow to */
	u32 group_id;			/* see struct socksplice_pair_opts */
	struct memory_group *group;	/* that of a cap, or NULL; the end puts it */
	u64 cap;			/* most bytes of the group's rings; 0: no limit */
};

/* What both ends look at for every byte stands on the first line and is seldom
 * written; what an end writes for every byte of its own follows on other lines, since a
 * line that one end writes and the other reads costs as much as the rest of a short
 * message. The ring has its own.
 */
struct pair_end {
	enum slot_kind slot;		/* SLOT_PAIR; first, constant */
	unsigned long flags;		/* enum end_flag, atomic bit operations */

	/* The peer's end. Written once, under the bucket lock, with release
	 * (pairs with sks_end_peer()); NULL until linked. The reference
	 * is dropped when this end detaches.
	 */
	struct pair_end *peer;

	/* NULL once detached. RCU; cleared under the socket's lock. */
	struct sock __rcu *sk;
	/* The socket's own, as found; constant since before the end was attached. */
	void (*data_ready)(struct sock *sk);
	/* Of a socket that is, or was, spliced while paired: not in the slot then, which is
	 * this end's, and handed the slot when this end is detached. Written under the
	 * socket's lock; the peer follows it under RCU, which frees it.
	 */
	struct splice_endpoint *guest;

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
	 * under its socket's lock; see sks_end_progress().
	 */
	u32 tcp_taken;

	/* Set before the end is attached, constant afterwards. */
	u16 family;
	u32 id;				/* lower half of order, which is what users see */
	u64 order;			/* of the pair among all; set when linked */
	struct end_memory memory;
	u64 start;			/* ktime_get_ns() of the enrolment */
	u32 busy_poll_usec;		/* as enrolled; written once, soon after the attachment */
	u32 netns_inum;

	refcount_t ref ____cacheline_aligned;

	/* The socket's lock, all of these. */
	bool rx_mid_read;	/* a reader holds rx_mutex, between two parts of a read */
	bool spilled;		/* counted as one spill until it reopens; read without it, too */
	/* Both are read without it, too, by who waits for the other: wait_var_event() on the
	 * first, whose barrier is the partner of the one before wake_up_var() in tx_wait.c.
	 */
	bool tx_mid_message;	/* a sender waits for space, part of its message in the ring */
	int tx_turns;		/* others who want to send: the rest goes by TCP at once */
	bool pinned;		/* the pins of an ended end hold references */
	int pins;		/* see sks_end_pin() */
	int rx_taking;		/* readers that wait for their turn */
	int rx_partial;		/* readers that dropped the lock with bytes in hand */
	int tcp_readers;	/* in TCP's recvmsg through us, asleep or about to be */
	int sleepers;		/* asleep through us, with woken_wake_function */
	int rx_sleepers;	/* in sks_rx_wait(): spinning, asleep, or just woken */
	int space_waiters;	/* sleepers that wait for space in the ring */
	unsigned char rx_short;	/* readers' waits in turn that were short, or enough; rx_wait.c */
	/* tx_wait.c: moments that are yet to be left out; how many, after the last one in vain */
	unsigned char wait_skips_left, wait_backoff;
	bool rx_stream_tail;		/* the last that spun had bytes at once; rx_wait.c */
	u64 rx_sent;		/* bytes sent, when it did */
	/* pages.c; while the ring is open. Of a detached end it and the ring are changed under
	 * END_TRIMMED, or without references.
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

	struct llist_node lowat_node;		/* rcvlowat.c; valid with END_LOWAT_QUEUED */
	/* How far the reader's TCP had received when all who wait had been told, or were about
	 * to be. Written by who sets END_LOWAT_QUEUED, by the work while it holds the bit, and by
	 * who has sent, appended or set the mark: an older value than another's costs one wake-up.
	 */
	u32 lowat_known;

	/* The same of this end's TCP, once the peer is detached: written by that before it
	 * clears its @sk, then by unpair.c's work.
	 */
	u32 left_known;

	/* probe.c; its work only. */
	u64 probe_bytes;		/* by both rings, at the last look */
	unsigned long probe_since;	/* jiffies when the first of those was sent */
	u32 probe_tstamp;		/* tp->rcv_tstamp then */
	bool probe_pending;		/* some were sent, none is known to be answered */

	bool capture_seen;		/* yield.c's work only: captured, at its last look */

	u64 idle_bytes;			/* reclaim.c's work only: ring_bytes, at the last look */
	unsigned long idle_since;	/* reclaim.c's work only: jiffies */

	struct ring ring;		/* the direction from this socket to its peer */
};

/* Bytes that the consumer has taken from this direction, modulo 2^32. */
static inline u32 sks_end_progress(const struct pair_end *end)
{
	return READ_ONCE(end->ring.tail) + READ_ONCE(end->tcp_taken);
}

/* The end of a socket whose lock the caller holds, or NULL. */
static inline struct pair_end *sks_end_get(const struct sock *sk)
{
	return sks_slot_get(sk, SLOT_PAIR);
}

/* The same under rcu_read_lock() only. */
static inline struct pair_end *sks_end_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = sks_slot_get_rcu(sk);

	return slot && *slot == SLOT_PAIR ?
	       container_of(slot, struct pair_end, slot) : NULL;
}

static inline struct pair_end *sks_end_peer(const struct pair_end *end)
{
	return smp_load_acquire(&end->peer);	/* pairs with sks_end_link */
}

/* @unpark takes a end out of the table of those that wait for a peer, if it is there;
 * nothing links it after that. Any context.
 */
int sks_end_init(void (*unpark)(struct pair_end *end));
void sks_end_exit(void);

/* Makes a end and attaches it. The caller has the socket locked, or is the
 * softirq that owns it; never sleeps. @flags: END_ACTIVE, END_SHADOW, END_YIELDS.
 * Returns the end, which then holds the group of @memory, or an ERR_PTR.
 */
struct pair_end *sks_end_attach(struct sock *sk, const struct ident *id,
				const struct end_memory *memory,
				unsigned long flags);

/* Undoes the attachment; the socket is locked, by its owner or as by
 * sks_end_trylock(), and goes on as plain TCP. Its splices live on.
 */
void sks_end_detach(struct sock *sk);

/* Detaches @sk, which is locked, if it is neither paired nor waits for a peer. */
void sks_end_detach_if_unmatched(struct sock *sk);

/* True if @sk, which is locked, can go on as plain TCP: its end @end has read the
 * closed ring of @peer to the bottom, no reader is in the middle of a call, whose
 * rest TCP's own recvmsg could not give it, and none sleeps until a low-water mark
 * is reached, which TCP would take for a new call and let begin with less. Nor is a sender
 * half-way through a message: another thread must not send before it goes on.
 */
bool sks_end_is_done(const struct sock *sk, const struct pair_end *end,
		     const struct pair_end *peer);

/* References for who drops the socket's lock; the lock is held for _hold, which
 * returns the peer that it took one on, or NULL, for _put.
 */
struct pair_end *sks_end_hold(struct pair_end *end);
void sks_end_put(struct pair_end *end, struct pair_end *peer);

/* The same for who only sleeps or spins until the lock is its own again: nothing that
 * the peer's CPU uses is written unless the end ends meanwhile. The socket is locked
 * for both; @end may be gone after _unpin.
 */
static inline void sks_end_pin(const struct sock *sk, struct pair_end *end)
{
	sock_owned_by_me(sk);
	end->pins++;
}
void sks_end_unpin(const struct sock *sk, struct pair_end *end);

/* The socket of @end, held by its spinlock as a softirq would hold it: NULL if @end is
 * detached, -EBUSY if a task owns the socket. For who must not wait for a task
 * that may own it across a page fault that never ends. No sleep until _unlock.
 */
struct sock *sks_end_trylock(struct pair_end *end);
void sks_end_unlock(struct sock *sk);

#endif /* SOCKSPLICE_CHAN_H */
