/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ring and TCP as one stream: what sender.c, reader.c, rest.c and handover.c
 * share. One direction of a pair, from socket A to socket B.
 *
 * TCP itself is taken for granted: it carries what it was given, in order, wakes
 * its reader, and holds the reader's socket while it delivers. So are the locks.
 * Each byte is a number, its place in the order in which the senders got rid of it,
 * and each byte that is read is compared with what the reader is due.
 */
#ifndef TEST_MODELS_HANDOVER_H
#define TEST_MODELS_HANDOVER_H

#include "explore.h"

typedef uint8_t u8;
typedef uint16_t u16;

#define RING	2	/* its size; half of it wakes, and one byte is appended at a time */
#define STREAM	16	/* at most, by TCP */
#define FIN	0xf1
#define FREED	0xee

/* Rules that are broken, one at a time. */
enum mutation {
	NONE,
	SEQ_RULE_SKIPPED,
	SEQ_NOT_MOVED,
	PUBLISH_BEFORE_COPY,
	WAKE_BEFORE_PUBLISH,
	NO_LOOK_AFTER_PUBLISH,
	READY_IGNORED,
	READY_IN_TURN,
	READY_BY_QUEUES,
	HELD_BYTES_IGNORED,
	WISH_AFTER_LOOK,
	WISH_TAKEN_BACK,
	WRITER_NOT_WOKEN,
	FIN_BEFORE_RING,
	TCP_NOT_CAPPED,
	RING_IN_FRONT,
	NO_TURN,
	QUEUED_AFTER_LOOK,
	CLOSED_IN_APPEND,
	DETACH_WITH_BYTES,
	DETACH_IN_CALL,
	DETACH_NOT_TOLD,
	PAGES_TAKEN_IN_APPEND,
	CLOSE_AFTER_LOOK,
	CLOSE_WITHOUT_RESET,
};

enum kind {
	BLOCKING = 1,
	NONBLOCKING = 2,
	SPECIAL = 4,		/* goes by TCP: urgent, zerocopy, control messages */
	HELD = 8,		/* the same, and TCP holds it back: MSG_MORE */
};

struct scenario {
	const char *name;
	u8 messages[3];		/* of the first sender: their lengths, 0 for none */
	u8 second;		/* one of a second sender, or 0 */
	u8 kinds;		/* each message may be any of these */
	u8 want;		/* bytes that a reader asks for */
	bool two_readers, waitall;
	bool startup;		/* the first reader is inside TCP's own recvmsg, anywhere */
	bool drop, idle, close, reset;
	bool full;		/* only in the long run */
	u8 mutation;
	const char *why;	/* it is found */
};

extern const struct scenario *cfg;
#define MUTANT(m)	(cfg->mutation == (m))

enum actor {
	SENDER, READER, TCP, SHUTDOWN, SENDER_2, READER_2, DROP_READER, DROP_SENDER, IDLE, RESET,
	ACTORS,
};

/* What survives a step of one actor; each uses of it what it needs. */
struct thread {
	u16 pc;
	u8 done;		/* bytes of the message, or in the reader's hand */
	u8 left;
	u8 n;
	u8 kind;
	u8 message;
	u8 progress;
	u8 tcp, ring;		/* what a look says, as struct rx_readable; before, rcv_nxt and tail */
	u8 copied;		/* copied_seq of a look without the lock */
	u8 again:1, timeout:1, turn:1, part:1;
	u8 queued:1, asleep:1, woken:1;	/* on its socket's wait queue */
};

struct state {
	/* Socket A. a_lock: the actor plus one, 0 if nobody; so with the others. */
	u8 a_lock;
	u8 a_attached, a_err, a_shut;
	u8 tx_closed;		/* END_TX_CLOSED */
	u8 want_space, space_waiters, progress;
	u8 seq, spilled;
	u8 pages;
	u8 head;
	u8 accepted;		/* bytes that a sender got rid of */

	/* TCP: sequence numbers count from 0. */
	u8 write_seq, snd_nxt, rcv_nxt;
	u8 fin_rides;		/* the FIN is in the packet of the byte before it */
	u8 cut;			/* no packet gets through any more */
	u8 stream[STREAM];

	/* Socket B. */
	u8 b_lock;
	u8 b_attached, b_err, b_done, b_closed;
	u8 rx_ready, rx_closed;	/* END_RX_READY, END_RX_CLOSED */
	u8 rx_mutex, rx_mid_read, rx_partial;
	u8 old_callers;		/* inside TCP's own recvmsg: each has a reference on the file */
	u8 tcp_sleepers;	/* of these, on a wait queue */
	u8 copied_seq;
	u8 tail;
	u8 ring[RING];
	u8 consumed;		/* bytes that the readers have got */
	u8 reset;		/* B's TCP has sent one */
	u8 failed;		/* a reader got an error */

	/* Un-pairing. */
	u8 dropped;
	u8 b_tx_closed;		/* END_TX_CLOSED of the other direction, which is empty */

	struct thread t[ACTORS];
};

extern struct state S;

static inline u8 me(const struct thread *t)
{
	return t - S.t + 1;
}

static inline u8 ring_bytes(void)
{
	return (u8)(S.head - S.tail);
}

/* What wakes the tasks that sleep on one of the sockets. */
static inline void wake(enum actor one, enum actor other)
{
	S.t[one].woken |= S.t[one].queued;
	S.t[other].woken |= S.t[other].queued;
}

#define wake_a()	wake(SENDER, SENDER_2)
#define wake_b()	wake(READER, READER_2)

enum step sender(struct thread *t);
enum step reader(struct thread *t);
enum step tcp(struct thread *t);
enum step shut(struct thread *t);
enum step drop_reader(struct thread *t);
enum step drop_sender(struct thread *t);
enum step idle(struct thread *t);
enum step reset(struct thread *t);

#endif /* TEST_MODELS_HANDOVER_H */
