/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_RX_H
#define SOCKSPLICE_RX_H

#include <net/sock.h>

#include "compat/compat.h"

struct pair_end;

/* struct proto.recvmsg of a socket that carries an end. */
int sks_rx_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
		   int flags COMPAT_ADDR_LEN_PARAM);

/* struct proto.sock_is_readable, which tcp_poll() calls by tcp_stream_is_readable(): no lock. */
bool sks_rx_is_readable(struct sock *sk);

/* True if @wait belongs to a reader that sleeps in sks_rx_wait(). A reader that was woken is
 * not on the queue; end->rx_sleepers counts it until it has the lock.
 */
bool sks_rx_is_sleeper(const struct wait_queue_entry *wait);

/* For splice_read.c, and for splices whose source is paired. */

/* The current call is a reader that knows of the ring: lets the peer use the ring, if no call
 * that began before sk_prot was ours is still inside TCP's own functions. Such a call would
 * read past the ring. There are two ways to know that none is: none was when sk_prot
 * became ours (END_RX_KNOWN), or the current call is the only one on the socket's file
 * (caller.c). Otherwise the peer sends by TCP, and the next reader tries again. The ring is
 * not used either while the reader is the kernel. The socket is locked, and no reader has its
 * turn.
 */
void sks_rx_mark_ready(struct sock *sk, struct pair_end *end);

/* Takes @n bytes off the ring and wakes a writer that waits for the space. */
void sks_rx_consume(struct sock *sk, struct pair_end *end, u32 n);

/* Waits until no reader has a turn (rx.c), and no task disconnects the socket. Returns live_end().
 * May drop the lock.
 */
struct pair_end *sks_rx_turn_wait(struct sock *sk);

/* In place of a number of bytes: as many as TCP wakes a reader for. That is SO_RCVLOWAT, or
 * fewer where the buffer has no room for more (tcp_epollin_ready()).
 */
#define SOCKSPLICE_RX_MARK	U32_MAX

/* True if the number of readable bytes is not @pos, or if the stream has ended. With
 * SOCKSPLICE_RX_MARK: if there are at least as many as that. Exact with the socket locked.
 */
bool sks_rx_has_more(const struct sock *sk, const struct pair_end *end, u32 pos);

/* Spins, then sleeps, until sks_rx_has_more(@pos); similar to sk_wait_data(). May also return
 * without that. Drops the lock: @end may be detached on return. -EPIPE after a disconnect.
 */
int sks_rx_wait(struct sock *sk, struct pair_end *end, long *timeo, u32 pos);

/* A poller has found nothing to read. Spins if its wait may be short. True if there is something
 * now. No lock, any task; under rcu_read_lock().
 */
bool sks_rx_poll_wait(const struct sock *sk, struct pair_end *end);

/* A reader takes what such a poller has waited for, which end->poll_began says. The socket is
 * locked.
 */
void sks_rx_poll_over(struct pair_end *end);

/* For a reader that finds nothing to read: what its call returns, or 1 if it is to wait. */
int sks_rx_nothing_left(struct sock *sk, long timeo);

/* The same for splice(2) at the urgent mark. It does not wait there, so a pending signal does
 * not end it.
 */
int sks_rx_nothing_left_at_mark(struct sock *sk, long timeo);

#endif /* SOCKSPLICE_RX_H */
