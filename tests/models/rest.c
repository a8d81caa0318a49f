// SPDX-License-Identifier: GPL-2.0
/* All threads but the senders and the readers: TCP, shutdown(2), datapath/unpair.c,
 * upkeep/reclaim.c, and a reset of the connection.
 */
#include <string.h>

#include "handover.h"

enum step tcp(struct thread *t)
{
	BEGIN;
	for (;;) {
		AT("tcp_v4_rcv: a packet arrives");
		AWAIT(!S.cut && S.rcv_nxt != S.snd_nxt);
		LOCK(S.b_lock);
		AT("tcp_queue_rcv: rcv_nxt");
		t->n = S.stream[S.rcv_nxt] == FIN;
		SHARED(S.rcv_nxt)++;
		if (S.b_closed) {
			S.reset |= !t->n;
			S.b_lock = 0;
			continue;
		}
		if (t->n) {
			AT("tcp_fin: SOCK_DONE, RCV_SHUTDOWN");
			SHARED(S.b_done) = 1;
		}
		AT("tcp_v4_rcv: sk_data_ready");
		explore_shared++;
		wake_b();
		S.b_lock = 0;
		t->n = 0;
	}
	END;
}

enum step shut(struct thread *t)
{
	BEGIN;
	AT("tcp_shutdown: the FIN");
	AWAIT(!S.a_lock);
	LATER();
	if (!S.a_err) {
		if (S.write_seq)
			S.fin_rides = choose(2);
		S.a_shut = 1;
		S.stream[S.write_seq++] = FIN;
		S.snd_nxt = S.write_seq;
	}
	AT("inet_shutdown: sk_state_change");
	explore_shared++;
	wake_a();
	END;
}

static bool is_done(void)
{
	return (!ring_bytes() || MUTANT(DETACH_WITH_BYTES)) &&
	       ((!S.rx_mid_read && !S.rx_partial) || MUTANT(DETACH_IN_CALL));
}

/* drop_step(): closes the sender's ring, then detaches its reader. */
enum step drop_reader(struct thread *t)
{
	BEGIN;
	AT("sks_unpair_end");
	LATER();
	SHARED(S.dropped) = 1;
	if (!S.tx_closed) {
		AT("close_ring: sks_end_trylock");
		if (!MUTANT(CLOSED_IN_APPEND))
			LOCK(S.a_lock);
		AT("close_ring: set_bit(END_TX_CLOSED)");
		SHARED(S.tx_closed) = 1;
		AT("close_ring: wake_sleepers");
		explore_shared++;
		wake_a();
		if (!MUTANT(CLOSED_IN_APPEND))
			S.a_lock = 0;
	}
	do {
		AT("end_reader: sks_end_trylock");
		AWAIT(is_done());
		LOCK(S.b_lock);
		AT("sks_end_is_done: ring_len");
		t->n = SHARED(S.head) != S.tail && !MUTANT(DETACH_WITH_BYTES);
		if (t->n)
			S.b_lock = 0;
	} while (t->n);
	AT("end_attachment: set_bit(END_TX_CLOSED)");
	SHARED(S.b_tx_closed) = 1;
	AT("end_attachment: set_bit(END_RX_CLOSED)");
	SHARED(S.rx_closed) = 1;
	AT("end_attachment: end->sk = NULL");
	SHARED(S.b_attached) = 0;
	AT("end_reader: wake_sleepers");
	if (!MUTANT(DETACH_NOT_TOLD)) {
		explore_shared++;
		wake_b();
	}
	S.b_lock = 0;
	END;
}

/* drop_step() for the other direction, whose ring is empty. */
enum step drop_sender(struct thread *t)
{
	BEGIN;
	AT("close_ring: set_bit(END_TX_CLOSED), the other direction");
	AWAIT(S.dropped && !S.b_lock);
	SHARED(S.b_tx_closed) = 1;
	AT("end_reader: sks_end_trylock, the other direction");
	LOCK(S.a_lock);
	AT("end_attachment: set_bit(END_TX_CLOSED), the other direction");
	SHARED(S.tx_closed) = 1;
	AT("end_attachment: end->sk = NULL, the other direction");
	SHARED(S.a_attached) = 0;
	AT("end_reader: wake_sleepers, the other direction");
	explore_shared++;
	wake_a();
	S.a_lock = 0;
	END;
}

enum step idle(struct thread *t)
{
	BEGIN;
	AT("sks_pages_release: sks_end_trylock");
	LATER();
	if (!MUTANT(PAGES_TAKEN_IN_APPEND))
		LOCK(S.a_lock);
	AT("ring_take_pages");
	if (SHARED(S.tail) == S.head) {
		S.pages = 0;
		memset(S.ring, FREED, sizeof(S.ring));
	}
	if (!MUTANT(PAGES_TAKEN_IN_APPEND))
		S.a_lock = 0;
	END;
}

/* The path resets the connection, or the TCP of a reader that closes does. */
enum step reset(struct thread *t)
{
	BEGIN;
	if (cfg->reset) {
		AT("tcp_reset: the reader's");
		AWAIT(!S.b_lock);
		LATER();
		S.cut = 1;
		SHARED(S.b_err) = 1;
		AT("tcp_reset: sk_error_report, the reader's");
		explore_shared++;
		wake_b();
	}
	AT("tcp_reset: the sender's");
	AWAIT(!S.a_lock && (cfg->reset || S.reset));
	SHARED(S.a_err) = 1;
	AT("tcp_reset: sk_error_report, the sender's");
	explore_shared++;
	wake_a();
	END;
}
