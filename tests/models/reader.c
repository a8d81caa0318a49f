// SPDX-License-Identifier: GPL-2.0
/* sks_rx_recvmsg() of module/datapath/rx.c, its way to TCP in rx_tcp.c and proto_close() of
 * module/datapath/proto.c, step by step. The socket's lock keeps rcv_nxt, copied_seq and the
 * tail still.
 */
#include "handover.h"

static void expect(u8 byte)
{
	if (byte != S.consumed)
		violated("byte %u is read where byte %u is due", byte, S.consumed);
	S.consumed++;
}

/* tcp_recvmsg_locked() for up to @most bytes. Sets t->again if there were none. */
static void take_from_tcp(struct thread *t, u8 most)
{
	t->again = S.copied_seq == S.rcv_nxt;
	for (t->n = 0; t->n < most && S.copied_seq != S.rcv_nxt; t->n++) {
		u8 byte = S.stream[S.copied_seq++];

		if (byte == FIN)
			return;
		expect(byte);
	}
	if (t->n && S.fin_rides && S.copied_seq != S.rcv_nxt && S.stream[S.copied_seq] == FIN)
		S.copied_seq++;
}

static void end_of_file(void)
{
	if (!S.a_shut || S.consumed != S.accepted)
		violated("the end of file after %u of %u bytes", S.consumed, S.accepted);
}

/* rx_readable(), with the socket locked; t->tcp counts the FIN. */
#define LOOK() do {							\
		AT("rx_readable: ring_len");				\
		t->ring = (u8)(SHARED(S.head) - S.tail);		\
		t->tcp = S.rcv_nxt - S.copied_seq;			\
		if (t->ring) {						\
			AT("rx_readable: peer->seq");			\
			look_at_seq(t, SHARED(S.seq), S.copied_seq);	\
		}							\
	} while (0)

static void look_at_seq(struct thread *t, u8 seq, u8 copied)
{
	u8 gap = seq > copied && !MUTANT(RING_IN_FRONT) ? seq - copied : 0;

	if (t->tcp < gap)
		t->ring = 0;
	else
		t->tcp = gap;
}

/* rx_readable() without the socket's lock, for sks_rx_has_more(). */
#define SNAPSHOT() do {							\
		AT("rx_readable: rcv_nxt, unlocked");			\
		t->tcp = SHARED(S.rcv_nxt);				\
		AT("rx_readable: ring_len, tail, unlocked");		\
		t->ring = SHARED(S.tail);				\
		AT("rx_readable: ring_len, head, unlocked");		\
		t->ring = SHARED(S.head) - t->ring;			\
		AT("rx_readable: copied_seq, unlocked");			\
		t->copied = SHARED(S.copied_seq);			\
		t->tcp = t->tcp > t->copied ? t->tcp - t->copied : 0;	\
		if (t->ring) {						\
			AT("rx_readable: peer->seq, unlocked");		\
			look_at_seq(t, SHARED(S.seq), t->copied);	\
		}							\
		seen = t->tcp || t->ring;				\
		if (!seen) {						\
			AT("sks_rx_has_more: the end");		\
			explore_shared++;				\
			seen = S.b_err || S.b_done || S.rx_closed;	\
		}							\
		t->tcp = t->ring = t->copied = 0;			\
	} while (0)

#define QUEUE() do {							\
		AT("sks_rx_wait: add_wait_queue");		\
		explore_shared++;					\
		t->queued = true;					\
	} while (0)

/* sks_rx_turn_wait() */
#define TURN_WAIT() do {						\
		while (S.b_attached && S.rx_mid_read) {			\
			S.b_lock = 0;					\
			AT("sks_rx_turn_wait: mutex_lock");	\
			AWAIT(!S.rx_mutex);				\
			AT("sks_rx_turn_wait: lock_sock");	\
			LOCK(S.b_lock);				\
		}							\
	} while (0)

#define MARK_READY() do {						\
		if (S.b_attached && !S.rx_ready &&			\
		    !(MUTANT(READY_BY_QUEUES) ? S.tcp_sleepers : S.old_callers)) { \
			AT("sks_rx_mark_ready: set_bit(END_RX_READY)"); \
			SHARED(S.rx_ready) = 1;				\
		}							\
	} while (0)

#define TURN_END() do {							\
		if (t->turn) {						\
			S.rx_mid_read = 0;				\
			S.rx_mutex = 0;					\
			t->turn = false;				\
		}							\
	} while (0)

static void check_call(const struct thread *t)
{
	if (cfg->waitall && t->done && t->done < cfg->want && !S.b_done && !S.b_err)
		violated("a call that wants all returns with %u", t->done);
}

static void forget(struct thread *t)
{
	t->done = t->n = t->tcp = t->ring = 0;
	t->part = t->again = false;
}

enum step reader(struct thread *t)
{
	bool seen;	/* never across an AT() */

	BEGIN;
	if (cfg->startup && t == &S.t[READER]) {
		/* The reader is preempted, or woken from the lock's queue. It is on no queue. */
		AT("tcp_recvmsg: lock_sock, from before");
		LOCK(S.b_lock);
		AT("tcp_recvmsg: sk_wait_data, from before");
		explore_shared++;
		S.b_lock = 0;
		S.tcp_sleepers++;
		goto tcp;
	}
	for (;;) {
		if (cfg->close) {
			AT("the application reads on, or closes");
			JOINED();
			t->n = choose(2);
			if (t->n)
				goto close;
		}
		AT("sks_rx_recvmsg: lock_sock");
		LOCK(S.b_lock);
		LATER();
		if (MUTANT(READY_IN_TURN))
			MARK_READY();
		/* rx_locked() */
		TURN_WAIT();
		if (!S.b_attached)
			goto pass;
		MARK_READY();
		do {
			LOOK();
			t->again = false;
			t->part = t->done;
			if (t->tcp) {
				/* take_tcp() */
				S.rx_partial += t->part;
				if (!t->turn && !MUTANT(NO_TURN)) {
					S.rx_partial++;
					S.b_lock = 0;
					AT("turn_take: mutex_lock");
					LOCK(S.rx_mutex);
					AT("turn_take: lock_sock");
					LOCK(S.b_lock);
					S.rx_partial--;
					S.rx_mid_read = 1;
					t->turn = true;
				}
				t->tcp = 0;
				if (S.b_attached)
					LOOK();
				if (!t->tcp) {
					t->again = true;
				} else {
					t->tcp = t->tcp < cfg->want - t->done ?
						 t->tcp : cfg->want - t->done;
					if (MUTANT(TCP_NOT_CAPPED))
						t->tcp = cfg->want - t->done;
					S.b_lock = 0;
					AT("base_recvmsg");
					AWAIT(!S.b_lock);
					take_from_tcp(t, t->tcp);
					AT("take_tcp: lock_sock");
					LOCK(S.b_lock);
					if (t->n) {
						AT("take_tcp: progress");
						SHARED(S.progress) += t->n;
					}
				}
				S.rx_partial -= t->part;
				if (t->again && !S.b_attached)
					break;
				if (t->again)
					continue;
				if (!t->n)
					break;
			} else if (t->ring && !(MUTANT(FIN_BEFORE_RING) && S.b_done)) {
				/* take_ring() */
				AT("take_ring: ring_used");
				t->ring = (u8)(SHARED(S.head) - S.tail);
				if (t->ring > cfg->want - t->done)
					t->ring = cfg->want - t->done;
				for (t->n = 0; t->n < t->ring; t->n++) {
					AT("copy_ring");
					if (!S.pages)
						violated("the reader reads a ring without pages");
					expect(SHARED(S.ring[(u8)(S.tail + t->n) % RING]));
				}
				AT("sks_rx_consume: ring_consume");
				SHARED(S.tail) += t->n;
				AT("sks_rx_consume: progress");
				SHARED(S.progress) += t->n;
				AT("sks_rx_consume: want_space");
				seen = SHARED(S.want_space);
				if (seen) {
					AT("sks_rx_consume: ring_len");
					seen = (u8)(SHARED(S.head) - S.tail) <= RING / 2;
				}
				if (seen) {
					AT("sks_wake_writer: want_space = 0");
					SHARED(S.want_space) = 0;
					AT("sks_wake_writer: peer->sk");
					seen = SHARED(S.a_attached);
				}
				if (seen && !MUTANT(WRITER_NOT_WOKEN)) {
					AT("sks_wake_writer: wake_up");
					explore_shared++;
					wake_a();
				}
			} else {
				t->n = 0;
			}

			t->done += t->n;
			if (!S.b_attached)
				break;
			if (t->n)
				continue;
			if (t->done >= (cfg->waitall ? cfg->want : 1))
				break;
			if (S.b_done || S.b_err)
				break;
			TURN_END();
			S.rx_partial += t->part;
			/* sks_rx_wait() */
			if (!MUTANT(QUEUED_AFTER_LOOK))
				QUEUE();
			AT("sk_wait_event: release_sock");
			S.b_lock = 0;
			SNAPSHOT();
			t->asleep = !seen;
			if (MUTANT(QUEUED_AFTER_LOOK))
				QUEUE();
			if (t->asleep) {
				AT("sk_wait_event: wait_woken");
				AWAIT(t->woken);
				t->asleep = t->woken = false;
			}
			AT("sk_wait_event: lock_sock");
			LOCK(S.b_lock);
			AT("sks_rx_wait: remove_wait_queue");
			explore_shared++;
			t->queued = t->woken = false;
			TURN_WAIT();
			if (!S.b_attached)
				break;
			S.rx_partial -= t->part;
		} while (t->done < cfg->want);

		TURN_END();
		check_call(t);
		if (!t->done && !S.b_attached)
			goto pass;
		S.b_lock = 0;
		if (!t->done) {
			if (!S.b_done && S.b_err) {
				S.failed = 1;
				break;
			}
			end_of_file();
			break;
		}
		forget(t);
		continue;
pass:
		S.b_lock = 0;
tcp:
		AT("sks_rx_tcp_pass: tcp_recvmsg");
		AWAIT(!S.b_lock && (S.copied_seq != S.rcv_nxt || S.b_done || S.b_err));
		if (cfg->startup && t == &S.t[READER] && !t->message) {
			t->message = 1;
			S.tcp_sleepers--;
			S.old_callers--;
		}
		take_from_tcp(t, cfg->want);
		t->n = t->n || (!S.b_done && !S.b_err) ? 0 : 1;
		if (t->n) {
			if (!S.b_done)
				S.failed = 1;
			else
				end_of_file();
			break;
		}
		forget(t);
	}
	forget(t);
	goto out;
close:
	forget(t);
	AT("proto_close: lock_sock");
	LOCK(S.b_lock);
	if (!MUTANT(CLOSE_AFTER_LOOK)) {
		AT("proto_close: set_bit(END_RX_CLOSED)");
		SHARED(S.rx_closed) = 1;
	}
	LOOK();
	t->n = t->ring && !MUTANT(CLOSE_WITHOUT_RESET);
	if (MUTANT(CLOSE_AFTER_LOOK)) {
		AT("proto_close: set_bit(END_RX_CLOSED), too late");
		SHARED(S.rx_closed) = 1;
	}
	S.b_lock = 0;
	AT("tcp_close");
	AWAIT(!S.b_lock);
	S.reset = t->n || (S.rcv_nxt != S.copied_seq && S.stream[S.copied_seq] != FIN);
	S.b_closed = 1;
	AT("ulp_release: end->sk = NULL");
	SHARED(S.b_attached) = 0;
	forget(t);
out:
	END;
}
