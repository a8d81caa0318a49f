/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TX_H
#define SOCKSPLICE_TX_H

#include <net/sock.h>

struct pair_end;

/* struct proto.sendmsg of a socket that carries an end. */
int sks_tx_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);

/* The same for a locked socket, whether it has an end or not. With @may_wait it drops the lock to
 * wait, for a moment even with MSG_DONTWAIT. Without @may_wait, @msg has MSG_DONTWAIT.
 */
ssize_t sks_tx_sendmsg_locked(struct sock *sk, struct msghdr *msg, bool may_wait);

#endif /* SOCKSPLICE_TX_H */
