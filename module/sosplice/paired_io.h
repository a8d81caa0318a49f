/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Splices (SO_SPLICE) whose source or sink is paired. The pair keeps its ring.
 *
 * The mover is one more reader of a paired source. Under the socket's lock it takes TCP's bytes up
 * to the ring, then the ring's, then TCP's from there on, as rx.c does. It copies the ring's bytes
 * to the sink once, from where they lie, and consumes only what the sink took. It writes into a
 * paired sink like a sender with MSG_DONTWAIT: into the ring, and by TCP when the ring is full.
 * Then the sink's write_space queues the mover again.
 *
 * A sender that appends to the ring of a source queues the mover instead of waking the reader. The
 * sender does not have the source's lock. It finds the splice by end->guest and endpoint->out
 * under RCU:
 *
 *	append, smp_mb, endpoint->out		the sender
 *	endpoint->out = NULL, smp_mb, wake all	the task that ends the splice
 *
 * Either the sender sees that the splice has ended, and wakes the readers itself. Or the readers
 * that the end of the splice wakes find the sender's bytes.
 */
#ifndef SOCKSPLICE_PAIRED_IO_H
#define SOCKSPLICE_PAIRED_IO_H

#include <linux/bvec.h>
#include <linux/socket.h>
#include <linux/types.h>

struct mem_cgroup;
struct sock;
struct pair_end;

/* The functions for a source, which is locked, paired or not. */

/* The mover is about to look. False while another reader is in the middle of a read, with the lock
 * dropped. If true, the peer may use the ring from then on.
 */
bool sks_paired_io_enter(struct sock *sk);

/* True if the ring's bytes come next, and *@limit is cut to their number. Otherwise *@limit is cut
 * to the number of TCP's bytes before them.
 */
bool sks_paired_io_cap(const struct sock *sk, u32 *limit);

/* Fills @bv with the pieces, at most @max, in which the ring's next @limit bytes lie. They stay
 * until sks_paired_io_ring_done(). Returns the number of pieces, and that of bytes in *@len.
 */
unsigned int sks_paired_io_fill(const struct sock *sk, struct bio_vec *bv, unsigned int max,
				u32 limit, u32 *len);

/* Takes @n bytes off the ring, or off TCP's queue. */
void sks_paired_io_ring_done(struct sock *sk, u32 n);
void sks_paired_io_tcp_done(struct sock *sk, u32 n);

/* Unread bytes in the ring that the reader can reach. */
u32 sks_paired_io_unread(const struct sock *sk);

/* For a sink, which is locked. True if another task's message is half-way in its ring, or a task
 * disconnects it: the mover has to try later.
 */
bool sks_paired_io_must_wait(struct sock *sk);

/* Like tcp_sendmsg_locked() with MSG_DONTWAIT, by the sink's ring if it has one. @memcg pays for
 * the ring's pages.
 */
int sks_paired_io_send(struct sock *sk, struct msghdr *msg, size_t len, struct mem_cgroup *memcg);

#endif /* SOCKSPLICE_PAIRED_IO_H */
