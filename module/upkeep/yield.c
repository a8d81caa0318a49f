// SPDX-License-Identifier: GPL-2.0
#include <linux/etherdevice.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/workqueue.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "compat/ptype.h"
#include "core/throttle.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/pairs.h"
#include "upkeep/yield.h"

#define TAP_INTERVAL	HZ

/* Most packet sockets of a namespace whose filters one search runs. The search also runs during a
 * handshake, so it is short. A namespace with more packet sockets counts as captured.
 */
#define TAP_SOCKETS	64

/* Most instructions that those filters may have together. */
#define TAP_INSNS	4096

/* Most devices, and most entries of their lists, that one search goes through. */
#define TAP_BUDGET	4096

static void yield_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(yield_dwork, yield_work);

/* yield_work() only. */
static struct pairs_batch batch;
static bool any;		/* this pass has met a pair that yields */

/* Makes a packet of the connection without data, sent by the end @id or to it. It looks as a
 * packet socket would see it, behind an Ethernet header. NULL if there is no memory.
 */
static struct sk_buff *make_packet(struct net *net, const struct ident *id, bool sent)
{
	const struct in6_addr *from = sent ? &id->saddr : &id->daddr;
	const struct in6_addr *to = sent ? &id->daddr : &id->saddr;
	const bool v4 = ipv6_addr_v4mapped(from) && ipv6_addr_v4mapped(to);
	struct sk_buff *skb = alloc_skb(ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct tcphdr),
					GFP_ATOMIC | __GFP_NOWARN);
	struct tcphdr *th;

	if (!skb)
		return NULL;
	skb->protocol = htons(v4 ? ETH_P_IP : ETH_P_IPV6);
	skb->dev = net->loopback_dev;
	skb->pkt_type = sent ? PACKET_OUTGOING : PACKET_HOST;
	skb_reset_mac_header(skb);
	((struct ethhdr *)skb_put_zero(skb, ETH_HLEN))->h_proto = skb->protocol;

	skb_set_network_header(skb, ETH_HLEN);
	if (v4) {
		struct iphdr *ip = skb_put_zero(skb, sizeof(*ip));

		ip->version = 4;
		ip->ihl = sizeof(*ip) / 4;
		ip->tot_len = htons(sizeof(*ip) + sizeof(*th));
		ip->frag_off = htons(IP_DF);
		ip->ttl = IPDEFTTL;
		ip->protocol = IPPROTO_TCP;
		ip->saddr = from->s6_addr32[3];
		ip->daddr = to->s6_addr32[3];
	} else {
		struct ipv6hdr *ip = skb_put_zero(skb, sizeof(*ip));

		ip->version = 6;
		ip->payload_len = htons(sizeof(*th));
		ip->nexthdr = IPPROTO_TCP;
		ip->hop_limit = IPDEFTTL;
		ip->saddr = *from;
		ip->daddr = *to;
	}
	skb_set_transport_header(skb, skb->len);
	th = skb_put_zero(skb, sizeof(*th));
	th->source = htons(sent ? id->sport : id->dport);
	th->dest = htons(sent ? id->dport : id->sport);
	th->doff = sizeof(*th) / 4;
	th->ack = 1;
	th->psh = 1;
	th->window = htons(U16_MAX);
	return skb;
}

/* True if the filter of @sk passes the packet. Under RCU. Follows run_filter() of
 * net/packet/af_packet.c. An eBPF program is not run, and passes.
 */
static bool filter_passes(const struct sock *sk, struct sk_buff *skb)
{
	const struct sk_filter *filter = rcu_dereference(sk->sk_filter);
	const bool cooked = sk->sk_type == SOCK_DGRAM;
	bool passes;

	if (!filter || !bpf_prog_was_classic(filter->prog))
		return true;
	if (cooked)
		skb_pull(skb, ETH_HLEN);
	passes = bpf_prog_run_clear_cb(filter->prog, skb);
	if (cooked)
		skb_push(skb, ETH_HLEN);
	return passes;
}

/* The most instructions that filter_passes() runs for @sk. Under RCU. */
static unsigned int filter_length(const struct sock *sk)
{
	const struct sk_filter *filter = rcu_dereference(sk->sk_filter);

	return filter && bpf_prog_was_classic(filter->prog) ? filter->prog->len : 0;
}

/* True if @sk is on the list, or the search is too long. A fanout group registers one entry for
 * all its sockets.
 */
static bool list_has(const struct list_head *list, const struct net *net, const struct sock *sk,
		     int *budget)
{
	const struct packet_type *pt;

	if (--*budget < 0)
		return true;
	list_for_each_entry_rcu(pt, list,
				list) if (--*budget < 0 || pt->af_packet_priv == sk ||
					  (pt->id_match && pt->af_packet_net == net)) return true;
	return false;
}

/* True if @sk receives every protocol now, or if the search is too long. Under RCU. */
static bool gets_all(struct net *net, const struct sock *sk, int *budget)
{
	const struct net_device *dev;

	if (list_has(compat_ptype_all(net), net, sk, budget))
		return true;
	for_each_netdev_rcu(net, dev) if (list_has(&dev->ptype_all, net, sk, budget)) return true;
	return false;
}

bool sks_yield_sees(struct net *net, const struct ident *id)
{
	struct sk_buff *sent, *received;
	int budget = TAP_BUDGET;
	unsigned int n = 0, insns = 0;
	struct sock *sk;
	bool sees;

	if (hlist_empty(&net->packet.sklist))
		return false;
	sent = make_packet(net, id, true);
	received = make_packet(net, id, false);
	sees = !sent || !received;
	rcu_read_lock();
	/* Run the filter first: most filters pass no TCP, and a namespace may have many devices. */
	sk_for_each_rcu(sk, &net->packet.sklist)
	{
		insns += filter_length(sk);
		if (++n > TAP_SOCKETS || insns > TAP_INSNS)
			sees = true;
		if (sees)
			break;
		sees = (filter_passes(sk, sent) || filter_passes(sk, received)) &&
		       gets_all(net, sk, &budget);
	}
	rcu_read_unlock();
	consume_skb(sent);
	consume_skb(received);
	return sees;
}

/* A live socket keeps its namespace alive. A socket that is gone sends no packets. */
static bool end_is_seen(const struct pair_end *end)
{
	struct sock *sk;
	bool seen;

	rcu_read_lock();
	sk = rcu_dereference(end->sk);
	seen = sk && sks_yield_sees(sock_net(sk), &end->ident);
	rcu_read_unlock();
	return seen;
}

static bool yields(struct pair_end *a, struct pair_end *b)
{
	const bool wanted = (test_bit(END_YIELDS, &a->flags) || test_bit(END_YIELDS, &b->flags)) &&
			    !test_bit(END_DROPPED, &a->flags);

	any |= wanted;
	return wanted;
}

/* Un-pairs if two looks in a row saw a capture. One look is not enough: tcpdump's socket receives
 * everything until its filter is set.
 */
static void yield_if_seen(struct pair_end *a, struct pair_end *b)
{
	const bool seen = end_is_seen(a) || end_is_seen(b);

	if (seen && a->capture_seen)
		sks_unpair_end(a, "captured");
	a->capture_seen = seen;
}

static void yield_work(struct work_struct *work)
{
	const u64 began = ktime_get_ns();

	any = false;
	sks_pairs_each(&batch, yields, yield_if_seen);
	/* The next new pair that yields starts the work again. */
	if (any)
		schedule_delayed_work(&yield_dwork, sks_throttle(began, TAP_INTERVAL));
}

void sks_yield_start(void)
{
	schedule_delayed_work(&yield_dwork, TAP_INTERVAL);
}

void sks_yield_exit(void)
{
	cancel_delayed_work_sync(&yield_dwork);
}
