/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TX_H
#define SOCKSPLICE_TX_H

#include <net/sock.h>

struct pair_end;

/* struct proto.sendmsg of a socket that carries a end. */
int sks_tx_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);

/* The same with the socket locked, whether it has a end or not. Drops the lock to wait, be it
 * for a moment with MSG_DONTWAIT. Never if not @may_wait; @msg has MSG_DONTWAIT then.
 */
ssize_t sks_tx_sendmsg_locked(struct sock *sk, struct msghdr *msg, bool may_wait);

#endif /* SOCKSPLICE_TX_H */
