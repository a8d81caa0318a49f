// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "core/params.h"
#include "core/stats.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/pairs.h"
#include "upkeep/probe.h"

static void probe_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(probe, probe_work);

/* probe_work() only. */
static struct pairs_batch batch;
static unsigned long interval = HZ;	/* between two probes; at least a second, because peers
					 * answer at most two in that time
					 */
static unsigned long patience;		/* time that the first unanswered probe is given */
static unsigned long round_over;	/* jiffies at the end of the last round */

/* One interval may pass before the first probe is sent, and one before it is judged. */
static void set_times(void)
{
	unsigned long timeout = READ_ONCE(sks_path_timeout) * HZ;

	interval = max(timeout / 5, (unsigned long)HZ);
	patience = timeout - 2 * interval;
}

/* Sends the ACK that asks for an answer. The socket's spinlock is held and no task owns the
 * socket, so nothing else sends. So snd_nxt may be lowered for the call.
 */
static void send_probe(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 snd_nxt = tp->snd_nxt;

	WRITE_ONCE(tp->snd_nxt, tp->snd_una - 1);
	__tcp_send_ack(sk, tp->rcv_nxt, 0);
	WRITE_ONCE(tp->snd_nxt, snd_nxt);
	sks_stat_inc(SOCKSPLICE_STAT_probes_sent);
}

static bool may_probe(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	/* With data in flight TCP finds out by itself, and the peer's answer would count among its
	 * duplicate ACKs. If TCP owes an ACK, it would take that for sent with the probe. But the
	 * peer reads nothing of a segment that old.
	 */
	return sks_path_asks(sk) && !inet_csk_ack_scheduled(sk) && !tp->compressed_ack &&
	       !tp->packets_out && tp->write_seq == tp->snd_una && !tp->repair;
}

static u64 both_rings(const struct pair_end *end, const struct pair_end *peer)
{
	return READ_ONCE(end->ring_bytes) + READ_ONCE(peer->ring_bytes);
}

/* Reads without the socket's lock, which its owner may hold for long. */
static bool is_answered(const struct pair_end *end)
{
	const struct sock *sk;
	bool answered;

	rcu_read_lock();
	sk = rcu_dereference(end->sk);
	answered = !sk || READ_ONCE(tcp_sk(sk)->rcv_tstamp) != end->probe_tstamp;
	rcu_read_unlock();
	return answered;
}

static void probe_send(struct pair_end *end)
{
	struct sock *sk = sks_end_trylock(end);
	const struct tcp_sock *tp;

	if (IS_ERR_OR_NULL(sk))
		return;		/* busy: the next round tries again */
	tp = tcp_sk(sk);
	/* A packet that came within half an interval shows that the path works. */
	if (may_probe(sk) && tcp_jiffies32 - tp->rcv_tstamp >= interval / 2) {
		if (!end->probe_pending) {
			end->probe_tstamp = tp->rcv_tstamp;
			end->probe_since = jiffies;
			end->probe_pending = true;
		}
		send_probe(sk);
	}
	sks_end_unlock(sk);
}

static void probe_end(struct pair_end *end, struct pair_end *peer)
{
	u64 bytes = both_rings(end, peer);
	bool active = bytes != end->probe_bytes;

	end->probe_bytes = bytes;
	if (end->probe_pending && is_answered(end))
		end->probe_pending = false;
	if (test_bit(END_DROPPED, &end->flags) || (!active && !end->probe_pending))
		return;
	if (end->probe_pending && time_after_eq(jiffies, end->probe_since + patience)) {
		end->probe_pending = false;
		sks_stat_inc(SOCKSPLICE_STAT_probes_lost);
		sks_unpair_end(end, "path");
		return;
	}
	probe_send(end);
}

/* False for idle pairs, for which probe_end() would do nothing. */
static bool is_used(struct pair_end *a, struct pair_end *b)
{
	u64 bytes = both_rings(a, b);

	return bytes != a->probe_bytes || a->probe_pending || bytes != b->probe_bytes ||
	       b->probe_pending;
}

static void probe_both(struct pair_end *a, struct pair_end *b)
{
	probe_end(a, b);
	probe_end(b, a);
}

static void probe_work(struct work_struct *work)
{
	unsigned long now = jiffies;

	set_times();
	if (time_after_eq(now, round_over + interval)) {
		sks_pairs_each(&batch, is_used, probe_both);
		now = round_over = jiffies;
	}
	/* Looks once a second whether path_timeout is lower now. The next new pair starts the work
	 * again.
	 */
	if (sks_pairs_live())
		schedule_delayed_work(&probe, min(round_over + interval - now, (unsigned long)HZ));
}

void sks_probe_start(void)
{
	schedule_delayed_work(&probe, HZ);
}

void sks_probe_exit(void)
{
	cancel_delayed_work_sync(&probe);
}
