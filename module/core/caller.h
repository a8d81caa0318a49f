/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a task other than the current one may be inside a system call on a socket.
 */
#ifndef SOCKSPLICE_CALLER_H
#define SOCKSPLICE_CALLER_H

#include <linux/types.h>

struct sock;

/* True if no other call on @sk that began before now is still running, so no task is inside TCP's
 * own functions. The current system call reads from @sk or sets an option. False if there is such
 * a call, or if that cannot be told. The socket is locked, and its sk_prot is ours.
 */
bool sks_caller_is_alone(const struct sock *sk);

/* Like sks_caller_is_alone(), for a connect(2) in whose release_sock() the handshake ends. Called
 * when sk_prot has become ours, in any context.
 */
bool sks_caller_connects_alone(const struct sock *sk);

/* A user's task, other than the current one, that is in a getsockopt(TCP_ULP), or 0 if there is
 * none: its id in the first namespace. A task that left its call meanwhile may be named, too.
 * A task that was in its call all the time is found. May sleep.
 */
pid_t sks_caller_of_ulp(void);

#endif /* SOCKSPLICE_CALLER_H */
