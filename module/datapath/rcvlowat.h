/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_RCVLOWAT across ring and TCP.
 *
 * When data arrive, TCP wakes the reader only if TCP's own bytes reach the low-water mark
 * (tcp_data_ready()). TCP does not know of bytes in the ring before them, nor of bytes that a
 * sleeping reader has already taken from the ring. So in three cases this code makes the reader
 * look again. It does so at once if data have arrived, and every few jiffies while more arrive,
 * until all are acknowledged:
 *   - a sender sends by TCP, and the reader's mark is above one or its ring holds bytes;
 *   - a sender appends to the ring behind bytes in flight by TCP;
 *   - a reader polls with a mark that it did not have when the bytes were sent.
 *
 * It wakes no reader for bytes for which TCP has notified it. That would be one edge more than on
 * TCP.
 */
#ifndef SOCKSPLICE_RCVLOWAT_H
#define SOCKSPLICE_RCVLOWAT_H

#include <linux/types.h>

struct pair_end;
struct sock;

/* The socket of @end has sent by TCP. @before: sks_look_rcv_nxt() before that. @end has a peer,
 * and is held.
 */
void sks_rcvlowat_sent(struct pair_end *end, u32 before);

/* The socket of @end, which is locked, has appended to its ring behind bytes in flight by TCP, and
 * is about to wake the reader.
 */
void sks_rcvlowat_appended(struct pair_end *end);

/* The reader of what @end sends is about to wait for its mark, in poll or asleep. Called before
 * the look that finds too few bytes. Under RCU, or with a reference on @end.
 */
void sks_rcvlowat_poller(struct pair_end *end);

/* The mark of @sk, which is locked, has been set. Wakes the waiters if ring and TCP together reach
 * it. TCP has just done so for its own bytes. Under RCU.
 */
void sks_rcvlowat_marked(struct sock *sk);

/* Ends the work. The caller knows that no socket is attached any more. May sleep. */
void sks_rcvlowat_exit(void);

#endif /* SOCKSPLICE_RCVLOWAT_H */
