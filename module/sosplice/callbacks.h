/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The four callbacks of a source or sink. Arriving data wakes the mover, not the reader. Space,
 * changes of state and errors wake both.
 *
 * TCP calls most of them with the socket's spinlock held. It calls sk_error_report() without any
 * lock too, and other code of the kernel may call each of the four that way. So each callback
 * loads every pointer once, under RCU.
 */
#ifndef SOCKSPLICE_CALLBACKS_H
#define SOCKSPLICE_CALLBACKS_H

#include <linux/types.h>

struct sock;

/* Notes the callbacks of @sk, an ordinary TCP socket, because the kernel does not export them.
 * Called once.
 */
void sks_callbacks_learn(const struct sock *sk);

/* True if the callbacks are an ordinary socket's, or ours. Final under sk_callback_lock. */
bool sks_callbacks_are_plain(const struct sock *sk);

/* The same, but only for state_change and error_report, which TLS leaves as they are. */
bool sks_callbacks_report_plainly(const struct sock *sk);
bool sks_callbacks_are_ours(const struct sock *sk);

/* Called with sk_callback_lock held. The second leaves callbacks that other code has put there
 * since.
 */
void sks_callbacks_set(struct sock *sk);
void sks_callbacks_clear(struct sock *sk);

/* Does what an ordinary socket does when data arrive. */
void sks_callbacks_plain_ready(struct sock *sk);

#endif /* SOCKSPLICE_CALLBACKS_H */
