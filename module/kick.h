/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SO_RCVLOWAT across ring and TCP.
 *
 * When TCP receives data it wakes the reader only if what TCP holds reaches the
 * low-water mark (tcp_data_ready); it does not know of bytes in the ring before
 * it, nor of bytes that a sleeping reader has taken from the ring already. So
 * who sends by TCP to a reader with such a mark has the reader look again: at
 * once, and then every few jiffies when some have arrived, until all have been
 * acknowledged. The same for who appends to a ring behind such bytes, and for who
 * polls with a mark that was not there when they were sent.
 */
#ifndef SOCKSPLICE_KICK_H
#define SOCKSPLICE_KICK_H

struct socksplice_chan;
struct sock;

/* @c, whose socket @sk is locked, has just sent by TCP. */
void socksplice_kick_reader(struct sock *sk, struct socksplice_chan *c);

/* The reader of what @c sends is about to wait for its mark, in poll or asleep; call it
 * before it is known that there is less. Under RCU, or with a reference on @c.
 */
void socksplice_kick_poller(struct socksplice_chan *c);

/* No socket is attached. */
void socksplice_kick_exit(void);

#endif /* SOCKSPLICE_KICK_H */
