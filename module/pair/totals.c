// SPDX-License-Identifier: GPL-2.0
#include <net/tcp.h>

#include "pair/end.h"
#include "pair/totals.h"

/* The bytes that the ring of @end has carried. The sender counts a part just after its bytes can be
 * read, so the ring's own cursor knows of more. It began at 0, as the counter did.
 */
static u64 bytes_of(const struct pair_end *end)
{
	const u64 counted = READ_ONCE(end->ring_bytes);

	smp_rmb();	/* a cursor that is not older */
	return counted + (u32)(READ_ONCE(end->ring.head) - (u32)counted);
}

/* The milliseconds since the last append to the ring of @end, if that is less than @tcp. */
static u32 idle_of(const struct pair_end *end, u32 tcp)
{
	if (!READ_ONCE(end->ring_bytes))
		return tcp;
	return min(tcp, jiffies_to_msecs(tcp_jiffies32 - READ_ONCE(end->ring_used_at)));
}

void sks_totals_add(const struct pair_end *end, struct tcp_info *info)
{
	const struct pair_end *peer = sks_end_peer(end);
	const u64 sent = bytes_of(end), msgs_sent = READ_ONCE(end->ring_msgs);
	const u64 received = bytes_of(peer), msgs_received = READ_ONCE(peer->ring_msgs);

	info->tcpi_bytes_sent += sent;
	info->tcpi_bytes_acked += sent;
	info->tcpi_bytes_received += received;
	info->tcpi_segs_out += msgs_sent;
	info->tcpi_data_segs_out += msgs_sent;
	info->tcpi_delivered += msgs_sent;
	info->tcpi_segs_in += msgs_received;
	info->tcpi_data_segs_in += msgs_received;
	info->tcpi_last_data_sent = idle_of(end, info->tcpi_last_data_sent);
	info->tcpi_last_data_recv = idle_of(peer, info->tcpi_last_data_recv);
}

void sks_totals_keep(struct sock *sk, const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end);
	struct tcp_sock *tp = tcp_sk(sk);
	u64 sent, received;

	if (!peer)
		return;
	sent = bytes_of(end);
	received = bytes_of(peer);
	tp->bytes_sent += sent;
	tp->bytes_acked += sent;
	tp->bytes_received += received;
	tp->segs_out += end->ring_msgs;
	tp->data_segs_out += end->ring_msgs;
	tp->segs_in += READ_ONCE(peer->ring_msgs);
	tp->data_segs_in += READ_ONCE(peer->ring_msgs);
}
