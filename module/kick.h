/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_RCVLOWAT across ring and TCP.
 *
 * When TCP receives data it wakes the reader only if what TCP holds reaches the
 * low-water mark (tcp_data_ready()); it does not know of bytes in the ring before
 * it, nor of bytes that a sleeping reader has taken from the ring already. So
 * who sends by TCP to a reader with such a mark, or with bytes in its ring, has the
 * reader look again: at once if some have arrived, and every few jiffies if more have,
 * until all have been acknowledged. The same for who appends to a ring behind such bytes,
 * and for who polls with a mark that was not there when they were sent. Nobody is woken
 * for what TCP has told of itself: it would be an edge more than TCP's.
 */
#ifndef SOCKSPLICE_KICK_H
#define SOCKSPLICE_KICK_H

#include <linux/types.h>

struct socksplice_chan;
struct sock;

/* How far the TCP of the end @peer has received; to be asked before its peer sends by TCP. */
u32 socksplice_kick_before(const struct socksplice_chan *peer);

/* @c, which has a peer and is held, has sent by TCP; @before: see above. */
void socksplice_kick_sent(struct socksplice_chan *c, u32 before);

/* @c, whose socket is locked, has appended to its ring behind what is in flight, and is about
 * to wake the reader.
 */
void socksplice_kick_appended(struct socksplice_chan *c);

/* The reader of what @c sends is about to wait for its mark, in poll or asleep; call it
 * before it is known that there is less. Under RCU, or with a reference on @c.
 */
void socksplice_kick_poller(struct socksplice_chan *c);

/* @sk's mark has been set; @sk is locked. Tells who waits, as TCP just has of its own bytes. Under
 * RCU.
 */
void socksplice_kick_marked(struct sock *sk);

/* @c, which has a peer and whose socket is locked, is about to be detached: what it sends
 * from now on is not known here. Its reader's un-pairing (drop.c) looks at it.
 */
void socksplice_kick_leave(struct socksplice_chan *c);

/* How far @sk's TCP has received. @told: whether TCP has told of all that itself, having as
 * many as the mark, or the end of the stream. Under RCU.
 */
u32 socksplice_kick_received(const struct sock *sk, bool *told);

/* No socket is attached. */
void socksplice_kick_exit(void);

#endif /* SOCKSPLICE_KICK_H */
