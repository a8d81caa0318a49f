/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_RX_H
#define SOCKSPLICE_RX_H

#include <net/sock.h>

#include "compat/compat.h"

struct pair_end;

/* struct proto.recvmsg of a socket that carries a end. */
int sks_rx_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
		   int flags COMPAT_ADDR_LEN_PARAM);

/* struct proto.sock_is_readable. Called by tcp_poll() without the lock. */
bool sks_rx_is_readable(struct sock *sk);

/* Whether @wait is a reader's who sleeps in our recvmsg or splice_read for bytes of a pair.
 * One that was woken is not on the queue; end->rx_sleepers counts him until he has the
 * lock.
 */
bool sks_rx_is_sleeper(const struct wait_queue_entry *wait);

/* For splice_read.c, and for splices whose source is paired. */

/* A reader that knows of the ring is here: the peer may use the ring, if no call that began
 * before sk_prot was ours is still inside TCP's own functions. Such a call would read past
 * the ring. That nobody is inside is known in one of two ways: nobody was when sk_prot
 * became ours (END_RX_KNOWN), or the current call is the only one on the socket's file
 * (caller.c). Otherwise the peer sends by TCP, and the next reader tries again. Nor is the
 * ring used while the reader is the kernel. The socket is locked, and no reader has its turn.
 */
void sks_rx_mark_ready(struct sock *sk, struct pair_end *end);

/* Takes @n bytes off the ring and wakes a writer that waits for them. */
void sks_rx_consume(struct sock *sk, struct pair_end *end, u32 n);

/* Until no reader has a turn, see rx.c; returns live_end() then. May drop the lock. */
struct pair_end *sks_rx_turn_wait(struct sock *sk);

/* Instead of a number of bytes: what TCP wakes a reader for, which is as many as SO_RCVLOWAT
 * says, or fewer where there is no room for more (tcp_epollin_ready()).
 */
#define SOCKSPLICE_RX_MARK	U32_MAX

/* Other than @pos bytes, or the end. Exact with the socket locked. */
bool sks_rx_has_more(const struct sock *sk, const struct pair_end *end, u32 pos);

/* Sleeps, after spinning, until there are other than @pos bytes or the end has
 * come; similar to sk_wait_data(). A spurious wake-up ends it, too. Drops the
 * lock: @end may be detached on return. -EPIPE after a disconnect.
 */
int sks_rx_wait(struct sock *sk, struct pair_end *end, long *timeo, u32 pos);

/* With nothing to read: what to return, or 1 to wait. */
int sks_rx_nothing_left(struct sock *sk, long timeo);

/* The same of splice(2) at the urgent mark, which does not wait: no signal counts. */
int sks_rx_nothing_left_at_mark(struct sock *sk, long timeo);

#endif /* SOCKSPLICE_RX_H */
