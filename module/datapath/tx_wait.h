/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TX_WAIT_H
#define SOCKSPLICE_TX_WAIT_H

#include <net/sock.h>

struct pair_end;

/* How long a call may still wait. */
struct tx_wait {
	long timeo;	/* jiffies; 0: short waits only */
	s64 napped;	/* ns that its short waits have taken */
};

/* True if TCP has taken over and the reader still has much to read first: bytes in the ring, or
 * more than half a ring's worth that TCP has carried since. New bytes in the ring would wait
 * behind those. @sk need not be locked.
 */
bool sks_tx_is_behind(const struct sock *sk, const struct pair_end *end,
		      const struct pair_end *peer);

/* Waits for space. A blocking writer waits until its reader has made room. A writer that does not
 * block gets a short wait (tx_wait.c), also for a reader that is behind. @left is how much it
 * still has to send. @between: part of the message is in the ring. True if the writer should look
 * at the ring again, false if TCP has to take over. Sleeps, with the lock dropped: @end may be
 * detached on return.
 */
bool sks_tx_wait(struct sock *sk, struct pair_end *end, struct tx_wait *w, size_t left,
		 bool between);

/* Waits until no other task's message is half-way in the ring, and none disconnects the socket. May
 * drop the lock, and sleep.
 */
void sks_tx_wait_turn(struct sock *sk);

#endif /* SOCKSPLICE_TX_WAIT_H */
