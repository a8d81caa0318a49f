/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TX_H
#define SOCKSPLICE_TX_H

#include <net/sock.h>

struct socksplice_chan;

/* struct proto.sendmsg of a socket that carries a chan. */
int socksplice_tx_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);

/* The same with the socket locked, whether it has a chan or not. Drops the lock to wait, be it
 * for a moment with MSG_DONTWAIT. Never if not @may_wait; @msg has MSG_DONTWAIT then.
 */
ssize_t socksplice_tx_sendmsg_locked(struct sock *sk, struct msghdr *msg, bool may_wait);

/* Wakes who waits for bytes at @psk, whose chan is @peer, as TCP's arrival of data would.
 * Under RCU.
 */
void socksplice_tx_wake(struct sock *psk, struct socksplice_chan *peer);

/* The same at the other end, or wakes the mover if that is the source of a splice. */
void socksplice_tx_wake_reader(struct socksplice_chan *peer);

/* Wakes who sleeps in a call at @sk, which looks for itself. No SIGIO, and no poll: those do
 * not ask for EPOLLMSG, and would take a wake-up of another kind for an edge. Any context.
 */
void socksplice_tx_wake_sleepers(struct sock *sk);

#endif /* SOCKSPLICE_TX_H */
