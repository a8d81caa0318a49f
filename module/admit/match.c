// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/jhash.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "admit/match.h"
#include "core/ident.h"
#include "core/stats.h"
#include "pair/end.h"
#include "pair/pairs.h"
#include "pair/verdict.h"

#define IDENT_BITS	12
/* Most ends that park in one bucket, because an attacker may choose both numbers. */
#define CROWD		64
#define PARK_TIME	(2 * HZ)	/* long enough for one retransmission of the SYN-ACK */

struct bucket {
	spinlock_t lock;	/* the list, and CHAN_PARKED of those on it */
	struct hlist_head head;
};

static struct bucket *table;
static u32 seed;
static atomic_t parked = ATOMIC_INIT(0);

/* Ends that left the table without a peer and whose chan is still on its socket, by the node
 * they had in the table. Each entry holds a reference on its chan. expire_work() only.
 */
static HLIST_HEAD(left);

static unsigned long flushed_at;	/* jiffies; ends that parked before this have expired */

static void expire_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(expire, expire_work);

static struct bucket *bucket_of(const struct ident *id)
{
	u32 lo = min(id->iss, id->irs), hi = max(id->iss, id->irs);

	return &table[jhash_2words(lo, hi, seed) >> (32 - IDENT_BITS)];
}

static bool hashes_mirror(const struct ident *a, const struct ident *b)
{
	/* Zero means none. Under SYN cookies newer kernels stamp the sequence
	 * number itself, which does stand on the wire.
	 */
	if (!a->txhash || !b->txhash || a->txhash == a->iss || b->txhash == b->iss)
		return false;
	return a->txhash == b->rxhash && b->txhash == a->rxhash;
}

static bool addresses_mirror(const struct ident *a, const struct ident *b)
{
	return a->sport == b->dport && b->sport == a->dport &&
	       ipv6_addr_equal(&a->saddr, &b->daddr) &&
	       ipv6_addr_equal(&b->saddr, &a->daddr);
}

static bool tuples_mirror(const struct ident *a, const struct ident *b)
{
	return a->net == b->net && !a->bound_dev_if && !b->bound_dev_if &&
	       !a->transparent && !b->transparent && addresses_mirror(a, b);
}

static void unpark_locked(struct socksplice_chan *c)
{
	hlist_del_init(&c->ident.node);
	/* A chan that is not parked is linked already or never will be: pairs
	 * with socksplice_proto_settle().
	 */
	smp_mb__before_atomic();
	clear_bit(CHAN_PARKED, &c->flags);
	atomic_dec(&parked);
}

bool socksplice_match(struct socksplice_chan *c)
{
	struct bucket *b = bucket_of(&c->ident);
	struct socksplice_chan *other;
	unsigned int n = 0;
	bool linked = false;

	spin_lock_bh(&b->lock);
	hlist_for_each_entry(other, &b->head, ident.node) {
		n++;
		if (other->ident.iss != c->ident.irs ||
		    other->ident.irs != c->ident.iss)
			continue;
		if (!hashes_mirror(&c->ident, &other->ident) &&
		    !tuples_mirror(&c->ident, &other->ident)) {
			socksplice_stat_inc(SOCKSPLICE_STAT_doubt_hash);
			continue;
		}
		if (!addresses_mirror(&c->ident, &other->ident)) {
			set_bit(CHAN_TRANSLATED, &c->flags);
			set_bit(CHAN_TRANSLATED, &other->flags);
		}
		/* It is on the list, so it is attached and its own reference keeps it alive. */
		socksplice_chan_link(c, other);
		unpark_locked(other);
		linked = true;
		break;
	}
	if (!linked && n < CROWD) {
		c->ident.expires = jiffies + PARK_TIME;
		set_bit(CHAN_PARKED, &c->flags);
		hlist_add_head(&c->ident.node, &b->head);
		if (atomic_inc_return(&parked) == 1)
			schedule_delayed_work(&expire, HZ);
	}
	spin_unlock_bh(&b->lock);
	/* It is neither linked nor parked, so the caller detaches it. */
	if (!linked && n >= CROWD)
		socksplice_event_chan(SOCKSPLICE_STAT_declined_crowd, "crowd", c);
	return linked;
}

void socksplice_match_unpark(struct socksplice_chan *c)
{
	struct bucket *b = bucket_of(&c->ident);

	spin_lock_bh(&b->lock);
	if (test_bit(CHAN_PARKED, &c->flags))
		unpark_locked(c);
	spin_unlock_bh(&b->lock);
}

static bool has_expired(const struct ident *id)
{
	return time_after_eq(jiffies, id->expires) ||
	       time_before_eq(id->expires, READ_ONCE(flushed_at) + PARK_TIME);
}

/* Detaches the ends whose socket no task owns right now. A call of the application on the
 * socket would do so too (socksplice_proto_settle), but an idle application makes none.
 */
static void settle_left(void)
{
	struct socksplice_chan *c;
	struct hlist_node *next;
	struct sock *sk;

	hlist_for_each_entry_safe(c, next, &left, ident.node) {
		cond_resched();
		sk = socksplice_chan_trylock(c);
		if (IS_ERR(sk))
			continue;
		if (sk) {
			socksplice_chan_detach(sk);
			socksplice_chan_unlock(sk);
		}
		hlist_del_init(&c->ident.node);
		socksplice_chan_put(c, NULL);
	}
}

static void expire_work(struct work_struct *work)
{
	struct socksplice_chan *c;
	struct hlist_node *next;
	int i;

	for (i = 0; i < 1 << IDENT_BITS; i++) {
		struct bucket *b = &table[i];

		if (hlist_empty(&b->head))
			continue;
		cond_resched();
		spin_lock_bh(&b->lock);
		hlist_for_each_entry_safe(c, next, &b->head, ident.node) {
			if (!has_expired(&c->ident))
				continue;
			unpark_locked(c);
			socksplice_chan_hold(c);	/* no peer to hold */
			hlist_add_head(&c->ident.node, &left);
			socksplice_event_chan(SOCKSPLICE_STAT_park_expired,
					      time_after_eq(jiffies, c->ident.expires) ?
					      "no_peer" : "drain", c);
		}
		spin_unlock_bh(&b->lock);
	}
	settle_left();
	/* The next end that parks starts the work again. */
	if (!hlist_empty(&left))
		schedule_delayed_work(&expire, HZ / 10);
	else if (atomic_read(&parked))
		schedule_delayed_work(&expire, HZ);
}

void socksplice_match_flush(void)
{
	WRITE_ONCE(flushed_at, jiffies);
	cancel_delayed_work(&expire);
	schedule_delayed_work(&expire, 0);
}

int socksplice_match_init(void)
{
	int i;

	table = kvcalloc(1 << IDENT_BITS, sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	seed = get_random_u32();
	for (i = 0; i < 1 << IDENT_BITS; i++)
		spin_lock_init(&table[i].lock);
	flushed_at = jiffies - PARK_TIME;
	return 0;
}

/* No socket is attached, so no end parks any more. */
void socksplice_match_exit(void)
{
	cancel_delayed_work_sync(&expire);
	settle_left();
	kvfree(table);
}
