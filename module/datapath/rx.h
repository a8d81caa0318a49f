/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_RX_H
#define SOCKSPLICE_RX_H

#include <net/sock.h>

#include "compat/compat.h"

struct socksplice_chan;

/* struct proto.recvmsg of a socket that carries a chan. */
int socksplice_rx_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			  int flags COMPAT_ADDR_LEN_PARAM);

/* Bytes that recv(2) would find now, by ring and TCP together; a FIN counts as one. With
 * the lock held exact, without it a snapshot.
 */
u32 socksplice_rx_available(const struct sock *sk, const struct socksplice_chan *c);

/* The same as FIONREAD says it: without a FIN, and up to the urgent mark. The socket is locked. */
int socksplice_rx_inq(struct sock *sk, const struct socksplice_chan *c);

/* The same as TCP_INQ says it: all that has come, and a FIN counts as a byte. @c may be NULL. */
int socksplice_rx_inq_hint(const struct sock *sk, const struct socksplice_chan *c);

/* Microseconds, up to SOCKSPLICE_BUSY_POLL_MAX: a reader whose last waits were shorter spins
 * so long before it sleeps. 0: none does unasked.
 */
extern unsigned int socksplice_short_wait;

/* struct proto.sock_is_readable. Called by tcp_poll() without the lock. */
bool socksplice_rx_is_readable(struct sock *sk);

/* Whether @wait is a reader's who sleeps in our recvmsg or splice_read for bytes of a pair.
 * One that was woken is not on the queue; chan->rx_sleepers counts him until he has the
 * lock.
 */
bool socksplice_rx_is_sleeper(const struct wait_queue_entry *wait);

/* Unread bytes in the ring towards @c that its reader could still reach.
 * The socket is locked.
 */
u32 socksplice_rx_ring_unread(const struct sock *sk, const struct socksplice_chan *c);

#endif /* SOCKSPLICE_RX_H */
