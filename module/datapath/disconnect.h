/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Disconnecting a paired socket: connect(2) with AF_UNSPEC. The same socket may be connected anew
 * at once.
 *
 * A reader that is between two parts of a read (rx.c) has dropped the lock. It would read on in
 * the next connection. So the disconnect waits for it, with the lock dropped. On TCP the whole
 * disconnect has the lock, and a call ends before it or begins after it. So calls that send or
 * receive and begin meanwhile wait for its end: none follows one that was cut short. A splice that
 * begins is refused, as after a disconnect.
 */
#ifndef SOCKSPLICE_DISCONNECT_H
#define SOCKSPLICE_DISCONNECT_H

#include "pair/look.h"

/* Disconnects @sk, whose lock the caller has, as tcp_disconnect() would. May drop the lock.
 * @prepare, or NULL, is called when no reader is left, with the lock held until the end.
 */
int sks_disconnect(struct sock *sk, int flags, void (*prepare)(struct sock *sk));

/* For a reader or a sender that has just got the lock: waits while another task disconnects the
 * socket. May drop the lock and sleep. Returns live_end() of @sk then.
 */
struct pair_end *sks_disconnect_wait(struct sock *sk);

#endif /* SOCKSPLICE_DISCONNECT_H */
