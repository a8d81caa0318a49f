// SPDX-License-Identifier: GPL-2.0
/*
 * Which sockets may be paired. If there is any doubt, the connection stays on TCP.
 */
#include <linux/net.h>
#include <net/net_namespace.h>
#include <net/tcp.h>
#include <net/xfrm.h>

#include "admit/enroll.h"
#include "admit/helper.h"
#include "admit/match.h"
#include "compat/compat.h"
#include "core/caller.h"
#include "core/hook.h"
#include "core/ident.h"
#include "core/inflight.h"
#include "core/params.h"
#include "core/stats.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "pair/memory.h"
#include "pair/verdict.h"
#include "upkeep/probe.h"
#include "upkeep/reclaim.h"
#include "upkeep/yield.h"

/* sock_def_readable(), which is not exported. Every ordinary TCP socket has it.
 * A socket with another sk_data_ready belongs to a consumer in the kernel.
 */
static void (*plain_data_ready)(struct sock *sk);

static bool has_ipsec(const struct sock *sk)
{
#ifdef CONFIG_XFRM
	const struct net *net = sock_net(sk);

	if (rcu_access_pointer(sk->sk_policy[0]) || rcu_access_pointer(sk->sk_policy[1]))
		return true;
	return net->xfrm.policy_count[XFRM_POLICY_IN] || net->xfrm.policy_count[XFRM_POLICY_OUT];
#else
	return false;
#endif
}

static bool wants_timestamps(const struct sock *sk)
{
	return READ_ONCE(sk->sk_tsflags) || sock_flag(sk, SOCK_RCVTSTAMP);
}

/* Sockets that the kernel itself uses are not paired, but for those that MPTCP hands to an
 * application. Under an MPTCP listener (each listener of Go is one) is a socket of the kernel. A
 * connection from a client that speaks plain TCP is one, too, until accept() gives it to
 * the application. Until then it stays on TCP: see sks_rx_mark_ready(). Few other sockets
 * of the kernel hold their namespace as these do.
 */
static bool is_kernels_own(const struct sock *sk, bool active)
{
	return sk->sk_kern_sock && (active || !sk->sk_net_refcnt || !COMPAT_MPTCP_KNOWS_FALLBACK);
}

/* Returns SOCKSPLICE_STAT_MAX, or why the state of @sk does not allow a pair. */
static enum sks_stat why_not(const struct sock *sk, bool active)
{
	if (!READ_ONCE(sks_pairing) || !READ_ONCE(sks_loaded))
		return SOCKSPLICE_STAT_declined_off;
	/* Without the hooks splice(2) would read past the ring, and SO_RCVLOWAT look past it. */
	if (sks_hook_status())
		return SOCKSPLICE_STAT_declined_hook;
	if (inet_csk_has_ulp(sk) || sk_is_mptcp(sk))
		return SOCKSPLICE_STAT_declined_ulp;
	if (READ_ONCE(sk->sk_user_data))
		return SOCKSPLICE_STAT_declined_psock;
	if (!sks_clone_knows(READ_ONCE(sk->sk_prot)))
		return SOCKSPLICE_STAT_declined_proto;
	if (is_kernels_own(sk, active) || sk->sk_data_ready != plain_data_ready)
		return SOCKSPLICE_STAT_declined_kernel;
	if (rcu_access_pointer(sk->sk_filter))
		return SOCKSPLICE_STAT_declined_filter;
	if (tcp_sk(sk)->repair)
		return SOCKSPLICE_STAT_declined_repair;
	if (wants_timestamps(sk))
		return SOCKSPLICE_STAT_declined_timestamps;
	if (READ_ONCE(sk->sk_max_pacing_rate) != ~0UL)
		return SOCKSPLICE_STAT_declined_pacing;
	if (has_ipsec(sk))
		return SOCKSPLICE_STAT_declined_ipsec;
	return SOCKSPLICE_STAT_MAX;
}

/* Something in the kernel may read the packets of this connection, and would not see the bytes of
 * a ring. Returns SOCKSPLICE_STAT_MAX if nothing does, or the counter for what does.
 */
static enum sks_stat kernel_reads(const struct sock *sk, const struct ident *id, bool yields)
{
	if (sks_helper_sees(sock_net(sk), id))
		return SOCKSPLICE_STAT_declined_helper;
	if (yields && sks_yield_sees(sock_net(sk), id))
		return SOCKSPLICE_STAT_declined_captured;
	return SOCKSPLICE_STAT_MAX;
}

/* Returns SOCKSPLICE_STAT_MAX, and @id, or why @sk may not be paired. */
static enum sks_stat why_declined(const struct sock *sk, bool active, bool yields, struct ident *id)
{
	enum sks_stat why = why_not(sk, active);

	if (why != SOCKSPLICE_STAT_MAX)
		return why;
	if (!sks_ident_read(sk, active, id))
		return SOCKSPLICE_STAT_declined_sequence;
	return kernel_reads(sk, id, yields);
}

static bool opts_valid(const struct socksplice_pair_opts *o)
{
	if (o->flags & ~SOCKSPLICE_PAIR_YIELDS || (o->memory_cap && !o->group) ||
	    o->busy_poll_usec > SOCKSPLICE_BUSY_POLL_MAX || o->reserved)
		return false;
	return (!o->ring_size || sks_ring_size_valid(o->ring_size)) &&
	       (!o->ring_max || sks_ring_size_valid(o->ring_max));
}

/* What the ring of an end may take, by @o and the module's parameters. False if there is no
 * memory for a group that is new. The caller puts memory->group.
 */
static bool set_memory(struct end_memory *memory, const struct socksplice_pair_opts *o)
{
	/* One file of policies serves machines with small and with large pages. */
	memory->ring_size = max_t(u32, o->ring_size ?: READ_ONCE(sks_ring_size), PAGE_SIZE);
	/* A policy that sets the size of a ring also sets how large the ring may become. */
	if (o->ring_size || o->ring_max)
		memory->ring_max = o->ring_max;
	else
		memory->ring_max = READ_ONCE(sks_ring_max);
	memory->group_id = o->group;
	if (!o->memory_cap)
		return true;
	memory->cap = o->memory_cap;
	memory->group = sks_memory_group_get(o->group);
	return memory->group;
}

/* Attaches an end to @sk. Returns NULL if there is no memory. */
static struct pair_end *attach(struct sock *sk, const struct ident *id, bool active,
			       const struct socksplice_pair_opts *o)
{
	struct end_memory memory = {};
	unsigned long flags = 0;
	struct pair_end *end;

	if (!set_memory(&memory, o))
		return NULL;
	if (o->flags & SOCKSPLICE_PAIR_YIELDS)
		__set_bit(END_YIELDS, &flags);
	if (active)
		__set_bit(END_ACTIVE, &flags);
	if (sks_ident_is_local(sk))
		__set_bit(END_LOCAL, &flags);
	if (READ_ONCE(sks_shadow))
		__set_bit(END_SHADOW, &flags);

	end = sks_end_attach(sk, id, &memory, flags);
	if (IS_ERR(end)) {
		if (memory.group)
			sks_memory_group_put(memory.group);
		return NULL;
	}
	WRITE_ONCE(end->busy_poll_usec, o->busy_poll_usec);
	/* A socket that was not accepted yet has no struct socket, and no caller. */
	if (!sk->sk_socket || sks_caller_connects_alone(sk))
		set_bit(END_RX_KNOWN, &end->flags);
	sks_stat_inc(SOCKSPLICE_STAT_enrolled);
	return end;
}

/* Starts the works that look after live pairs. Each stops by itself when it finds no pair, so
 * every new pair starts them. That costs nothing where they run already.
 */
static void start_upkeep(const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end);

	sks_probe_start();
	sks_reclaim_start();
	if (test_bit(END_YIELDS, &end->flags) || test_bit(END_YIELDS, &peer->flags))
		sks_yield_start();
}

int sks_enroll(struct sock *sk, bool active, const struct socksplice_pair_opts *opts)
{
	struct socksplice_pair_opts o = {};
	struct ident id = {};
	struct pair_end *end;
	enum sks_stat why;

	/* A map's value may change at any time. The copy is checked and used. */
	if (opts) {
		memcpy(&o, opts, sizeof(o));
		barrier();
	}
	if (!opts_valid(&o))
		return -EINVAL;
	if (!sk_fullsock(sk) || sk->sk_protocol != IPPROTO_TCP || sk->sk_type != SOCK_STREAM)
		return -EINVAL;
	if (sks_end_get(sk))
		return -EEXIST;

	why = why_declined(sk, active, o.flags & SOCKSPLICE_PAIR_YIELDS, &id);
	if (why != SOCKSPLICE_STAT_MAX) {
		sks_verdict_declined(why, sk);
		return -EOPNOTSUPP;
	}
	end = attach(sk, &id, active, &o);
	if (!end) {
		sks_verdict_declined(SOCKSPLICE_STAT_declined_memory, sk);
		return -ENOMEM;
	}
	if (!sks_match(end)) {
		/* The table may have had no room to park the end. */
		sks_end_detach_if_unmatched(sk);
		return 0;
	}
	start_upkeep(end);
	if (test_bit(END_SHADOW, &end->flags))
		sks_verdict_end(SOCKSPLICE_STAT_shadow_matches, "shadow", end);
	else
		sks_verdict_end(SOCKSPLICE_STAT_pairs_made, NULL, end);
	return 1;
}

int sks_enroll_init(void)
{
	struct socket *sock;
	int err;

	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	plain_data_ready = sock->sk->sk_data_ready;
	sock_release(sock);
	return 0;
}
