/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ring and TCP as one stream, shared by sender.c, reader.c, rest.c and handover.c. The model
 * has one direction of a pair, from socket A to socket B.
 *
 * TCP itself is assumed to be correct: it carries its bytes in order, wakes its reader, and holds
 * the reader's socket lock while it delivers. The locks are assumed to be correct, too. The value
 * of a byte is its place in the order in which the senders sent it. Each byte that is read is
 * compared with the one that is due.
 */
#ifndef TEST_MODELS_HANDOVER_H
#define TEST_MODELS_HANDOVER_H

#include "explore.h"

typedef uint8_t u8;
typedef uint16_t u16;

#define RING	2	/* bytes; room of half of it wakes a sender; appends are of one byte */
#define STREAM	16	/* the most bytes over TCP */
#define FIN	0xf1
#define FREED	0xee

/* Each mutation breaks one rule. */
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
	SPECIAL = 4,		/* goes over TCP: zerocopy, control messages */
	HELD = 8,		/* goes over TCP, and TCP holds it back: MSG_MORE */
};

struct scenario {
	const char *name;
	u8 messages[3];		/* lengths of the first sender's messages, 0 for none */
	u8 second;		/* length of the second sender's message, 0 for none */
	u8 kinds;		/* each message may be any of these */
	u8 want;		/* bytes that a reader asks for */
	bool two_readers, waitall;
	bool startup;		/* the first reader is at any point in TCP's own recvmsg */
	bool drop, idle, close, reset;
	bool full;		/* only with TEST_FULL */
	u8 mutation;
	const char *why;	/* part of the message that reports the mutation */
};

extern const struct scenario *cfg;
#define MUTANT(m)	(cfg->mutation == (m))

enum actor {
	SENDER, READER, TCP, SHUTDOWN, SENDER_2, READER_2, DROP_READER, DROP_SENDER, IDLE, RESET,
	ACTORS,
};

/* The variables of one actor that survive a step. Each actor uses those that it needs. */
struct thread {
	u16 pc;
	u8 done;		/* bytes of the message that are sent, or that the reader has */
	u8 left;
	u8 n;
	u8 kind;
	u8 message;
	u8 progress;
	u8 tcp, ring;		/* as in struct rx_readable; until then rcv_nxt and the tail */
	u8 copied;		/* copied_seq of a look without the lock */
	u8 again:1, timeout:1, turn:1, part:1;
	u8 queued:1, asleep:1, woken:1;	/* on its socket's wait queue */
};

struct state {
	/* Socket A. A lock holds the number of its owner plus one, or 0 if it is free. */
	u8 a_lock;
	u8 a_attached, a_err, a_shut;
	u8 tx_closed;		/* END_TX_CLOSED */
	u8 want_space, space_waiters, progress;
	u8 seq, spilled;
	u8 pages;
	u8 head;
	u8 accepted;		/* bytes that the senders have sent */

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
	u8 old_callers;		/* calls inside TCP's own recvmsg; each holds the file */
	u8 tcp_sleepers;	/* those of them that are on a wait queue */
	u8 copied_seq;
	u8 tail;
	u8 ring[RING];
	u8 consumed;		/* bytes that the readers have got */
	u8 reset;		/* B's TCP has sent a reset */
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

/* Wakes the tasks that sleep on a socket. */
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
