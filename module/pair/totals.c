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
	s32 idle;

	if (!READ_ONCE(end->ring_bytes))
		return tcp;
	/* The sender may append in a tick that is newer than the one read here. */
	idle = tcp_jiffies32 - READ_ONCE(end->ring_used_at);
	return min(tcp, jiffies_to_msecs(max(idle, 0)));
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
	info->tcpi_segs_in += msgs_received;
	info->tcpi_data_segs_in += msgs_received;
	info->tcpi_last_data_sent = idle_of(end, info->tcpi_last_data_sent);
	info->tcpi_last_data_recv = idle_of(peer, info->tcpi_last_data_recv);
}

static void keep(struct tcp_sock *tp, const struct pair_end *end, const struct pair_end *peer)
{
	const u64 sent = bytes_of(end), received = bytes_of(peer);
	const u32 msgs_sent = end->ring_msgs, msgs_received = READ_ONCE(peer->ring_msgs);

	WRITE_ONCE(tp->bytes_sent, tp->bytes_sent + sent);
	WRITE_ONCE(tp->bytes_acked, tp->bytes_acked + sent);
	WRITE_ONCE(tp->bytes_received, tp->bytes_received + received);
	WRITE_ONCE(tp->segs_out, tp->segs_out + msgs_sent);
	WRITE_ONCE(tp->data_segs_out, tp->data_segs_out + msgs_sent);
	WRITE_ONCE(tp->segs_in, tp->segs_in + msgs_received);
	WRITE_ONCE(tp->data_segs_in, tp->data_segs_in + msgs_received);
}

void sks_totals_keep(struct sock *sk, const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end);

	if (!peer)
		return;
	/* TCP counts segments that come in under the spinlock alone. */
	if (sock_owned_by_user_nocheck(sk)) {
		spin_lock_bh(&sk->sk_lock.slock);
		keep(tcp_sk(sk), end, peer);
		spin_unlock_bh(&sk->sk_lock.slock);
	} else {
		keep(tcp_sk(sk), end, peer);
	}
}
