// SPDX-License-Identifier: GPL-2.0
/*
 * The stock policies: they decide which TCP connections are offered to socksplice.ko.
 *
 * The program runs when a TCP socket becomes ESTABLISHED, once for each end. It
 * enrols the socket if the administrator has named the connection. If a socket
 * matches several policies, the first one decides. The module then pairs the two
 * ends if both are enrolled and it has proof that they belong together.
 *
 * The configuration is constant once it is loaded. New policies are a new set of
 * programs, so a connection never sees half of them. Two more programs keep the map
 * of the cgroups that the policies name now: a policy has paths, and the cgroup at
 * a path comes and goes.
 *
 * The same object runs on every kernel. It declares the few kernel structures
 * that it reads. The loader relocates the offsets of their members.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "../module/uapi/socksplice.h"
#include "policy.h"

#define AF_INET		2
#define AF_INET6	10
#define IPPROTO_TCP	6

enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_SYN_RECV = 3 };

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)
struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
	int level;
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};
#pragma clang attribute pop

extern int bpf_sock_splice_pair_sk(struct sock *sk,
				   struct socksplice_pair_opts *opts,
				   __u32 opts__sz) __ksym;
extern void bpf_sock_splice_no_policy(void) __ksym;

/* An address as a policy compares it: IPv4 and v4-mapped IPv6 are the same. */
struct addr {
	bool v4;
	__u32 word[4];	/* host order; IPv4: only the last one */
};

/* A connection as the socket sees it; ports in host order. */
struct flow {
	struct addr local;
	struct addr remote;
	__u16 local_port;
	__u16 remote_port;
};

/* The command line writes this before the load. It is frozen afterwards. */
const volatile struct policy_config config SEC(".rodata.config");

/*
 * The key is a cgroup's id. The value has bit N set if policy N names the cgroup.
 * The command line adds the cgroups that exist when the policies are set, after it has
 * attached the two programs that add and remove later ones. The agent adds and removes those of
 * which `found` says something else since, under the exclusive lock of the pins.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, POLICY_CGROUPS);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

/*
 * Paths without a '*'. The value has bit N set if policy N has the path. The command line
 * sets max_entries and the contents, and freezes both maps.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct policy_path);
	__type(value, __u32);
} paths SEC(".maps");

/* Paths with a '*'. One without policies is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POLICY_PATTERNS);
	__type(key, __u32);
	__type(value, struct policy_pattern);
} patterns SEC(".maps");

/*
 * The selectors of containers, from the first on. The command line sets max_entries and the
 * contents before the programs are attached, and freezes the map. No program reads it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_selector);
} selectors SEC(".maps");

/*
 * The cgroups of the containers that the selectors name, by their paths. The cgroup of a container
 * that has ended does not exist; its path stays until the container is removed.
 * User space alone writes it, under the exclusive lock of the pins (pin::Lock): the command line
 * before the programs are attached, later the agent. The pin keeps the map alive, and each
 * program that uses it. track_mkdir reads it without a lock. So a writer compares `cgroups`
 * with the hierarchy after each change (policy/found.rs).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, POLICY_FOUND);
	__type(key, struct policy_path);
	__type(value, struct policy_found);
} found SEC(".maps");

/*
 * The path of the cgroup that is being made, and the state of its comparison with a pattern.
 * It is no local variable: too long for the stack, and the verifier would follow each value
 * that the state can have. cgroup_mutex lets one task in.
 */
struct glob {
	struct policy_path path;
	__u32 p;	/* the next byte of the pattern */
	__u32 s;	/* the next byte of the path */
	__u32 star;	/* behind the pattern's last '*', or 0: a pattern begins with '/' */
	__u32 taken;	/* where in the path that '*' ends */
	__u32 matches;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct glob);
} globs SEC(".maps");

/* Cgroups for which `cgroups` had no room or no memory. Their connections stay on TCP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} missed SEC(".maps");

/* Returns the policies that name the socket's cgroup, or one above it. */
static __u32 by_cgroup(struct sock *sk)
{
	struct cgroup *cgrp = sk->sk_cgrp_data.cgroup;
	struct cgroup **ancestors, *ancestor;
	__u32 policies = 0, *mask;
	int level;
	__u64 id;

	if (!cgrp)
		return 0;
	level = cgrp->level;
	ancestors = (struct cgroup **)&cgrp->ancestors;

	for (int i = 0; i < POLICY_CGROUP_DEPTH && i <= level; i++) {
		/* Without all cgroups the program could miss a policy that says no. */
		if (bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
					  ancestors + i))
			return 0;
		id = BPF_CORE_READ(ancestor, kn, id);
		mask = bpf_map_lookup_elem(&cgroups, &id);
		if (mask)
			policies |= *mask;
	}
	return policies;
}

static bool port_matches(const volatile struct policy *p, const struct flow *flow)
{
	if (!p->n_ports)
		return true;

	for (__u32 i = 0; i < POLICY_PORTS && i < p->n_ports; i++) {
		__u16 first = p->ports[i].first;
		__u16 last = p->ports[i].last;

		if ((flow->local_port >= first && flow->local_port <= last) ||
		    (flow->remote_port >= first && flow->remote_port <= last))
			return true;
	}
	return false;
}

static void addr_set_v4(struct addr *a, __be32 v4)
{
	a->v4 = true;
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = 0;
	a->word[3] = bpf_ntohl(v4);
}

static void addr_set_v6(struct addr *a, __be32 w0, __be32 w1, __be32 w2,
			__be32 w3)
{
	a->v4 = !w0 && !w1 && w2 == bpf_htonl(0xffff);
	a->word[0] = bpf_ntohl(w0);
	a->word[1] = bpf_ntohl(w1);
	a->word[2] = a->v4 ? 0 : bpf_ntohl(w2);
	a->word[3] = bpf_ntohl(w3);
}

static bool addr_is_loopback(const struct addr *a)
{
	if (a->v4)
		return a->word[3] >> 24 == 127;
	return !a->word[0] && !a->word[1] && !a->word[2] && a->word[3] == 1;
}

static bool addr_in_cidr(const struct addr *a,
			 const volatile struct policy_cidr *cidr)
{
	return a->v4 == !!cidr->v4 &&
	       (a->word[0] & cidr->mask[0]) == cidr->net[0] &&
	       (a->word[1] & cidr->mask[1]) == cidr->net[1] &&
	       (a->word[2] & cidr->mask[2]) == cidr->net[2] &&
	       (a->word[3] & cidr->mask[3]) == cidr->net[3];
}

static bool cidr_matches(const volatile struct policy *p, const struct flow *flow)
{
	if (!p->n_cidrs)
		return true;

	for (__u32 i = 0; i < POLICY_CIDRS && i < p->n_cidrs; i++) {
		if (addr_in_cidr(&flow->local, &p->cidrs[i]) ||
		    addr_in_cidr(&flow->remote, &p->cidrs[i]))
			return true;
	}
	return false;
}

/*
 * Does policy @i name the connection, apart from its cgroups? The function is not
 * static, so the verifier checks it once. Otherwise it would check it again for
 * each policy and each path through its lists.
 */
__noinline int flow_matches(const struct flow *flow, __u32 i)
{
	const volatile struct policy *p;

	if (!flow || i >= POLICY_MAX)
		return 0;
	p = &config.policies[i];
	if (p->loopback_only &&
	    !(addr_is_loopback(&flow->local) && addr_is_loopback(&flow->remote)))
		return 0;
	return port_matches(p, flow) && cidr_matches(p, flow);
}

static bool flow_get(struct sock *sk, struct flow *flow)
{
	struct sock_common *skc = &sk->__sk_common;

	flow->local_port = skc->skc_num;
	flow->remote_port = bpf_ntohs(skc->skc_dport);
	switch (skc->skc_family) {
	case AF_INET:
		addr_set_v4(&flow->local, skc->skc_rcv_saddr);
		addr_set_v4(&flow->remote, skc->skc_daddr);
		return true;
	case AF_INET6:
		addr_set_v6(&flow->local,
			    skc->skc_v6_rcv_saddr.in6_u.u6_addr32[0],
			    skc->skc_v6_rcv_saddr.in6_u.u6_addr32[1],
			    skc->skc_v6_rcv_saddr.in6_u.u6_addr32[2],
			    skc->skc_v6_rcv_saddr.in6_u.u6_addr32[3]);
		addr_set_v6(&flow->remote,
			    skc->skc_v6_daddr.in6_u.u6_addr32[0],
			    skc->skc_v6_daddr.in6_u.u6_addr32[1],
			    skc->skc_v6_daddr.in6_u.u6_addr32[2],
			    skc->skc_v6_daddr.in6_u.u6_addr32[3]);
		return true;
	default:
		return false;
	}
}

/* The first policy that the socket matches, or POLICY_MAX. */
static __u32 decide(struct sock *sk)
{
	struct flow flow = {};
	__u32 policies = 0;
	__u32 i;

	if (!flow_get(sk, &flow))
		return POLICY_MAX;
	/* This has no branch: the verifier would follow both sides of it each time. */
	for (i = 0; i < POLICY_MAX && i < config.n_policies; i++)
		policies |= (flow_matches(&flow, i) & 1U) << i;
	if (policies)
		policies &= by_cgroup(sk);
	for (i = 0; i < POLICY_MAX; i++) {
		if (policies & (1U << i))
			break;
	}
	return i;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(policy, struct sock *sk, int oldstate, int newstate)
{
	struct socksplice_pair_opts opts = {};
	__u32 i;

	if (newstate != TCP_ESTABLISHED ||
	    (oldstate != TCP_SYN_SENT && oldstate != TCP_SYN_RECV))
		return 0;
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	i = decide(sk);
	if (i >= POLICY_MAX) {
		bpf_sock_splice_no_policy();
		return 0;
	}
	if (config.policies[i].tcp)
		return 0;

	opts.ring_size = config.policies[i].ring_size;
	opts.ring_max = config.policies[i].ring_max;
	opts.busy_poll_usec = config.policies[i].busy_poll_usec;
	opts.group = config.policies[i].group;
	opts.memory_cap = (__u64)config.policies[i].memory_cap[1] << 32 |
			  config.policies[i].memory_cap[0];
	if (config.policies[i].yields)
		opts.flags |= SOCKSPLICE_PAIR_YIELDS;
	/* The module counts every refusal with its reason. */
	bpf_sock_splice_pair_sk(sk, &opts, sizeof(opts));
	return 0;
}

struct glob_step {
	struct glob *glob;
	struct policy_pattern *pattern;
};

/* One step of a comparison; 1 ends it. After a difference the last '*' takes one byte more. */
static long glob_step(__u32 i, void *data)
{
	const struct policy_path *pattern = &((struct glob_step *)data)->pattern->path;
	struct glob *g = ((struct glob_step *)data)->glob;
	char p = pattern->text[g->p & (POLICY_PATH - 1)];
	char s = g->path.text[g->s & (POLICY_PATH - 1)];

	if (p == '*') {
		g->star = ++g->p;
		g->taken = g->s;
	} else if (p == s && s) {
		g->p++;
		g->s++;
	} else if (p == s) {
		g->matches = 1;
		return 1;
	} else {
		s = g->path.text[g->taken & (POLICY_PATH - 1)];
		if (!g->star || !s || s == '/')
			return 1;
		g->s = ++g->taken;
		g->p = g->star;
	}
	return 0;
}

/*
 * The policies of pattern @i if it matches the path in `globs`, else 0. The function is not
 * static, so the verifier checks it once, as flow_matches().
 */
__noinline int policies_of_pattern(__u32 i)
{
	__u32 zero = 0;
	struct glob_step step = {
		.glob = bpf_map_lookup_elem(&globs, &zero),
		.pattern = bpf_map_lookup_elem(&patterns, &i),
	};
	struct glob *g = step.glob;

	if (!g || !step.pattern || !step.pattern->policies)
		return 0;
	g->p = 0;
	g->s = 0;
	g->star = 0;
	g->taken = 0;
	g->matches = 0;
	/* Each end of a '*' costs at most the pattern's length in steps. */
	bpf_loop(POLICY_PATH * POLICY_PATH, glob_step, &step, 0);
	return g->matches ? step.pattern->policies : 0;
}

/* True for a cgroup of version 2. */
static bool is_unified(struct cgroup *cgrp)
{
	return !cgrp->root->hierarchy_id;
}

/* Runs under cgroup_mutex, before a process can be put into the new cgroup. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(track_mkdir, struct cgroup *cgrp, const char *path)
{
	struct policy_path *text;
	struct policy_found *container;
	struct glob *glob;
	__u32 policies = 0, *exact, zero = 0;
	__u64 id, *count;
	long len;

	glob = bpf_map_lookup_elem(&globs, &zero);
	if (!glob || !is_unified(cgrp))
		return 0;
	text = &glob->path;
	__builtin_memset(text, 0, sizeof(*text));
	len = bpf_probe_read_kernel_str(text->text, sizeof(text->text), path);
	/* The helper cuts a longer path: no policy can have it, and no pattern means its head. */
	if (len <= 1 || len >= POLICY_PATH)
		return 0;
	for (__u32 i = 0; i < POLICY_PATTERNS; i++)
		policies |= policies_of_pattern(i);
	exact = bpf_map_lookup_elem(&paths, text);
	if (exact)
		policies |= *exact;
	container = bpf_map_lookup_elem(&found, text);
	if (container)
		policies |= container->policies;
	if (!policies)
		return 0;
	id = cgrp->kn->id;
	if (bpf_map_update_elem(&cgroups, &id, &policies, BPF_ANY)) {
		count = bpf_map_lookup_elem(&missed, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	return 0;
}

/*
 * A removed cgroup stays in the map as long as a socket can belong to it: a process may have
 * left the cgroup and kept its listener.
 */
SEC("tp_btf/cgroup_release")
int BPF_PROG(track_release, struct cgroup *cgrp, const char *path)
{
	__u64 id = cgrp->kn->id;

	if (is_unified(cgrp))
		bpf_map_delete_elem(&cgroups, &id);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
