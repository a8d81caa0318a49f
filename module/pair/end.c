// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching a chan to a socket and taking it off again; see end.h for what
 * keeps what alive.
 *
 * A socket is ours by two words, both written under its lock: sk_prot, which
 * brings its system calls to proto.c, and the ULP slot, which
 *   - tells us of the socket's end: tcp_cleanup_ulp() calls ->release once,
 *     whatever way the socket dies, and then drops the module reference;
 *   - keeps kTLS, sockmap, MPTCP and listen() away, all of which would copy or
 *     overwrite sk_prot without asking.
 * The slot is written directly, because tcp_set_ulp() is not exported.
 */
#include <linux/gfp.h>
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/rbtree.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "admit/match.h"
#include "compat/compat.h"
#include "core/inflight.h"
#include "core/stats.h"
#include "datapath/proto.h"
#include "datapath/rcvlowat.h"
#include "pair/end.h"
#include "pair/memory.h"
#include "pair/pages.h"
#include "pair/verdict.h"
#include "sosplice/splice.h"

static struct kmem_cache *chan_cache;

/* All pairs, by their order, each by the chan of the end that is shown first. A tree,
 * so that a walk that gave up the lock finds where it was, whatever has ended since.
 */
static struct rb_root pairs = RB_ROOT;
static u64 pairs_order;
static unsigned int pairs_live;
static DEFINE_SPINLOCK(pairs_lock);	/* the tree, the two above, CHAN_ENDED */

#define PAIRS_WALK	64	/* pairs that are looked at under the lock at one time */

unsigned int socksplice_pairs_live(void)
{
	return READ_ONCE(pairs_live);
}

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
	socksplice_match_unpark(c);

	peer = socksplice_chan_peer(c);
	if (peer) {
		socksplice_kick_leave(c);
		spin_lock_bh(&pairs_lock);
		set_bit(CHAN_ENDED, &c->flags);
		if (test_bit(CHAN_ENDED, &peer->flags)) {
			rb_erase(RB_EMPTY_NODE(&c->in_pairs) ? &peer->in_pairs :
							       &c->in_pairs, &pairs);
			WRITE_ONCE(pairs_live, pairs_live - 1);
			last = true;
		}
		spin_unlock_bh(&pairs_lock);
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
		socksplice_soend_release(sk, end);
		module_put(THIS_MODULE);	/* the core drops one, for the chan */
	}
	/* sk_prot is still used to uncharge what the socket holds. */
	socksplice_proto_restore(sk);
	rcu_assign_pointer(icsk->icsk_ulp_data, NULL);
	chan_end(sk, c);
}

void socksplice_chan_detach(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct socksplice_chan *c = socksplice_chan_get(sk);

	sock_owned_by_me(sk);
	if (c->end) {
		/* c->end stays, for who has found @c a moment ago, under RCU. */
		socksplice_soend_inherit(sk, c->end);
	} else {
		/* Ops before data, for socksplice_slot_get_rcu(). Ops before sk_prot: a
		 * getsockopt(TCP_ULP) that finds TCP's function finds no ULP of ours there.
		 */
		WRITE_ONCE(icsk->icsk_ulp_ops, NULL);
		smp_wmb();
		RCU_INIT_POINTER(icsk->icsk_ulp_data, NULL);
		socksplice_proto_restore(sk);
	}
	chan_end(sk, c);
	/* Our own text is on the stack; inflight.h has what keeps it. */
	module_put(THIS_MODULE);
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
	struct inet_connection_sock *icsk = inet_csk(sk);
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

	/* Data before ops: who sees our ops finds a chan or NULL. */
	rcu_assign_pointer(icsk->icsk_ulp_data, c);
	smp_store_release(&icsk->icsk_ulp_ops, socksplice_ulp);
	WRITE_ONCE(sk->sk_prot, socksplice_proto_clone(sk));
	return c;
}

bool socksplice_chan_is_done(const struct sock *sk, const struct socksplice_chan *c,
			     const struct socksplice_chan *peer)
{
	return !ring_len(&peer->ring) && !c->rx_between && !c->rx_partial && !c->tx_between &&
	       !(c->rx_sleepers && READ_ONCE(sk->sk_rcvlowat) > 1);
}

/* The newest pair has the highest order. */
static void pairs_insert(struct socksplice_chan *c)
{
	struct rb_node **p = &pairs.rb_node, *parent = NULL;

	lockdep_assert_held(&pairs_lock);
	while (*p) {
		parent = *p;
		p = &parent->rb_right;
	}
	rb_link_node(&c->in_pairs, parent, p);
	rb_insert_color(&c->in_pairs, &pairs);
}

static struct socksplice_chan *pairs_entry(struct rb_node *n)
{
	return rb_entry_safe(n, struct socksplice_chan, in_pairs);
}

/* The first whose order is above @order. */
static struct socksplice_chan *pairs_above(u64 order)
{
	struct socksplice_chan *c = pairs_entry(pairs.rb_node), *found = NULL;

	lockdep_assert_held(&pairs_lock);
	while (c) {
		if (c->order > order) {
			found = c;
			c = pairs_entry(c->in_pairs.rb_left);
		} else {
			c = pairs_entry(c->in_pairs.rb_right);
		}
	}
	return found;
}

void socksplice_chan_link(struct socksplice_chan *a, struct socksplice_chan *b)
{
	struct socksplice_chan *first = test_bit(CHAN_ACTIVE, &a->flags) ? a : b;

	refcount_inc(&a->ref);
	refcount_inc(&b->ref);

	/* Whoever finds the pair in the tree finds it whole. Neither end can
	 * end before that: @a's socket is ours, @b's would need the bucket lock
	 * to leave the table.
	 */
	spin_lock_bh(&pairs_lock);
	do {
		a->order = ++pairs_order;
	} while (!(u32)a->order);	/* no pair has the number 0 */
	b->order = a->order;
	a->id = b->id = (u32)a->order;
	/* Pairs with socksplice_chan_peer(). */
	smp_store_release(&a->peer, b);
	smp_store_release(&b->peer, a);
	pairs_insert(first);
	WRITE_ONCE(pairs_live, pairs_live + 1);
	spin_unlock_bh(&pairs_lock);
}

int socksplice_pairs_walk(u64 *last, int (*fn)(struct socksplice_chan *active,
					       struct socksplice_chan *passive,
					       void *arg), void *arg)
{
	struct socksplice_chan *c;
	int err = 0, n;

	do {
		spin_lock_bh(&pairs_lock);
		c = pairs_above(*last);
		for (n = 0; c && n < PAIRS_WALK; n++) {
			err = fn(c, socksplice_chan_peer(c), arg);
			if (err)
				break;
			*last = c->order;
			c = pairs_entry(rb_next(&c->in_pairs));
		}
		spin_unlock_bh(&pairs_lock);
		cond_resched();
	} while (c && !err);
	return err;
}

/* Under pairs_lock, so the pair's chans are alive: keep them so. */
static int batch_add(struct socksplice_chan *a, struct socksplice_chan *b, void *arg)
{
	struct pairs_batch *batch = arg;

	if (!batch->want(a, b))
		return 0;
	if (batch->n == PAIRS_BATCH)
		return -EAGAIN;
	refcount_inc(&a->ref);
	refcount_inc(&b->ref);
	batch->chan[batch->n][0] = a;
	batch->chan[batch->n][1] = b;
	batch->n++;
	return 0;
}

void socksplice_pairs_each(struct pairs_batch *batch,
			   bool (*want)(struct socksplice_chan *active,
					struct socksplice_chan *passive),
			   void (*fn)(struct socksplice_chan *active,
				      struct socksplice_chan *passive))
{
	unsigned int i;
	u64 last = 0;
	int more;

	batch->want = want;
	do {
		batch->n = 0;
		more = socksplice_pairs_walk(&last, batch_add, batch);
		for (i = 0; i < batch->n; i++) {
			fn(batch->chan[i][0], batch->chan[i][1]);
			socksplice_chan_put(batch->chan[i][0], batch->chan[i][1]);
			cond_resched();	/* users decide how long a fn takes */
		}
	} while (more);
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

const struct tcp_ulp_ops *socksplice_ulp __ro_after_init;

const struct tcp_ulp_ops *socksplice_ulp_make(const struct tcp_ulp_ops *ops)
{
	struct tcp_ulp_ops *copy = kmemdup(ops, sizeof(*ops), GFP_KERNEL);

	kmemleak_not_leak(copy);
	return copy;
}

int socksplice_chan_init(void)
{
	int err;

	socksplice_ulp = socksplice_ulp_make(&ulp_ops);
	if (!socksplice_ulp)
		return -ENOMEM;
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
