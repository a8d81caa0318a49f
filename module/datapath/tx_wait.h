/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TX_WAIT_H
#define SOCKSPLICE_TX_WAIT_H

#include <net/sock.h>

struct pair_end;

/* What a call may still wait. */
struct tx_wait {
	long timeo;	/* jiffies; 0: moments only */
	s64 moments;	/* ns of them that are over */
};

/* TCP has taken over, and the reader has yet to take what is in the ring, or most of what
 * came since: bytes of the ring would wait behind those. @sk need not be locked.
 */
bool sks_tx_is_behind(const struct sock *sk, const struct pair_end *end,
		      const struct pair_end *peer);

/* With a full ring a blocking writer waits for its reader, and one that does not block for a
 * moment, also for one that is behind; @left is what it has yet to send. True if it is worth
 * another look at the ring, false if TCP has to take over. @between: part of the message is in
 * the ring. Sleeps, with the lock dropped: @end may be detached on return.
 */
bool sks_tx_wait(struct sock *sk, struct pair_end *end, struct tx_wait *w, size_t left,
		 bool between);

/* Until nobody's message is half-way in the ring. May drop the lock, and sleep. */
void sks_tx_wait_turn(struct sock *sk);

#endif /* SOCKSPLICE_TX_WAIT_H */
