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
static unsigned long interval = HZ;	/* between two probes, at least a second:
					 * peers answer at most two in that time
					 */
static unsigned long patience;		/* with the first that is not answered */

/* One interval may pass until the first probe, one until it is judged. */
static void set_times(void)
{
	unsigned long timeout = READ_ONCE(socksplice_path_timeout) * HZ;

	interval = max(timeout / 5, (unsigned long)HZ);
	patience = timeout - 2 * interval;
}

/* The ACK that asks for an answer. The socket's spinlock is held and nobody
 * owns it, so snd_nxt may be lowered for the call: nothing else sends.
 */
static void send_probe(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 snd_nxt = tp->snd_nxt;

	WRITE_ONCE(tp->snd_nxt, tp->snd_una - 1);
	__tcp_send_ack(sk, tp->rcv_nxt, 0);
	WRITE_ONCE(tp->snd_nxt, snd_nxt);
	socksplice_stat_inc(SOCKSPLICE_STAT_probes_sent);
}

static bool may_probe(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	/* With data in flight TCP finds out by itself, and our answer would
	 * count among its duplicate ACKs. Nor while an ACK is owed: TCP would take it for
	 * sent with the probe, and the peer reads nothing of a segment that old.
	 */
	return socksplice_path_asks(sk) &&
	       !inet_csk_ack_scheduled(sk) && !tp->compressed_ack &&
	       !tp->packets_out && tp->write_seq == tp->snd_una && !tp->repair;
}

static u64 both_rings(const struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	return READ_ONCE(c->ring_bytes) + READ_ONCE(peer->ring_bytes);
}

/* Without the socket's lock, which its owner may hold for long. */
static bool is_answered(const struct socksplice_chan *c)
{
	const struct sock *sk;
	bool answered;

	rcu_read_lock();
	sk = rcu_dereference(c->sk);
	answered = !sk || READ_ONCE(tcp_sk(sk)->rcv_tstamp) != c->probe_tstamp;
	rcu_read_unlock();
	return answered;
}

static void probe_send(struct socksplice_chan *c)
{
	struct sock *sk = socksplice_chan_trylock(c);
	const struct tcp_sock *tp;

	if (IS_ERR_OR_NULL(sk))
		return;		/* busy: the next round will do */
	tp = tcp_sk(sk);
	/* The path may just have shown that it works. */
	if (may_probe(sk) && tcp_jiffies32 - tp->rcv_tstamp >= interval / 2) {
		if (!c->probe_pending) {
			c->probe_tstamp = tp->rcv_tstamp;
			c->probe_since = jiffies;
			c->probe_pending = true;
		}
		send_probe(sk);
	}
	socksplice_chan_unlock(sk);
}

static void probe_end(struct socksplice_chan *c, struct socksplice_chan *peer)
{
	u64 bytes = both_rings(c, peer);
	bool active = bytes != c->probe_bytes;

	c->probe_bytes = bytes;
	if (c->probe_pending && is_answered(c))
		c->probe_pending = false;
	if (test_bit(CHAN_DROPPED, &c->flags) || (!active && !c->probe_pending))
		return;
	if (c->probe_pending && time_after_eq(jiffies, c->probe_since + patience)) {
		c->probe_pending = false;
		socksplice_stat_inc(SOCKSPLICE_STAT_probes_lost);
		socksplice_drop_chan(c, "path");
		return;
	}
	probe_send(c);
}

/* Not idle pairs, for which probe_end() would do nothing. */
static bool is_used(struct socksplice_chan *a, struct socksplice_chan *b)
{
	u64 bytes = both_rings(a, b);

	return bytes != a->probe_bytes || a->probe_pending ||
	       bytes != b->probe_bytes || b->probe_pending;
}

static void probe_both(struct socksplice_chan *a, struct socksplice_chan *b)
{
	probe_end(a, b);
	probe_end(b, a);
}

static void probe_work(struct work_struct *work)
{
	set_times();
	socksplice_pairs_each(&batch, is_used, probe_both);
	/* The next new pair starts it again. */
	if (socksplice_pairs_live())
		schedule_delayed_work(&probe, interval);
}

void socksplice_probe_start(void)
{
	schedule_delayed_work(&probe, HZ);
}

void socksplice_probe_exit(void)
{
	cancel_delayed_work_sync(&probe);
}
