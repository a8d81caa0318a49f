/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The four callbacks of a socket at an end of a splice: arriving data wakes the mover, not
 * the reader; space, state and errors wake both.
 *
 * TCP calls most of them with the socket's spinlock held. sk_error_report() it also calls
 * without any lock, and other code of the kernel may do so with each of the four. So each
 * loads every pointer once, under RCU.
 */
#ifndef SOCKSPLICE_CALLBACKS_H
#define SOCKSPLICE_CALLBACKS_H

#include <linux/types.h>

struct sock;

/* Notes those of @sk, an ordinary TCP socket: the kernel does not export them. Once. */
void sks_callbacks_learn(const struct sock *sk);

/* Final under sk_callback_lock. */
bool sks_callbacks_are_plain(const struct sock *sk);
bool sks_callbacks_are_ours(const struct sock *sk);

/* With sk_callback_lock held. The second leaves what somebody else has put there since. */
void sks_callbacks_set(struct sock *sk);
void sks_callbacks_clear(struct sock *sk);

/* What an ordinary socket does when data arrive. */
void sks_callbacks_plain_ready(struct sock *sk);

#endif /* SOCKSPLICE_CALLBACKS_H */
