/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What went by ring, in the counters that TCP keeps for a socket.
 */
#ifndef SOCKSPLICE_TOTALS_H
#define SOCKSPLICE_TOTALS_H

#include <linux/tcp.h>

struct pair_end;
struct sock;

/* Adds to @info, which tcp_get_info() has just filled, what went by the ring of @end and by that of
 * its peer. Bytes in a ring count as received, and so as acknowledged. A message counts as a
 * segment. The socket of @end is locked, and @end is live.
 */
void sks_totals_add(const struct pair_end *end, struct tcp_info *info);

/* Adds the same to what TCP itself counts of @sk, as its end is about to be detached. TCP answers
 * from then on, and no counter goes back. The times stay TCP's, because it restarts from idleness
 * by them. A few of its rules read the counters: it bounds the age of ACKs by bytes_acked, and
 * pacing begins after ten segments of data. They act as they would if those bytes had gone by TCP.
 * The socket is locked.
 */
void sks_totals_keep(struct sock *sk, const struct pair_end *end);

#endif /* SOCKSPLICE_TOTALS_H */
