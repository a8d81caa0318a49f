/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An end (struct pair_end) is what the module knows of one enrolled socket: the ring that this
 * socket sends into and its peer reads, its identity while it waits for a peer, and the peer's
 * end.
 *
 * The room pair/ says what a pair is: its two ends, their rings and the memory of these, the
 * struct proto that makes a socket ours, wake-ups and verdicts. It may call core/ only. All rooms
 * above it may call it: datapath/, upkeep/, admit/, sosplice/, ctl/ and main.c. pair/ reaches them
 * through tables that they register (guest.h, verdict.h).
 *
 * Lifetime
 *   - icsk_ulp_data points to the end while the end is attached. It is attached and detached under
 *     the socket's lock only. So a task that holds that lock may use the end without a reference.
 *   - One reference belongs to the attachment, one to the peer's end, and one to each task that
 *     sleeps or copies with the lock dropped. Tasks that only wait are counted in end->pins
 *     instead. They share a reference if the end is detached before they are back.
 *   - A task that holds such a reference also holds one on the peer's end (sks_end_hold), because
 *     detaching drops the reference between the ends. Two ends that held each other would never be
 *     freed.
 *   - end->sk holds a reference on the socket until one RCU grace period after the detachment. The
 *     peer reaches the socket under rcu_read_lock() only.
 *   - The ring belongs to the sender's end. So it outlives both sockets for as long as the reader
 *     is attached, and no TCP state frees it. Its pages come and go as pages.h says.
 */
#ifndef SOCKSPLICE_END_H
#define SOCKSPLICE_END_H

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

/* Bits of end->flags. Both ends' sockets write them, with atomic bit operations. */
enum end_flag {
	END_PARKED,	/* in the table of match.c; changed under the bucket's lock */
	END_RX_READY,	/* a reader of this socket looks at the ring, so the peer may use it */
	END_RX_CLOSED,	/* this socket is never read again */
	END_TX_CLOSED,	/* No more bytes go into this end's ring. Set while no task is in the
			 * middle of an append. The last append becomes visible before the bit.
			 */
	END_SHADOW,	/* shadow mode: matched and counted only */
	END_LOWAT_QUEUED,	/* on the list of rcvlowat.c, which holds the end and its peer */
	END_ACTIVE,	/* this end called connect() */
	END_ENDED,	/* detached; changed under pairs_lock */
	END_DROPPED,	/* the pair is being un-paired; set on both ends; see unpair.h */
	END_YIELDS,	/* the pair gives way to packet captures; see yield.h */
	END_LIMITED,	/* the verdict that this end got no ring was reported */
	END_TRIMMED,	/* a lock: a task takes pages of the ring, whose sender is detached */
	END_CHARGED,	/* this end is charged to the memory cgroup of a task that uses it */
	END_TRANSLATED, /* the two ends see different addresses; set before the link */
	END_LOCAL,	/* its packets stay in its network namespace; set at the handshake */
	END_DOUBT,	/* An end had its sequence numbers, but no proof. Set under the lock of the
			 * bucket, before this end parks or while it is parked.
			 */
	/* sks_rx_mark_ready() decides by the next three. Each is set once, and never cleared. */
	END_RX_KNOWN,	/* When sk_prot became ours, no task was inside TCP's own functions.
			 * sks_enroll() sets it, with the socket locked.
			 */
	END_RX_EARLY,	/* Since then, and before the link, splice(2) or TCP_ZEROCOPY_RECEIVE
			 * called TCP's own functions, which are not counted.
			 */
	END_RX_DOUBT,	/* A reader came while another one may be inside TCP's own functions. */
};

/* What the ring that an end sends into may hold. */
struct end_memory {
	u32 ring_size;			/* bytes; of a new ring and of one that is opened again */
	u32 ring_max;			/* bytes that the ring may grow to */
	u32 group_id;			/* see struct socksplice_pair_opts */
	struct memory_group *group;	/* held by the end; NULL without a cap */
	u64 cap;			/* most bytes of the group's rings; 0: no limit */
};

/* Cache lines. A line that one end writes and the other reads costs as much as the rest of a short
 * message. So the fields that both ends read for every message come first, and are seldom written.
 * The fields that an end writes for every message of its own follow on other lines. The ring has
 * lines of its own.
 */
struct pair_end {
	enum slot_kind slot;		/* SLOT_PAIR; first, constant */
	unsigned long flags;		/* enum end_flag, atomic bit operations */

	/* The peer's end; NULL until linked. Written once, under the bucket's lock, with release
	 * (pairs with sks_end_peer()). The reference is dropped when this end detaches.
	 */
	struct pair_end *peer;

	/* The socket; NULL once detached. Read under RCU, cleared under the socket's lock. */
	struct sock __rcu *sk;
	/* The socket's callback at the enrolment; constant since before the attachment. */
	void (*data_ready)(struct sock *sk);
	/* The endpoint of a socket that is, or was, spliced while paired. The slot holds this end
	 * then, and gets the endpoint when this end is detached. Written under the socket's lock.
	 * The peer follows it under RCU, which frees it.
	 */
	struct splice_endpoint *guest;

	/* The sequence number at which the ring's bytes stand in the TCP stream. The producer
	 * writes it under its socket's lock, and only while the ring is empty. The consumer reads
	 * it after it has seen bytes in the ring (barrier A of ring.h).
	 */
	u32 seq;
	/* A producer that sleeps for space sets this. The consumer clears it when it wakes all
	 * such producers, and so does the last of them that leaves. tx_wait.c and rx.c have the
	 * barriers.
	 */
	int want_space;
	/* Bytes that the consumer took from this direction by TCP. The consumer writes it under
	 * its socket's lock; see sks_end_progress().
	 */
	u32 tcp_taken;

	/* Set before the end is attached, constant afterwards. */
	u16 family;
	u32 id;				/* the lower half of order, which users see */
	u64 order;			/* number of the pair; set when linked */
	struct end_memory memory;
	u64 start;			/* ktime_get_ns() of the enrolment */
	u32 busy_poll_usec;		/* as enrolled; written once, just after attaching */
	u32 netns_inum;

	refcount_t ref ____cacheline_aligned;

	/* The socket's lock protects all fields from here to @captured. @pins comes first, because
	 * for arm64 gcc loads two flags in a row together with the six bytes before them. Those
	 * must not be @ref, which changes without the lock.
	 */
	int pins;		/* see sks_end_pin() */
	bool rx_mid_read;	/* a reader holds rx_mutex and is between two parts of a read */
	bool spilled;		/* TCP took over, which counts as one spill until the ring reopens;
				 * also read without the lock
				 */
	/* The next three are also read without the lock, by a task that waits for one of them.
	 * wait_turn() in tx_wait.c waits on tx_mid_message by wait_var_event(), whose barrier is
	 * the partner of the one before wake_up_var(). sks_disconnect_wait() does the same.
	 */
	bool disconnecting;	/* a task disconnects the socket, and waits for readers */
	bool tx_mid_message;	/* a sender waits for space, with part of its message in the ring */
	int tx_turns;		/* other tasks that want to send: the rest goes by TCP at once */
	bool pinned;		/* the end is detached, and its pins hold references */
	int rx_taking;		/* readers, or a disconnect, that wait until no other reads */
	int rx_partial;		/* readers that dropped the lock and have bytes already */
	int tcp_readers;	/* tasks in TCP's recvmsg that our functions called */
	int sleepers;		/* tasks that we put to sleep, with woken_wake_function */
	int rx_sleepers;	/* readers in sks_rx_wait(): spinning, asleep, or just woken */
	int space_waiters;	/* sleepers that wait for space in the ring */
	unsigned char rx_short;	/* short waits of readers in a row, up to SHORT_WAITS; rx_wait.c */
	/* tx_wait.c: short waits that are still to be left out, and how many were after the last
	 * vain one
	 */
	unsigned char wait_skips_left, wait_backoff;
	/* rx_wait.c, sks_rx_poll_wait(): short waits of pollers in a row, and the start of the
	 * one that may still go on, or 0. By local_clock(). Pollers write them without a lock:
	 * they only guess how long the next wait is. poll_sent: bytes that this end had sent.
	 * poll_quiet: polls that found nothing since then, up to STREAM_POLLS.
	 */
	unsigned char poll_short, poll_quiet;
	u64 poll_began;
	u64 poll_sent;
	bool rx_stream_tail;		/* the last reader that spun had bytes at once; rx_wait.c */
	u64 rx_sent;		/* bytes that this end had sent when that reader spun */
	/* pages.c: set while the ring is open. Once the end is detached, this and the ring are
	 * changed under END_TRIMMED, or when no reference is left.
	 */
	struct ring_entry *ring_entry;
	unsigned long ring_retry;	/* jiffies: no page is asked for before this; or 0 */
	unsigned int ring_full;		/* how often it was full at its present size */
	/* Most bytes that the ring may hold: its size, or less if the reader's receive buffer is
	 * smaller (tx.c). The sender sets it before an append. Both ends read it without the lock,
	 * for wake-ups only.
	 */
	u32 ring_limit;
	/* These four count what this socket sent to its peer. Written under the socket's lock, read
	 * by anybody.
	 */
	u64 ring_bytes;
	u64 ring_msgs;
	u64 tcp_bytes;
	u64 tcp_msgs;
	u32 ring_used_at;	/* tcp_jiffies32 at the last append; also read without the lock */
	u32 capture_id;		/* capture.c: the capture that @captured is about */
	bool captured;		/* that capture wants this pair */

	/* Orders readers that take bytes from TCP with the socket's lock dropped. rx_mutex is
	 * taken before the socket's lock, never after it.
	 */
	struct mutex rx_mutex;

	struct ident ident;
	struct rb_node in_pairs;	/* in the tree of all pairs; pairs_lock */
	struct rcu_head rcu;
	struct sock *gone_sk;		/* for the RCU callback only */

	struct llist_node lowat_node;		/* rcvlowat.c; valid while END_LOWAT_QUEUED */
	/* rcvlowat.c: the reader's rcv_nxt at a time when all waiters had been notified of what
	 * came before, or were about to be. Three tasks write it: the one that sets
	 * END_LOWAT_QUEUED; the work, while it holds the bit; and one that has sent, appended or
	 * set the mark. An older value than another task's costs one wake-up.
	 */
	u32 lowat_known;

	/* unpair.c: as lowat_known, but this socket's own rcv_nxt, once the peer is detached. The
	 * peer writes it before it clears its @sk. After that unpair.c's work does.
	 */
	u32 left_known;

	/* probe.c's work only. */
	u64 probe_bytes;		/* bytes sent by both rings at the last look */
	unsigned long probe_since;	/* jiffies when the first unanswered probe was sent */
	u32 probe_tstamp;		/* tp->rcv_tstamp at that time */
	bool probe_pending;		/* probes were sent, and none is known to be answered */

	bool capture_seen;		/* yield.c's work only: the last look saw a capture */

	u64 idle_bytes;			/* reclaim.c's work only: ring_bytes at the last look */
	unsigned long idle_since;	/* reclaim.c's work only: jiffies when that last changed */

	struct ring ring;		/* the direction from this socket to its peer */
};

/* Bytes that the consumer has taken from this direction by ring and TCP, modulo 2^32. */
static inline u32 sks_end_progress(const struct pair_end *end)
{
	return READ_ONCE(end->ring.tail) + READ_ONCE(end->tcp_taken);
}

/* The end of a socket whose lock the caller holds, or NULL. */
static inline struct pair_end *sks_end_get(const struct sock *sk)
{
	return sks_slot_get(sk, SLOT_PAIR);
}

/* Like sks_end_get(), but under rcu_read_lock() only. */
static inline struct pair_end *sks_end_get_rcu(const struct sock *sk)
{
	enum slot_kind *slot = sks_slot_get_rcu(sk);

	return slot && *slot == SLOT_PAIR ? container_of(slot, struct pair_end, slot) : NULL;
}

static inline struct pair_end *sks_end_peer(const struct pair_end *end)
{
	return smp_load_acquire(&end->peer);	/* pairs with sks_end_link */
}

/* Sets up ends. @unpark takes an end out of the table of ends that wait for a peer, if it is
 * there. Nothing links the end after that. @unpark is called in any context.
 */
int sks_end_init(void (*unpark)(struct pair_end *end));
void sks_end_exit(void);

/* Makes an end and attaches it. The caller has the socket locked, or is the softirq that owns it.
 * Never sleeps. @flags: END_ACTIVE, END_LOCAL, END_SHADOW, END_YIELDS. Returns the end, which then
 * holds the group of @memory, or an ERR_PTR.
 */
struct pair_end *sks_end_attach(struct sock *sk, const struct ident *id,
				const struct end_memory *memory, unsigned long flags);

/* Undoes the attachment. The socket then goes on as plain TCP. The caller has it locked, as its
 * owner or by sks_end_trylock(). The splices of the socket live on.
 */
void sks_end_detach(struct sock *sk);

/* Detaches @sk, which is locked, if it is neither paired nor waiting for a peer. */
void sks_end_detach_if_unmatched(struct sock *sk);

/* True if @sk, which is locked, can go on as plain TCP:
 *   - Its end @end has read the closed ring of @peer to the bottom.
 *   - No reader is in the middle of a call. TCP's own recvmsg could not return the rest of it.
 *   - No reader sleeps until a low-water mark is reached. TCP would take that for a new call, and
 *     let it begin with less.
 *   - No task is disconnecting it: calls that begin have to wait for that.
 *   - No sender is half-way through a message. Another thread must not send before that one goes
 *     on.
 */
bool sks_end_is_done(const struct sock *sk, const struct pair_end *end,
		     const struct pair_end *peer);

/* References for a task that drops the socket's lock. _hold is called with the lock held. It
 * returns the peer's end, on which it also took a reference, or NULL. _put takes both.
 */
struct pair_end *sks_end_hold(struct pair_end *end);
void sks_end_put(struct pair_end *end, struct pair_end *peer);

/* Like sks_end_hold() and sks_end_put(), for a task that only sleeps or spins until it has the
 * lock again. These two write nothing that the peer's CPU uses, unless the end is detached
 * meanwhile. Both are called with the socket locked. After _unpin @end may be gone.
 */
static inline void sks_end_pin(const struct sock *sk, struct pair_end *end)
{
	sock_owned_by_me(sk);
	end->pins++;
}
void sks_end_unpin(const struct sock *sk, struct pair_end *end);

/* The socket of @end, held by its spinlock as a softirq would hold it. NULL if @end is detached,
 * -EBUSY if a task owns the socket. For callers that must not wait for a task, which may own the
 * socket across a page fault that never ends. The caller does not sleep until _unlock.
 */
struct sock *sks_end_trylock(struct pair_end *end);
void sks_end_unlock(struct sock *sk);

#endif /* SOCKSPLICE_END_H */
