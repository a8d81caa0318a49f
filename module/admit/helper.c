// SPDX-License-Identifier: GPL-2.0
/*
 * nf_conntrack is a module that may come and go. Our module neither loads it nor keeps it loaded.
 * When nf_conntrack has been loaded, we look up its function. Each call of the function holds
 * nf_conntrack, so it cannot begin to unload meanwhile. A notifier forgets the function before its
 * text goes.
 */
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/notifier.h>
#include <linux/rcupdate.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

#include "admit/helper.h"
#include "pair/end.h"

#if IS_ENABLED(CONFIG_NF_CONNTRACK)
#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_conntrack_core.h>
#include <net/netfilter/nf_conntrack_extend.h>
#include <net/netfilter/nf_conntrack_helper.h>
#include <net/netfilter/nf_conntrack_zones.h>

#define TRACKER	"nf_conntrack"

typedef typeof(nf_conntrack_find_get) *find_fn;

/* Written under tracker_lock, tracker first. Read under RCU. find_get is NULL if nf_conntrack is
 * not loaded. tracker is also NULL if the kernel has nf_conntrack built in.
 */
static find_fn find_get;
static struct module *tracker;
static DEFINE_MUTEX(tracker_lock);

/* Called when nf_conntrack may be loaded. */
static void tracker_came(void)
{
	struct kobject *kobj;
	find_fn found;

	lockdep_assert_held(&tracker_lock);
	found = symbol_get(nf_conntrack_find_get);
	if (!found)
		return;
	/* The symbol holds nf_conntrack, so the module of this name is the one that has the
	 * function.
	 */
	kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, TRACKER);
	WRITE_ONCE(tracker, kobj ? container_of(kobj, struct module_kobject, kobj)->mod : NULL);
	kobject_put(kobj);
	smp_store_release(&find_get, found);	/* pairs with sks_helper_sees() */
	symbol_put(nf_conntrack_find_get);
}

static void tracker_went(void)
{
	lockdep_assert_held(&tracker_lock);
	WRITE_ONCE(find_get, NULL);
	synchronize_rcu();
	WRITE_ONCE(tracker, NULL);
}

static int module_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct module *mod = data;

	if (strcmp(mod->name, TRACKER))
		return NOTIFY_DONE;
	mutex_lock(&tracker_lock);
	if (event == MODULE_STATE_LIVE)
		tracker_came();
	else if (event == MODULE_STATE_GOING)
		tracker_went();
	mutex_unlock(&tracker_lock);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = module_event };

/* True if the entry has a helper. Its extensions are final since the entry was confirmed. Reads
 * nothing of the helper itself, whose module may be about to go.
 */
static bool has_helper(const struct nf_conn *ct)
{
	const struct nf_conn_help *help;
	const struct nf_ct_ext *ext = ct->ext;

	if (!ext || !__nf_ct_ext_exist(ext, NF_CT_EXT_HELPER))
		return false;
	help = (const void *)ext + ext->offset[NF_CT_EXT_HELPER];
	return rcu_access_pointer(help->helper);
}

/* The tuple of the packets that the end sends. It belongs to one direction of the connection. */
static void tuple_of(const struct ident *id, struct nf_conntrack_tuple *tuple)
{
	memset(tuple, 0, sizeof(*tuple));
	if (ipv6_addr_v4mapped(&id->saddr)) {
		tuple->src.l3num = AF_INET;
		tuple->src.u3.ip = id->saddr.s6_addr32[3];
		tuple->dst.u3.ip = id->daddr.s6_addr32[3];
	} else {
		tuple->src.l3num = AF_INET6;
		tuple->src.u3.in6 = id->saddr;
		tuple->dst.u3.in6 = id->daddr;
	}
	tuple->src.u.tcp.port = htons(id->sport);
	tuple->dst.u.tcp.port = htons(id->dport);
	tuple->dst.protonum = IPPROTO_TCP;
}

/* True if the namespace may track connections: then it has hooks in LOCAL_OUT. */
static bool may_track(const struct net *net, const struct nf_conntrack_tuple *tuple)
{
	return tuple->src.l3num == AF_INET ?
		       rcu_access_pointer(net->nf.hooks_ipv4[NF_INET_LOCAL_OUT]) :
		       rcu_access_pointer(net->nf.hooks_ipv6[NF_INET_LOCAL_OUT]);
}

static bool is_helped(find_fn find, struct net *net, const struct nf_conntrack_tuple *tuple)
{
	struct nf_conntrack_tuple_hash *h;
	struct nf_conn *ct;
	bool helped;

	if (!may_track(net, tuple))
		return false;
	h = find(net, &nf_ct_zone_dflt, tuple);
	if (!h)
		return false;
	ct = nf_ct_tuplehash_to_ctrack(h);
	helped = has_helper(ct);
	nf_conntrack_put(&ct->ct_general);
	return helped;
}

bool sks_helper_sees(struct net *net, const struct ident *id)
{
	struct nf_conntrack_tuple tuple;
	struct module *mod;
	bool helped = false;
	find_fn find;

	rcu_read_lock();
	find = smp_load_acquire(&find_get);	/* pairs with tracker_came() */
	mod = READ_ONCE(tracker);
	if (find && try_module_get(mod)) {
		tuple_of(id, &tuple);
		helped = is_helped(find, net, &tuple) ||
			 (!net_eq(net, &init_net) && is_helped(find, &init_net, &tuple));
		module_put(mod);
	}
	rcu_read_unlock();
	return helped;
}

/* No event comes for an nf_conntrack that is loaded already, so look for it. */
void sks_helper_init(void)
{
	register_module_notifier(&notifier);
	mutex_lock(&tracker_lock);
	tracker_came();
	mutex_unlock(&tracker_lock);
}

void sks_helper_exit(void)
{
	unregister_module_notifier(&notifier);
}

#else	/* !CONFIG_NF_CONNTRACK */

bool sks_helper_sees(struct net *net, const struct ident *id)
{
	return false;
}

void sks_helper_init(void)
{
}

void sks_helper_exit(void)
{
}

#endif
