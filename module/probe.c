// SPDX-License-Identifier: GPL-2.0
#include <linux/jiffies.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "chan.h"
#include "event.h"
#include "probe.h"
#include "stats.h"

#define PROBE_INTERVAL	HZ	/* peers answer at most two a second */
#define PROBE_MISSES	2

static void probe_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(probe, probe_work);

static struct pairs_batch batch;	/* probe_work() only */

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
	 * count among its duplicate ACKs.
	 */
	return ((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)) &&
	       !tp->packets_out && tp->write_seq == tp->snd_una && !tp->repair;
}

static u64 both_rings(const struct socksplice_chan *c, const struct socksplice_chan *peer)
{
	return READ_ONCE(c->ring_bytes) + READ_ONCE(peer->ring_bytes);
}

static void probe_end(struct socksplice_chan *c, struct socksplice_chan *peer)
{
	u64 bytes = both_rings(c, peer);
	bool active = bytes != c->probe_bytes;
	struct tcp_sock *tp;
	struct sock *sk;

	c->probe_bytes = bytes;
	if (!active && !c->probe_pending)
		return;

	sk = socksplice_chan_trylock(c);
	if (IS_ERR_OR_NULL(sk))
		return;		/* busy: the next round will do */
	tp = tcp_sk(sk);
	if (c->probe_pending) {
		if (tp->rcv_tstamp != c->probe_tstamp) {
			c->probe_pending = false;
			c->probe_missed = 0;
		} else if (++c->probe_missed >= PROBE_MISSES) {
			c->probe_pending = false;
			set_bit(CHAN_PATH_LOST, &c->flags);
			set_bit(CHAN_PATH_LOST, &peer->flags);
			socksplice_event_chan(SOCKSPLICE_STAT_probes_lost, "path", c);
			goto unlock;
		}
	}
	if (test_bit(CHAN_PATH_LOST, &c->flags) || !may_probe(sk))
		goto unlock;
	if (tcp_jiffies32 - tp->rcv_tstamp < PROBE_INTERVAL / 2)
		goto unlock;	/* the path has just shown that it works */
	c->probe_tstamp = tp->rcv_tstamp;
	c->probe_pending = true;
	send_probe(sk);
unlock:
	socksplice_chan_unlock(sk);
}

/* Not idle pairs, for which probe_end() would do nothing: each batch begins with a
 * walk over all that came before.
 */
static bool is_used(const struct socksplice_chan *a, const struct socksplice_chan *b)
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
	socksplice_pairs_each(&batch, is_used, probe_both);
	/* Who makes the first pair starts the work itself. */
	if (socksplice_pairs_live())
		schedule_delayed_work(&probe, PROBE_INTERVAL);
}

void socksplice_probe_start(void)
{
	schedule_delayed_work(&probe, PROBE_INTERVAL);
}

void socksplice_probe_exit(void)
{
	cancel_delayed_work_sync(&probe);
}
