// SPDX-License-Identifier: GPL-2.0
/*
 * The generic-netlink family. uapi/socksplice.h documents its commands.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/module.h>
#include <net/genetlink.h>

#include "admit/enroll.h"
#include "admit/kfunc.h"
#include "admit/match.h"
#include "core/hook.h"
#include "core/ident.h"
#include "core/params.h"
#include "core/stats.h"
#include "ctl/netlink.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/memory.h"
#include "pair/pairs.h"
#include "sockmap/psock.h"
#include "sosplice/begin.h"
#include "sosplice/end_all.h"
#include "sosplice/sockopt.h"
#include "sosplice/sockopt_bsd.h"
#include "sosplice/splice.h"

#define EVENT_SIZE	1024	/* bytes of attributes; two ends take about 600 */

static struct genl_family family;

enum { GROUP_EVENTS };

static const struct genl_multicast_group groups[] = {
	[GROUP_EVENTS] = {
		.name	= SOCKSPLICE_GENL_EVENTS,
		.flags	= GENL_MCAST_CAP_NET_ADMIN,
	},
};

/* True if the process that opened the requesting socket had CAP_NET_ADMIN then. Commands that
 * only read ask for this. GENL_ADMIN_PERM would also ask for the sender's present capability.
 */
static bool opener_is_admin(const struct sk_buff *request)
{
	const struct sock *sk = NETLINK_CB(request).sk;

	return file_ns_capable(sk->sk_socket->file, &init_user_ns, CAP_NET_ADMIN);
}

/* The other commands read and change things of every namespace. So they are refused outside
 * the initial network namespace, even to root of a container that shares its user namespace.
 */
static int from_host(const struct net *net)
{
	return net_eq(net, &init_net) ? 0 : -EACCES;
}

static int host_pre_doit(const struct genl_split_ops *op, struct sk_buff *skb,
			 struct genl_info *info)
{
	return op->flags & GENL_ADMIN_PERM ? from_host(genl_info_net(info)) : 0;
}

static int host_start(struct netlink_callback *cb)
{
	return from_host(sock_net(cb->skb->sk));
}

static int status_fill(struct sk_buff *skb, const struct genl_info *info)
{
	if (nla_put_string(skb, SOCKSPLICE_A_STATUS_VERSION, THIS_MODULE->version) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_BTF, sks_kfunc_has_btf()) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_SOCKOPS, sks_kfunc_has_sockops()) ||
	    nla_put_s32(skb, SOCKSPLICE_A_STATUS_HOOK, sks_hook_status()) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_PAIRING, READ_ONCE(sks_pairing)) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_SHADOW, READ_ONCE(sks_shadow)) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_ENROLL_ALL, sks_kfunc_enrolls_all()) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_SPLICE, sks_psock_enabled()) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_SPLICE_NATIVE, sks_psock_is_native()) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_SO_SPLICE, READ_ONCE(sks_splice_enabled)) ||
	    nla_put_s32(skb, SOCKSPLICE_A_STATUS_LITERAL, sks_sockopt_bsd_status()) ||
	    nla_put_u32(skb, SOCKSPLICE_A_STATUS_RING_SIZE, READ_ONCE(sks_ring_size)) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_STATUS_MEMORY_CAP, READ_ONCE(sks_memory_cap),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u8(skb, SOCKSPLICE_A_STATUS_EVENTS, net_eq(genl_info_net(info), &init_net)))
		return -EMSGSIZE;
	return 0;
}

static int status_get(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *msg;
	void *hdr;

	if (!opener_is_admin(skb))
		return -EPERM;
	msg = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!msg)
		return -ENOMEM;
	hdr = genlmsg_put_reply(msg, info, &family, 0, SOCKSPLICE_CMD_STATUS_GET);
	if (!hdr || status_fill(msg, info)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, hdr);
	return genlmsg_reply(msg, info);
}

static int status_set(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *pairing = info->attrs[SOCKSPLICE_A_STATUS_PAIRING];
	const struct nlattr *splice = info->attrs[SOCKSPLICE_A_STATUS_SPLICE];
	const struct nlattr *so_splice = info->attrs[SOCKSPLICE_A_STATUS_SO_SPLICE];
	const struct nlattr *cap = info->attrs[SOCKSPLICE_A_STATUS_MEMORY_CAP];

	if (!pairing && !splice && !so_splice && !cap) {
		NL_SET_ERR_MSG(info->extack, "nothing to set");
		return -EINVAL;
	}
	if (splice && nla_get_u8(splice) && sks_psock_status() && !sks_psock_enabled()) {
		NL_SET_ERR_MSG(info->extack, "splice(2) is not hooked");
		return -EOPNOTSUPP;
	}
	if (pairing)
		WRITE_ONCE(sks_pairing, nla_get_u8(pairing));
	if (splice)
		sks_psock_enable(nla_get_u8(splice));
	if (so_splice)
		sks_sockopt_enable(nla_get_u8(so_splice));
	if (cap)
		WRITE_ONCE(sks_memory_cap, nla_get_u64(cap));
	return 0;
}

static int pair_drop(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *id = info->attrs[SOCKSPLICE_A_PAIR_ID];
	int err;

	if (!id) {
		sks_match_flush();
		sks_unpair_all();
		return 0;
	}
	err = sks_unpair_pair(nla_get_u32(id));
	if (err)
		NL_SET_ERR_MSG(info->extack, "no such pair");
	return err;
}

static u64 gauge_pairs_live(void)
{
	return sks_pairs_live();
}

static u64 gauge_so_splices_live(void)
{
	return sks_splices_live();
}

/* Values that `stats show` prints behind the counters. */
static const struct {
	const char *name;
	u64 (*get)(void);
} gauges[] = {
	{ "pairs_live", gauge_pairs_live },
	{ "ring_memory_bytes", sks_memory_held },
	{ "so_splices_live", gauge_so_splices_live },
};

static int stats_start(struct netlink_callback *cb)
{
	return opener_is_admin(cb->skb) ? 0 : -EPERM;
}

static int stats_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	unsigned long i;

	for (i = cb->args[0]; i < SOCKSPLICE_STAT_MAX + ARRAY_SIZE(gauges); i++) {
		bool counter = i < SOCKSPLICE_STAT_MAX;
		void *hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
					&family, NLM_F_MULTI, SOCKSPLICE_CMD_STATS_GET);

		if (!hdr)
			break;
		if (nla_put_string(skb, SOCKSPLICE_A_STAT_NAME,
				   counter ? sks_stat_name(i) :
					     gauges[i - SOCKSPLICE_STAT_MAX].name) ||
		    nla_put_u64_64bit(skb, SOCKSPLICE_A_STAT_VALUE,
				      counter ? sks_stat_sum(i) :
						gauges[i - SOCKSPLICE_STAT_MAX].get(),
				      SOCKSPLICE_A_PAD)) {
			genlmsg_cancel(skb, hdr);
			break;
		}
		genlmsg_end(skb, hdr);
	}
	cb->args[0] = i;
	return skb->len;
}

/* The addresses, ports and namespace that tell one end from another. */
static int who_fill(struct sk_buff *skb, const struct ident *id, u16 af, u32 netns)
{
	const bool v4 = af == AF_INET;

	if (nla_put_u16(skb, SOCKSPLICE_A_END_FAMILY, af) ||
	    nla_put(skb, SOCKSPLICE_A_END_SADDR, v4 ? 4 : 16,
		    v4 ? (void *)&id->saddr.s6_addr32[3] : (void *)&id->saddr) ||
	    nla_put(skb, SOCKSPLICE_A_END_DADDR, v4 ? 4 : 16,
		    v4 ? (void *)&id->daddr.s6_addr32[3] : (void *)&id->daddr) ||
	    nla_put_u16(skb, SOCKSPLICE_A_END_SPORT, id->sport) ||
	    nla_put_u16(skb, SOCKSPLICE_A_END_DPORT, id->dport) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_NETNS, netns))
		return -EMSGSIZE;
	return 0;
}

/* Adds what only the socket knows. Under RCU, which also keeps its struct socket. */
static int sock_fill(struct sk_buff *skb, const struct sock *sk)
{
	const struct socket *sock = READ_ONCE(sk->sk_socket);	/* RCU frees it */
	u64 cgroup = 0;
#ifdef CONFIG_SOCK_CGROUP_DATA
	const struct cgroup *cgrp = sock_cgroup_ptr((void *)&sk->sk_cgrp_data);

	if (cgrp)
		cgroup = cgroup_id(cgrp);
#endif
	if (nla_put_u64_64bit(skb, SOCKSPLICE_A_END_COOKIE, atomic64_read(&sk->sk_cookie),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_INODE,
			      sock ? SOCK_INODE((struct socket *)sock)->i_ino : 0,
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_CGROUP, cgroup, SOCKSPLICE_A_PAD))
		return -EMSGSIZE;
	return 0;
}

int sks_netlink_put_sock(struct sk_buff *skb, const struct sock *sk, const struct ident *id,
			 int type)
{
	struct nlattr *nest = nla_nest_start(skb, type);
	int err;

	if (!nest || who_fill(skb, id, sk->sk_family, sock_net(sk)->ns.inum))
		return -EMSGSIZE;
	rcu_read_lock();
	err = sock_fill(skb, sk);
	rcu_read_unlock();
	if (err)
		return err;
	nla_nest_end(skb, nest);
	return 0;
}

/* Reads the end without its socket's lock, so the counters are snapshots. */
int sks_netlink_put_end(struct sk_buff *skb, const struct pair_end *end)
{
	struct nlattr *nest = nla_nest_start(skb, SOCKSPLICE_A_PAIR_END);
	const struct sock *sk;
	int err;

	if (!nest || who_fill(skb, &end->ident, end->family, end->netns_inum))
		return -EMSGSIZE;

	rcu_read_lock();
	sk = rcu_dereference(end->sk);
	err = sk ? sock_fill(skb, sk) : 0;
	rcu_read_unlock();

	if (err ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_TX_RING_BYTES, READ_ONCE(end->ring_bytes),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_TX_RING_MSGS, READ_ONCE(end->ring_msgs),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_TX_TCP_BYTES, READ_ONCE(end->tcp_bytes),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_END_TX_TCP_MSGS, READ_ONCE(end->tcp_msgs),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_RING_SIZE, READ_ONCE(end->ring.size)) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_RING_MEM, READ_ONCE(end->ring.filled)) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_RING_QUEUED, ring_len(&end->ring)) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_GROUP, end->memory.group_id) ||
	    nla_put_u32(skb, SOCKSPLICE_A_END_BUSY_POLL, READ_ONCE(end->busy_poll_usec)) ||
	    nla_put_u8(skb, SOCKSPLICE_A_END_CLOSED, !sk))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int sks_netlink_put_pair(struct sk_buff *skb, const struct pair_end *active,
			 const struct pair_end *passive)
{
	u64 age = ktime_get_ns() - active->start;

	if (nla_put_u32(skb, SOCKSPLICE_A_PAIR_ID, active->id) ||
	    nla_put_u8(skb, SOCKSPLICE_A_PAIR_DRAINING, test_bit(END_DROPPED, &active->flags)) ||
	    nla_put_u64_64bit(skb, SOCKSPLICE_A_PAIR_AGE_MS, div_u64(age, NSEC_PER_MSEC),
			      SOCKSPLICE_A_PAD) ||
	    sks_netlink_put_end(skb, active) || sks_netlink_put_end(skb, passive))
		return -EMSGSIZE;
	return 0;
}

bool sks_netlink_has_listeners(void)
{
	return genl_has_listeners(&family, &init_net, GROUP_EVENTS);
}

struct sk_buff *sks_netlink_event_begin(void **hdr)
{
	struct sk_buff *skb = genlmsg_new(EVENT_SIZE, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	*hdr = genlmsg_put(skb, 0, 0, &family, 0, SOCKSPLICE_CMD_EVENT);
	return skb;
}

/* do_one_broadcast() skips the listeners for which this returns true. Without it a socket of
 * another network namespace could hear the events: NETLINK_LISTEN_ALL_NSID lets it listen to
 * every namespace that its own has an id for, if the user namespaces allow that.
 */
static int is_a_stranger(struct sock *listener, struct sk_buff *skb, void *data)
{
	return !net_eq(sock_net(listener), &init_net);
}

/* A listener that is too slow sees from the sequence numbers that it lost events. */
void sks_netlink_event_send(struct sk_buff *skb)
{
	genlmsg_multicast_netns_filtered(&family, &init_net, skb, 0, GROUP_EVENTS, GFP_KERNEL,
					 is_a_stranger, NULL);
}

/* The state of one message of a dump of pairs or splices. */
struct dump {
	struct sk_buff *skb;
	struct netlink_callback *cb;
};

static int pair_fill(struct pair_end *first, struct pair_end *second, void *arg)
{
	struct dump *d = arg;
	void *hdr;

	hdr = genlmsg_put(d->skb, NETLINK_CB(d->cb->skb).portid, d->cb->nlh->nlmsg_seq, &family,
			  NLM_F_MULTI, SOCKSPLICE_CMD_PAIR_GET);
	if (!hdr)
		return -EMSGSIZE;
	if (sks_netlink_put_pair(d->skb, first, second)) {
		genlmsg_cancel(d->skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(d->skb, hdr);
	return 0;
}

static int pair_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct dump d = { .skb = skb, .cb = cb };
	u64 last = cb->args[0];

	sks_pairs_walk(&last, pair_fill, &d);
	cb->args[0] = last;
	return skb->len;
}

static int splice_end_fill(struct sk_buff *skb, const struct sock *sk, int type)
{
	struct ident id;

	sks_ident_addresses(sk, &id);
	return sks_netlink_put_sock(skb, sk, &id, type);
}

/* Takes no socket lock, so the values are snapshots. */
static int splice_fill(struct splice *s, void *arg)
{
	struct dump *d = arg;
	void *hdr;

	hdr = genlmsg_put(d->skb, NETLINK_CB(d->cb->skb).portid, d->cb->nlh->nlmsg_seq, &family,
			  NLM_F_MULTI, SOCKSPLICE_CMD_SPLICE_GET);
	if (!hdr)
		return -EMSGSIZE;
	if (splice_end_fill(d->skb, s->src, SOCKSPLICE_A_SPLICE_SOURCE) ||
	    splice_end_fill(d->skb, s->dst, SOCKSPLICE_A_SPLICE_SINK) ||
	    nla_put_u32(d->skb, SOCKSPLICE_A_SPLICE_UID, from_kuid_munged(&init_user_ns, s->uid)) ||
	    nla_put_u64_64bit(d->skb, SOCKSPLICE_A_SPLICE_MOVED, READ_ONCE(s->moved),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(d->skb, SOCKSPLICE_A_SPLICE_MAX, s->max, SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(d->skb, SOCKSPLICE_A_SPLICE_IDLE_MS, jiffies64_to_msecs(s->idle),
			      SOCKSPLICE_A_PAD) ||
	    nla_put_u64_64bit(d->skb, SOCKSPLICE_A_SPLICE_AGE_MS,
			      div_u64(ktime_get_ns() - s->start, NSEC_PER_MSEC),
			      SOCKSPLICE_A_PAD)) {
		genlmsg_cancel(d->skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(d->skb, hdr);
	return 0;
}

static int splice_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct dump d = { .skb = skb, .cb = cb };
	u64 last = cb->args[0];

	sks_splices_walk(&last, splice_fill, &d);
	cb->args[0] = last;
	return skb->len;
}

static int splice_drop(struct sk_buff *skb, struct genl_info *info)
{
	sks_endpoint_drop_all();
	return 0;
}

static const struct nla_policy set_policy[] = {
	[SOCKSPLICE_A_STATUS_PAIRING]	= NLA_POLICY_MAX(NLA_U8, 1),
	[SOCKSPLICE_A_STATUS_SPLICE]	= NLA_POLICY_MAX(NLA_U8, 1),
	[SOCKSPLICE_A_STATUS_SO_SPLICE]	= NLA_POLICY_MAX(NLA_U8, 1),
	[SOCKSPLICE_A_STATUS_MEMORY_CAP] = { .type = NLA_U64 },
};

static const struct nla_policy drop_policy[] = {
	[SOCKSPLICE_A_PAIR_ID]		= NLA_POLICY_MIN(NLA_U32, 1),
};

static const struct genl_ops ops[] = {
	{
		.cmd = SOCKSPLICE_CMD_STATUS_GET, .doit = status_get, /* opener_is_admin() */
	},
	{
		.cmd	= SOCKSPLICE_CMD_STATS_GET,
		.start	= stats_start,	/* opener_is_admin() */
		.dumpit	= stats_dump,
	},
	{
		.cmd	= SOCKSPLICE_CMD_PAIR_GET,
		.start	= host_start,
		.dumpit	= pair_dump,
		.flags	= GENL_ADMIN_PERM,
	},
	{
		.cmd	= SOCKSPLICE_CMD_STATUS_SET,
		.doit	= status_set,
		.flags	= GENL_ADMIN_PERM,
		.policy	= set_policy,
		.maxattr = ARRAY_SIZE(set_policy) - 1,
	},
	{
		.cmd	= SOCKSPLICE_CMD_PAIR_DROP,
		.doit	= pair_drop,
		.flags	= GENL_ADMIN_PERM,
		.policy	= drop_policy,
		.maxattr = ARRAY_SIZE(drop_policy) - 1,
	},
	{
		.cmd	= SOCKSPLICE_CMD_SPLICE_GET,
		.start	= host_start,
		.dumpit	= splice_dump,
		.flags	= GENL_ADMIN_PERM,
	},
	{
		.cmd	= SOCKSPLICE_CMD_SPLICE_DROP,
		.doit	= splice_drop,
		.flags	= GENL_ADMIN_PERM,
	},
};

static struct genl_family family = {
	.name		= SOCKSPLICE_GENL_NAME,
	.version	= SOCKSPLICE_GENL_VERSION,
	.module		= THIS_MODULE,
	.ops		= ops,
	.n_ops		= ARRAY_SIZE(ops),
	.mcgrps		= groups,
	.n_mcgrps	= ARRAY_SIZE(groups),
	.netnsok	= true,
	.pre_doit	= host_pre_doit,
};

int sks_netlink_init(void)
{
	return genl_register_family(&family);
}

void sks_netlink_exit(void)
{
	genl_unregister_family(&family);
}
