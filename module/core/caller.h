/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a task other than the current one may be inside a system call on a socket.
 */
#ifndef SOCKSPLICE_CALLER_H
#define SOCKSPLICE_CALLER_H

#include <linux/types.h>

struct sock;

/* True if the current system call, which reads from @sk or sets an option, is the only call
 * on @sk that began before now: nobody is inside TCP's own functions. False if it is not, or
 * if that cannot be told. The socket is locked, and its sk_prot is ours.
 */
bool sks_caller_is_alone(const struct sock *sk);

/* The same of a connect(2), in whose release_sock() the handshake ends. To be called when
 * sk_prot has become ours, in any context.
 */
bool sks_caller_connects_alone(const struct sock *sk);

#endif /* SOCKSPLICE_CALLER_H */
