/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Splices (SO_SPLICE) whose source or sink is paired: the ring stays.
 *
 * The mover is one more reader of a paired source: under the socket's lock it takes, as
 * rx.c has it, TCP's bytes up to the ring, the ring's, TCP's from there on. The ring's are
 * copied to the sink once, from where they lie, and consumed only as far as the sink took
 * them. Into a paired sink it writes as who sends with MSG_DONTWAIT: into the ring, and
 * by TCP when that is full, whose write_space has the mover come back.
 *
 * Who appends to the ring of a source queues the mover instead of waking the reader. He
 * has no lock of the source's; he finds the splice by end->guest and endpoint->out under RCU:
 *
 *	append, smp_mb, endpoint->out		who appends
 *	endpoint->out = NULL, smp_mb, wake all	who ends the splice
 *
 * Either he sees that the splice has ended and wakes the readers himself, or those whom
 * its end wakes find his bytes.
 */
#ifndef SOCKSPLICE_LEG_H
#define SOCKSPLICE_LEG_H

#include <linux/bvec.h>
#include <linux/socket.h>
#include <linux/types.h>

struct mem_cgroup;
struct sock;
struct pair_end;

/* Of a source, which is locked, paired or not. */

/* The mover is about to look: false while another reader is in the middle of a read, with
 * the lock dropped. From then on the peer may use the ring.
 */
bool sks_paired_io_enter(struct sock *sk);

/* True if the ring's bytes stand next: *@limit is cut to how many. Else it is cut to how
 * many of TCP's stand before those.
 */
bool sks_paired_io_cap(const struct sock *sk, u32 *limit);

/* Where the ring's next @limit bytes lie, at most @max pieces; they stay until
 * sks_paired_io_ring_done(). Returns the number of pieces, and of bytes in *@len.
 */
unsigned int sks_paired_io_fill(const struct sock *sk, struct bio_vec *bv, unsigned int max,
				u32 limit, u32 *len);

/* Takes @n bytes off the ring, or off TCP's queue. */
void sks_paired_io_ring_done(struct sock *sk, u32 n);
void sks_paired_io_tcp_done(struct sock *sk, u32 n);

/* Unread bytes that the ring holds within the reader's reach. */
u32 sks_paired_io_unread(const struct sock *sk);

/* Of a sink, which is locked: somebody's message is half-way in its ring, try later. */
bool sks_paired_io_must_wait(struct sock *sk);

/* As tcp_sendmsg_locked(), with MSG_DONTWAIT, by the sink's ring if it has one; @memcg
 * pays for that.
 */
int sks_paired_io_send(struct sock *sk, struct msghdr *msg, size_t len,
		       struct mem_cgroup *memcg);

#endif /* SOCKSPLICE_LEG_H */
