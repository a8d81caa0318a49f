/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_MOVER_H
#define SOCKSPLICE_MOVER_H

#include "sosplice/splice.h"

/* The work function of a splice. */
void sks_mover_work(struct work_struct *work);

/* The first rounds, run by the caller of setsockopt(), which holds @s. They end when what was
 * queued has moved, or when the sink takes no more. If another task is in the way, the mover goes
 * on, and sets SPLICE_SETTLED when it is done.
 */
void sks_mover_begin(struct splice *s);

/* What tls.c shares with the rounds of TCP. */
struct batch;

/* The source, which is locked: whether the queue or the ring holds unread data; whether the splice
 * has moved all that it may; whether the mover may take data, @first: in its first round.
 */
bool sks_round_has_data(struct sock *sk);
bool sks_round_reached_limit(const struct splice *s);
bool sks_round_may_take(struct splice *s, bool first);

/* Takes @sent bytes, which the sink has sent, from the source's queue or its @ring, and counts
 * them. The second only counts them. The source is locked.
 */
void sks_round_settle(struct splice *s, u32 sent, bool ring);
void sks_round_count(struct splice *s, u32 sent);

/* Sets *@why to an error of a sink that lives on, for example an ICMP error with IP_RECVERR. False
 * if the sink is busy. The source is locked.
 */
bool sks_round_note_sink_error(struct splice *s, int *why);

/* The sink, which is locked: whether it still is the splice's; whether it is full and will report
 * when it has room.
 */
bool sks_round_sink_is_ours(const struct splice *s);
bool sks_round_sink_is_full(const struct splice *s);

/* Looks once, before the first byte, whether the splice closes a loop, and once more after a socket
 * was un-paired. s->src_id is set. Both sockets are locked.
 */
bool sks_round_closes_loop(struct splice *s);

/* Sends what it can of @b by a sink with TCP. An error other than a lack of room shows in
 * sink_is_dead(), or *@err is set. *@needs_retry: nothing is in flight, so no acknowledgment will
 * say that there is room. Both sockets are locked.
 */
u32 sks_round_sink_send(struct splice *s, struct batch *b, int *err, bool *needs_retry);

#endif /* SOCKSPLICE_MOVER_H */
