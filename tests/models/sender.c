// SPDX-License-Identifier: GPL-2.0
/* sks_tx_sendmsg_locked() of module/datapath/tx.c, step by step. */
#include "handover.h"

#define TCP_ROOM	2	/* TCP accepts no more bytes while so many are unread */

static bool tcp_is_full(void)
{
	return (u8)(S.write_seq - S.copied_seq) >= TCP_ROOM;
}

/* Each of these only changes from false to true. So reading them one after another has no result
 * that reading all at once could not have.
 */
static bool ended(void)
{
	return S.a_err || S.a_shut || S.rx_closed || S.tx_closed;
}

#define WAKE_READER() do {						\
		AT("sks_wake_reader: peer->sk");		\
		seen = SHARED(S.b_attached);				\
		if (seen) {						\
			AT("sks_wake_reader: data_ready");	\
			explore_shared++;				\
			wake_b();					\
		}							\
	} while (0)

#define SPACE_OR_END() do {						\
		AT("space_or_end: ring_len");			\
		seen = (u8)(S.head - SHARED(S.tail)) <= RING / 2;	\
		if (!seen) {						\
			AT("space_or_end: the end");			\
			explore_shared++;				\
			seen = ended();				\
		}							\
	} while (0)

#define COPY() do {							\
		AT("tx_append: copy_from_iter");			\
		if (!S.pages)						\
			violated("the sender writes into a ring without pages"); \
		SHARED(S.ring[(u8)(S.head - (MUTANT(PUBLISH_BEFORE_COPY) ? 1 : 0)) % RING]) = \
			S.accepted;					\
	} while (0)

#define PUBLISH() do {							\
		AT("tx_append: ring_publish");				\
		SHARED(S.head)++;					\
	} while (0)

static u8 pick_kind(void)
{
	u8 kinds[4], n = 0;

	for (u8 k = BLOCKING; k <= HELD; k <<= 1)
		if (cfg->kinds & k)
			kinds[n++] = k;
	return kinds[n > 1 ? choose(n) : 0];
}

static u8 next_message(const struct thread *t)
{
	if (t == &S.t[SENDER_2])
		return t->message ? 0 : cfg->second;
	return t->message < sizeof(cfg->messages) ? cfg->messages[t->message] : 0;
}

enum step sender(struct thread *t)
{
	bool seen = false;	/* never across an AT() */

	BEGIN;
	for (; next_message(t); t->message++) {
		AT("sks_tx_sendmsg: lock_sock");
		LOCK(S.a_lock);
		LATER();
		t->left = next_message(t);
		t->done = 0;
		t->kind = pick_kind();
		for (;;) {
			/* tx_route() */
			if (!S.a_attached || S.tx_closed || S.a_err || S.a_shut)
				break;
			AT("tx_route: END_RX_CLOSED of the peer");
			seen = SHARED(S.rx_closed);
			if (seen || t->kind & (SPECIAL | HELD))
				break;
			AT("tx_route: END_RX_READY of the peer");
			seen = SHARED(S.rx_ready) || MUTANT(READY_IGNORED);
			if (!seen)
				break;
			AT("look_at_reader: peer->sk");
			seen = SHARED(S.b_attached);
			if (!seen) {
				AT("tx_route: set_bit(END_TX_CLOSED)");
				SHARED(S.tx_closed) = 1;
				break;
			}
			S.pages = 1;	/* sks_pages_open() */
			if (S.seq != S.write_seq || S.spilled) {
				AT("insert_ring: ring_is_empty");
				seen = S.head == SHARED(S.tail) || MUTANT(SEQ_RULE_SKIPPED);
				if (!seen)
					break;
				if (S.snd_nxt != S.write_seq && !MUTANT(HELD_BYTES_IGNORED))
					break;
				if (!MUTANT(SEQ_NOT_MOVED) && !MUTANT(SEQ_RULE_SKIPPED)) {
					AT("insert_ring: seq");
					SHARED(S.seq) = S.write_seq;
				}
				S.spilled = 0;
			}

			/* tx_append() */
			if (MUTANT(WAKE_BEFORE_PUBLISH))
				WAKE_READER();
			AT("tx_append: ring_space");
			t->n = (u8)(S.head - SHARED(S.tail)) < RING;
			if (t->n) {
				if (MUTANT(PUBLISH_BEFORE_COPY)) {
					PUBLISH();
					COPY();
				} else {
					COPY();
					PUBLISH();
				}
				S.accepted++;
				t->done++;
				t->left--;
				AT("tx_append: END_RX_CLOSED of the peer, after the publish");
				seen = SHARED(S.rx_closed) && !MUTANT(NO_LOOK_AFTER_PUBLISH);
				if (seen) {
					AT("tx_append: ring_len");
					seen = S.head != SHARED(S.tail);
				}
				if (seen) {
					AT("tx_append: ring_retract");
					SHARED(S.head)--;
					S.accepted--;
					t->done--;
					t->left++;
					break;
				}
			}

			seen = !t->left;
			if (t->left) {
				AT("sks_tx_sendmsg_locked: ring_len");
				seen = (u8)(S.head - SHARED(S.tail)) >= RING / 2;
			}
			if (seen && !MUTANT(WAKE_BEFORE_PUBLISH))
				WAKE_READER();
			if (!t->left)
				break;
			if (t->n)
				continue;
			t->again = false;
			if (t->kind == BLOCKING || (t->kind == NONBLOCKING && choose(2))) {
				/* sleep_until_space(). spin() only makes it shorter. The
				 * take_nap() of a non-blocking sender is one turn of
				 * its loop, or none.
				 */
				AT("sleep_until_space: add_wait_queue");
				explore_shared++;
				t->queued = true;
				S.space_waiters++;
				for (t->again = true; t->again;) {
					AT("sleep_until_space: progress");
					t->progress = SHARED(S.progress);
					t->timeout = false;
					do {
						if (!MUTANT(WISH_AFTER_LOOK)) {
							AT("sleep_until_space: want_space");
							SHARED(S.want_space) = 1;
						}
						AT("sk_wait_event: release_sock");
						S.a_lock = 0;
						SPACE_OR_END();
						t->asleep = !seen;
						if (MUTANT(WISH_AFTER_LOOK)) {
							AT("sleep_until_space: want_space, too late");
							SHARED(S.want_space) = 1;
						}
						if (t->asleep) {
							AT("sk_wait_event: wait_woken");
							if (!t->woken)
								LATER();
							t->timeout = !t->woken;
							t->woken = t->asleep = false;
						}
						AT("sk_wait_event: lock_sock");
						LOCK(S.a_lock);
						SPACE_OR_END();
					} while (!seen && !t->timeout);
					if (!t->timeout)
						break;
					AT("sleep_until_space: progress, after the timeout");
					t->again = SHARED(S.progress) != t->progress;
					if (t->kind == NONBLOCKING)
						break;
				}
				AT("sleep_until_space: remove_wait_queue");
				explore_shared++;
				t->queued = t->woken = false;
				if (!--S.space_waiters || MUTANT(WISH_TAKEN_BACK)) {
					AT("sleep_until_space: want_space = 0");
					SHARED(S.want_space) = 0;
				}
			}
			if (t->again)
				continue;
			S.spilled = S.a_attached;
			break;
		}

		if (t->done && t->left && S.a_attached && !MUTANT(WAKE_BEFORE_PUBLISH))
			WAKE_READER();
		while (t->left) {
			AT("tcp_sendmsg_locked");
			while (tcp_is_full() && !S.a_err && !S.a_shut && t->kind != NONBLOCKING) {
				S.snd_nxt = S.write_seq;
				S.a_lock = 0;
				AT("tcp_sendmsg_locked: sk_stream_wait_memory");
				AWAIT(!tcp_is_full() || S.a_err || S.a_shut);
				LOCK(S.a_lock);
			}
			if (tcp_is_full() || S.a_err || S.a_shut)
				break;
			S.stream[S.write_seq++] = S.accepted++;
			t->left--;
			if (t->kind != HELD || t->left)
				S.snd_nxt = S.write_seq;
		}
		S.a_lock = 0;
		t->done = t->left = t->n = t->kind = t->progress = 0;
		t->again = t->timeout = false;
		if (S.a_err || S.a_shut)
			break;
	}
	END;
}
