// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching a chan to a socket and taking it off again; see end.h for what
 * keeps what alive.
 *
 * A socket is ours by two words, both written under its lock: sk_prot, which
 * brings its system calls to datapath/, and the ULP slot, which
 *   - tells us of the socket's end: tcp_cleanup_ulp() calls ->release once,
 *     whatever way the socket dies, and then drops the module reference;
 *   - keeps kTLS, sockmap, MPTCP and listen() away, all of which would copy or
 *     overwrite sk_prot without asking.
 * The slot is written directly, because tcp_set_ulp() is not exported.
 */
#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "core/inflight.h"
#include "core/slot.h"
#include "core/stats.h"
#include "pair/clone.h"
#include "pair/end.h"
#include "pair/guest.h"
#include "pair/look.h"
#include "pair/memory.h"
#include "pair/pages.h"
#include "pair/pairs.h"
#include "pair/verdict.h"

static struct kmem_cache *chan_cache;
static void (*unpark)(struct socksplice_chan *c) __ro_after_init;	/* see socksplice_chan_init() */

static void chan_unref(struct socksplice_chan *c)
{
	if (!refcount_dec_and_test(&c->ref))
		return;
	socksplice_pages_free(c);
	if (c->memory.group)
		socksplice_memory_group_put(c->memory.group);
	kmem_cache_free(chan_cache, c);
}

struct socksplice_chan *socksplice_chan_hold(struct socksplice_chan *c)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);

	refcount_inc(&c->ref);
	if (peer)
		refcount_inc(&peer->ref);
	return peer;
}

void socksplice_chan_put(struct socksplice_chan *c, struct socksplice_chan *peer)
{
	chan_unref(c);
	if (peer)
		chan_unref(peer);
}

/* The references that chan_end() took for the pins go with the last of them. */
void socksplice_chan_unpin(const struct sock *sk, struct socksplice_chan *c)
{
	sock_owned_by_me(sk);
	if (!--c->pins && c->pinned) {
		c->pinned = false;
		socksplice_chan_put(c, c->peer);
	}
}

/* What the attachment held, one grace period after it ended: softirqs and
 * tcp_poll() look at both chans, and the peer at our socket, under RCU alone.
 */
static void chan_gone_rcu(struct rcu_head *rcu)
{
	struct socksplice_chan *c = container_of(rcu, struct socksplice_chan, rcu);
	struct socksplice_chan *peer = c->peer;
	struct sock *sk = c->gone_sk;

	chan_unref(c);
	if (peer)
		chan_unref(peer);
	sock_put(sk);
}

/*
 * The end of an attachment; the caller sees to sk_prot and the slot.
 *   a. Both directions are closed, so that neither end puts bytes into a ring
 *      that nobody can reach.
 *   b. Out of the identity table: nobody can link us any more, so peer is now
 *      what it will ever be.
 *   c. Out of the tree, once both ends have ended.
 *   d. Tasks of this socket that wait with the lock dropped go on using both
 *      chans: from here on by references.
 *   e. The peer cannot find our socket any more; who already has may use it
 *      until the grace period ends, when all references go (chan_gone_rcu).
 */
static void chan_end(struct sock *sk, struct socksplice_chan *c)
{
	struct socksplice_chan *peer;
	bool last = false;

	smp_mb__before_atomic();	/* after the last append */
	set_bit(CHAN_TX_CLOSED, &c->flags);
	set_bit(CHAN_RX_CLOSED, &c->flags);
	unpark(c);

	peer = socksplice_chan_peer(c);
	if (peer) {
		/* What its socket sends by TCP from now on rcvlowat.c does not see. The
		 * un-pairing of the reader watches for it (unpair.c).
		 */
		WRITE_ONCE(peer->left_known, socksplice_look_rcv_nxt(peer));
		smp_wmb();	/* before c->sk is cleared; pairs with unpair.c */
		last = socksplice_pairs_leave(c, peer);
	}
	if (last)
		socksplice_event_chan(SOCKSPLICE_STAT_pairs_ended,
				      test_bit(CHAN_DROPPED, &c->flags) ? "dropped" : "closed",
				      c);

	if (c->pins) {
		c->pinned = true;
		socksplice_chan_hold(c);
	}

	c->gone_sk = sk;
	RCU_INIT_POINTER(c->sk, NULL);
	call_rcu_hurry(&c->rcu, chan_gone_rcu);	/* it keeps the socket and its namespace */
	socksplice_detached();
}

/* tcp_cleanup_ulp(): the socket is being destroyed; the core clears the slot's
 * ops and drops the module reference after we return.
 */
static void ulp_release(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct socksplice_chan *c = socksplice_chan_get(sk);
	struct soend *end = c->end;

	if (end) {
		WRITE_ONCE(c->end, NULL);
		socksplice_guest_ops->release(sk, end);
		module_put(THIS_MODULE);	/* the core drops one, for the chan */
	}
	/* sk_prot is still used to uncharge what the socket holds. */
	socksplice_clone_unset(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, NULL);
	chan_end(sk, c);
}

void socksplice_chan_detach(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);

	sock_owned_by_me(sk);
	if (c->end) {
		/* c->end stays, for who has found @c a moment ago, under RCU. */
		socksplice_guest_ops->inherit(sk, c->end);
	} else {
		socksplice_slot_clear(sk);
		socksplice_clone_unset(sk);
	}
	chan_end(sk, c);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
}

void socksplice_chan_settle(struct sock *sk)
{
	struct socksplice_chan *c = socksplice_chan_get(sk);

	if (!c || test_bit(CHAN_PARKED, &c->flags))
		return;
	smp_rmb();	/* pairs with unpark_locked(): linked first */
	if (!socksplice_chan_peer(c))
		socksplice_chan_detach(sk);
}

struct sock *socksplice_chan_trylock(struct socksplice_chan *c)
{
	struct sock *sk, *ret;

	rcu_read_lock();
	sk = rcu_dereference(c->sk);
	if (!sk) {
		rcu_read_unlock();
		return NULL;
	}
	spin_lock_bh(&sk->sk_lock.slock);
	if (!rcu_access_pointer(c->sk)) {
		ret = NULL;	/* detached before we had the lock */
	} else if (sock_owned_by_user_nocheck(sk)) {
		ret = ERR_PTR(-EBUSY);
	} else {
		/* Both are held on return. sparse knows no function that returns
		 * sometimes with and sometimes without them: told that they are not,
		 * it finds every way balanced.
		 */
		__release(&sk->sk_lock.slock);
		__release(RCU);
		return sk;
	}
	spin_unlock_bh(&sk->sk_lock.slock);
	rcu_read_unlock();
	return ret;
}

void socksplice_chan_unlock(struct sock *sk)
{
	__acquire(&sk->sk_lock.slock);	/* as _trylock told sparse */
	__acquire(RCU);
	spin_unlock_bh(&sk->sk_lock.slock);
	rcu_read_unlock();
}

struct socksplice_chan *socksplice_chan_attach(struct sock *sk, const struct ident *id,
					       const struct chan_memory *memory,
					       unsigned long flags)
{
	struct socksplice_chan *c;

	c = kmem_cache_zalloc(chan_cache, GFP_ATOMIC | __GFP_NOWARN);
	if (!c)
		return ERR_PTR(-ENOMEM);
	if (!socksplice_attached()) {
		kmem_cache_free(chan_cache, c);
		return ERR_PTR(-ENOENT);
	}

	c->slot = SLOT_CHAN;
	c->ident = *id;
	c->flags = flags;
	c->memory = *memory;
	ring_init(&c->ring, memory->ring_size);
	c->ring_limit = memory->ring_size;
	c->start = ktime_get_ns();
	c->netns_inum = sock_net(sk)->ns.inum;
	c->family = sk->sk_family;
	c->data_ready = READ_ONCE(sk->sk_data_ready);
	refcount_set(&c->ref, 1);
	mutex_init(&c->rx_mutex);
	RB_CLEAR_NODE(&c->in_pairs);
	INIT_HLIST_NODE(&c->ident.node);
	sock_hold(sk);
	rcu_assign_pointer(c->sk, sk);

	socksplice_slot_fill(sk, SLOT_CHAN, c);
	socksplice_clone_set(sk);
	return c;
}

bool socksplice_chan_is_done(const struct sock *sk, const struct socksplice_chan *c,
			     const struct socksplice_chan *peer)
{
	return !ring_len(&peer->ring) && !c->rx_between && !c->rx_partial && !c->tx_between &&
	       !(c->rx_sleepers && READ_ONCE(sk->sk_rcvlowat) > 1);
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

int __init socksplice_chan_init(void (*unpark_it)(struct socksplice_chan *c))
{
	int err;

	unpark = unpark_it;
	err = socksplice_slot_register(SLOT_CHAN, &ulp_ops);
	if (err)
		return err;
	chan_cache = KMEM_CACHE(socksplice_chan, SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT);
	if (!chan_cache)
		return -ENOMEM;
	err = socksplice_pages_init();
	if (err)
		kmem_cache_destroy(chan_cache);
	return err;
}

void socksplice_chan_exit(void)
{
	rcu_barrier();	/* chan_gone_rcu */
	socksplice_pages_exit();
	kmem_cache_destroy(chan_cache);
}
