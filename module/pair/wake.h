/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wake-ups of the tasks that wait for a pair's bytes or for space in its rings.
 */
#ifndef SOCKSPLICE_WAKE_H
#define SOCKSPLICE_WAKE_H

#include <net/sock.h>

#include "pair/end.h"

/* Wakes the tasks that wait for bytes at @psk, whose end is @peer, as TCP does when data
 * arrive. Under RCU.
 */
void sks_wake(struct sock *psk, struct pair_end *peer);

/* Like sks_wake(), for the socket of @peer. If that is the source of a splice, queues its mover
 * instead. Any context.
 */
void sks_wake_reader(struct pair_end *peer);

/* Wakes the tasks that sleep in a call on @sk. Each then looks for itself. Sends no SIGIO and
 * wakes no poll: pollers do not ask for EPOLLMSG, and would take any other wake-up for an edge.
 * Any context.
 */
void sks_wake_sleepers(struct sock *sk);

/* Wakes the writer at @peer: its ring has space. Wakes no poll, because poll waits for what TCP
 * reports, and TCP does not know of the ring. Any context.
 */
void sks_wake_writer(struct pair_end *peer);

/* Closes the ring of @end for good, and wakes the writers that wait for space. The caller owns
 * its socket, @sk.
 */
void sks_close_ring(struct sock *sk, struct pair_end *end);

#endif /* SOCKSPLICE_WAKE_H */
