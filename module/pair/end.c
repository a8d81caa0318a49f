// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching an end to a socket and detaching it again. end.h has the lifetimes.
 *
 * Two words make a socket ours. Both are written under its lock. One is sk_prot, which brings the
 * socket's system calls to datapath/. The other is the ULP slot, which
 *   - tells us when the socket dies: tcp_cleanup_ulp() calls ->release once, however the socket
 *     dies, and then drops the module reference;
 *   - keeps kTLS, sockmap, MPTCP and listen() away, all of which would copy or overwrite sk_prot
 *     without asking. We write the slot directly, because tcp_set_ulp() is not exported.
 */
#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "core/inflight.h"
#include "core/napi.h"
#include "core/slot.h"
#include "core/stats.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "pair/memory.h"
#include "pair/pages.h"
#include "pair/pairs.h"
#include "pair/totals.h"
#include "pair/verdict.h"

static struct kmem_cache *end_cache;
static void (*unpark)(struct pair_end *end) __ro_after_init;	/* see sks_end_init() */

static void end_unref(struct pair_end *end)
{
	if (!refcount_dec_and_test(&end->ref))
		return;
	sks_pages_free(end);
	if (end->memory.group)
		sks_memory_group_put(end->memory.group);
	kmem_cache_free(end_cache, end);
}

struct pair_end *sks_end_hold(struct pair_end *end)
{
	struct pair_end *peer = sks_end_peer(end);

	refcount_inc(&end->ref);
	if (peer)
		refcount_inc(&peer->ref);
	return peer;
}

void sks_end_put(struct pair_end *end, struct pair_end *peer)
{
	end_unref(end);
	if (peer)
		end_unref(peer);
}

/* The last pin drops the references that end_attachment() took for all of them. */
void sks_end_unpin(const struct sock *sk, struct pair_end *end)
{
	sock_owned_by_me(sk);
	if (!--end->pins && end->pinned) {
		end->pinned = false;
		sks_end_put(end, end->peer);
	}
}

/* Drops what the attachment held, one grace period after it ended. Until then softirqs and
 * tcp_poll() may look at both ends, and the peer at our socket, under RCU alone.
 */
static void end_gone_rcu(struct rcu_head *rcu)
{
	struct pair_end *end = container_of(rcu, struct pair_end, rcu);
	struct pair_end *peer = end->peer;
	struct sock *sk = end->gone_sk;

	end_unref(end);
	if (peer)
		end_unref(peer);
	sock_put(sk);
}

/*
 * Ends an attachment. The caller sees to sk_prot and the slot. The steps:
 *   a. Both directions are closed, so neither socket puts bytes into a ring that nothing
 *      will read.
 *   b. The end leaves the table of match.c. Nothing can link it any more, so peer has its
 *      final value.
 *   c. The pair leaves the tree, once both ends are detached.
 *   d. Tasks of this socket that wait with the lock dropped go on using both ends. From
 *      here on they do so by references.
 *   e. The peer cannot find our socket any more. A CPU that has found it already may use it
 *      until the grace period ends, when all references go (end_gone_rcu).
 */
static void end_attachment(struct sock *sk, struct pair_end *end)
{
	struct pair_end *peer;
	bool last = false;

	smp_mb__before_atomic();	/* the append before the bit; pairs with close_ring() */
	set_bit(END_TX_CLOSED, &end->flags);
	set_bit(END_RX_CLOSED, &end->flags);
	unpark(end);

	sks_napi_unmark(sk);
	peer = sks_end_peer(end);
	if (peer) {
		/* From now on rcvlowat.c does not see what this socket sends by TCP. The work that
		 * un-pairs the peer watches for it (unpair.c).
		 */
		WRITE_ONCE(peer->left_known, sks_look_rcv_nxt(peer));
		smp_wmb();	/* before end->sk is cleared; pairs with notify_missed_tcp_data() */
		last = sks_pairs_leave(end, peer);
	}
	if (last)
		sks_verdict_end(SOCKSPLICE_STAT_pairs_ended,
				test_bit(END_DROPPED, &end->flags) ? "dropped" : "closed", end);

	if (end->pins) {
		end->pinned = true;
		sks_end_hold(end);
	}

	end->gone_sk = sk;
	RCU_INIT_POINTER(end->sk, NULL);
	call_rcu_hurry(&end->rcu, end_gone_rcu);	/* hurry: it holds the socket and its
							 * namespace
							 */
	sks_detached();
}

/* Called by tcp_cleanup_ulp(): the socket is being destroyed. The core clears the slot's ops and
 * drops the module reference after we return.
 */
static void ulp_release(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct pair_end *end = sks_end_get(sk);
	struct splice_endpoint *guest = end->guest;

	if (guest) {
		WRITE_ONCE(end->guest, NULL);
		sks_guest_ops->release(sk, guest);
		module_put(THIS_MODULE);	/* the core drops the end's reference */
	}
	/* TCP still uses sk_prot, to uncharge the socket's memory. */
	sks_clone_unset(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, NULL);
	end_attachment(sk, end);
}

void sks_end_detach(struct sock *sk)
{
	struct pair_end *end = sks_end_get(sk);

	sock_owned_by_me(sk);
	sks_totals_keep(sk, end);
	if (end->guest) {
		/* end->guest stays, for readers that found @end under RCU before this. */
		sks_guest_ops->inherit(sk, end->guest);
	} else {
		sks_slot_clear(sk);
		sks_clone_unset(sk);
	}
	end_attachment(sk, end);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

void sks_end_detach_if_unmatched(struct sock *sk)
{
	struct pair_end *end = sks_end_get(sk);

	if (!end || test_bit(END_PARKED, &end->flags))
		return;
	smp_rmb();	/* read END_PARKED before peer; pairs with unpark_locked() */
	if (!sks_end_peer(end))
		sks_end_detach(sk);
}

struct sock *sks_end_trylock(struct pair_end *end)
{
	struct sock *sk, *ret;

	rcu_read_lock();
	sk = rcu_dereference(end->sk);
	if (!sk) {
		rcu_read_unlock();
		return NULL;
	}
	spin_lock_bh(&sk->sk_lock.slock);
	if (!rcu_access_pointer(end->sk)) {
		ret = NULL;	/* the end was detached before we had the lock */
	} else if (sock_owned_by_user_nocheck(sk)) {
		ret = ERR_PTR(-EBUSY);
	} else {
		/* Both locks are held on return. sparse cannot express a function that returns
		 * sometimes with and sometimes without locks. So we tell it that they are not
		 * held, and it finds every path balanced.
		 */
		__release(&sk->sk_lock.slock);
		__release(RCU);
		return sk;
	}
	spin_unlock_bh(&sk->sk_lock.slock);
	rcu_read_unlock();
	return ret;
}

void sks_end_unlock(struct sock *sk)
{
	__acquire(&sk->sk_lock.slock);	/* undoes what _trylock told sparse */
	__acquire(RCU);
	spin_unlock_bh(&sk->sk_lock.slock);
	rcu_read_unlock();
}

struct pair_end *sks_end_attach(struct sock *sk, const struct ident *id,
				const struct end_memory *memory, unsigned long flags)
{
	struct pair_end *end;

	end = kmem_cache_zalloc(end_cache, GFP_ATOMIC | __GFP_NOWARN);
	if (!end)
		return ERR_PTR(-ENOMEM);
	if (!sks_attached()) {
		kmem_cache_free(end_cache, end);
		return ERR_PTR(-ENOENT);
	}

	end->slot = SLOT_PAIR;
	end->ident = *id;
	end->flags = flags;
	end->memory = *memory;
	ring_init(&end->ring, memory->ring_size);
	end->ring_limit = memory->ring_size;
	end->start = ktime_get_ns();
	end->netns_inum = sock_net(sk)->ns.inum;
	end->family = sk->sk_family;
	end->data_ready = READ_ONCE(sk->sk_data_ready);
	refcount_set(&end->ref, 1);
	mutex_init(&end->rx_mutex);
	RB_CLEAR_NODE(&end->in_pairs);
	INIT_HLIST_NODE(&end->ident.node);
	sock_hold(sk);
	rcu_assign_pointer(end->sk, sk);

	sks_slot_fill(sk, SLOT_PAIR, end);
	sks_clone_set(sk);
	return end;
}

bool sks_end_is_done(const struct sock *sk, const struct pair_end *end, const struct pair_end *peer)
{
	return !ring_len(&peer->ring) && !end->rx_mid_read && !end->rx_partial &&
	       !end->disconnecting && !end->tx_mid_message &&
	       !(end->rx_sleepers && READ_ONCE(sk->sk_rcvlowat) > 1);
}

static size_t ulp_get_info_size(const struct sock *sk COMPAT_NET_ADMIN_PARAM)
{
	return 0;
}

static int ulp_get_info(struct sock *sk, struct sk_buff *skb COMPAT_NET_ADMIN_PARAM)
{
	return 0;
}

static const struct tcp_ulp_ops ulp_ops = {
	.name		= "socksplice",
	.owner		= THIS_MODULE,
	.release	= ulp_release,
	.get_info	= ulp_get_info,
	.get_info_size	= ulp_get_info_size,
};

int __init sks_end_init(void (*unpark_it)(struct pair_end *end))
{
	int err;

	unpark = unpark_it;
	err = sks_slot_register(SLOT_PAIR, &ulp_ops);
	if (err)
		return err;
	end_cache = kmem_cache_create("socksplice_end", sizeof(struct pair_end), 0,
				      SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT, NULL);
	if (!end_cache)
		return -ENOMEM;
	err = sks_pages_init();
	if (err)
		kmem_cache_destroy(end_cache);
	return err;
}

void sks_end_exit(void)
{
	rcu_barrier();	/* end_gone_rcu */
	sks_pages_exit();
	kmem_cache_destroy(end_cache);
}
