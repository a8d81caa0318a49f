// SPDX-License-Identifier: GPL-2.0
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <net/genetlink.h>

#include "compat/compat.h"
#include "core/ident.h"
#include "core/stats.h"
#include "ctl/netlink.h"
#include "ctl/notify.h"
#include "pair/end.h"
#include "pair/verdict.h"

/* Most events that wait, in the order of their numbers. An event that finds no room is lost. */
#define EVENTS_WAITING	4096

static void event_work(struct work_struct *work);
static DECLARE_WORK(event_sender, event_work);

static DEFINE_SPINLOCK(event_lock);
static u64 event_seq;			/* event_lock protects this and the next two */
static bool event_stopped;
static struct sk_buff_head events = {
					/* event_lock protects it, not its own lock */
	.next = (struct sk_buff *)&events,
	.prev = (struct sk_buff *)&events,
};

static int event_fill(struct sk_buff *skb, enum socksplice_event event, const char *reason)
{
	if (nla_put_u8(skb, SOCKSPLICE_A_EVENT, event) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_EVENT_TIME, ktime_get_real_ns(),
			      SOCKSPLICE_A_PAD) ||
	    (reason && nla_put_string(skb, SOCKSPLICE_A_EVENT_REASON, reason)))
		return -EMSGSIZE;
	return 0;
}

static int fill_end(struct sk_buff *skb, const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end);

	if (!peer)
		return sks_netlink_put_end(skb, end);
	if (test_bit(END_ACTIVE, &end->flags))
		return sks_netlink_put_pair(skb, end, peer);
	return sks_netlink_put_pair(skb, peer, end);
}

/* Gives the event a number and queues it. If @skb is NULL or was not filled (@err), the event
 * still takes a number. So listeners see that one is missing.
 */
static void event_send(struct sk_buff *skb, void *hdr, int err)
{
	spin_lock_bh(&event_lock);
	event_seq++;
	if (!err)
		err = nla_put_u64_64bit(skb, SOCKSPLICE_A_EVENT_SEQ, event_seq, SOCKSPLICE_A_PAD);
	if (!err && (event_stopped || skb_queue_len(&events) >= EVENTS_WAITING))
		err = -ENOBUFS;
	if (!err) {
		genlmsg_end(skb, hdr);
		__skb_queue_tail(&events, skb);
		/* unbound: a work that makes events on this CPU must not delay it */
		queue_work(COMPAT_UNBOUND_WQ, &event_sender);
	}
	spin_unlock_bh(&event_lock);
	if (err) {
		nlmsg_free(skb);
		sks_stat_inc(SOCKSPLICE_STAT_events_lost);
	}
}

static void event_work(struct work_struct *work)
{
	struct sk_buff *skb;

	do {
		spin_lock_bh(&event_lock);
		skb = __skb_dequeue(&events);
		spin_unlock_bh(&event_lock);
		if (skb)
			sks_netlink_event_send(skb);
		cond_resched();
	} while (skb);
}

static void notify_declined(const char *reason, const struct sock *sk)
{
	struct ident id;
	struct sk_buff *skb;
	void *hdr = NULL;
	int err;

	if (!sks_netlink_has_listeners())
		return;
	sks_ident_addresses(sk, &id);
	skb = sks_netlink_event_begin(&hdr);
	err = skb ? event_fill(skb, SOCKSPLICE_EVENT_DECLINED, reason) : -ENOMEM;
	if (!err)
		err = sks_netlink_put_sock(skb, sk, &id, SOCKSPLICE_A_PAIR_END);
	event_send(skb, hdr, err);
}

static void notify_event(enum socksplice_event event, const char *reason,
			 const struct pair_end *end)
{
	struct sk_buff *skb;
	void *hdr = NULL;
	int err;

	if (!sks_netlink_has_listeners())
		return;
	skb = sks_netlink_event_begin(&hdr);
	err = skb ? event_fill(skb, event, reason) : -ENOMEM;
	if (!err)
		err = fill_end(skb, end);
	event_send(skb, hdr, err);
}

static const struct verdict_sink sink = {
	.event		= notify_event,
	.declined	= notify_declined,
};

void sks_notify_init(void)
{
	sks_verdict_register(&sink);
}

void sks_notify_stop(void)
{
	spin_lock_bh(&event_lock);
	event_stopped = true;
	spin_unlock_bh(&event_lock);
	flush_work(&event_sender);
}
