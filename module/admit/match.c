// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/jhash.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "admit/match.h"
#include "core/ident.h"
#include "core/stats.h"
#include "pair/end.h"
#include "pair/pairs.h"
#include "pair/verdict.h"

#define IDENT_BITS	12
/* Most ends that park in one bucket. An attacker may choose both sequence numbers. */
#define BUCKET_LIMIT		64
#define PARK_TIME	(2 * HZ)	/* long enough for one retransmission of the SYN-ACK */

struct bucket {
	spinlock_t lock;	/* the list, and END_PARKED of the ends on it */
	struct hlist_head head;
};

static struct bucket *table;
static u32 seed;
static atomic_t parked = ATOMIC_INIT(0);

/* Ends that left the table without a peer and are still attached to their socket, by the node that
 * they had in the table. The list holds a reference on each. expire_work() only.
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
	/* Zero means that there is no hash. Under SYN cookies newer kernels stamp the sequence
	 * number itself, which is on the wire.
	 */
	if (!a->txhash || !b->txhash || a->txhash == a->iss || b->txhash == b->iss)
		return false;
	return a->txhash == b->rxhash && b->txhash == a->rxhash;
}

static bool addresses_mirror(const struct ident *a, const struct ident *b)
{
	return a->sport == b->dport && b->sport == a->dport &&
	       ipv6_addr_equal(&a->saddr, &b->daddr) && ipv6_addr_equal(&b->saddr, &a->daddr);
}

static bool tuples_mirror(const struct ident *a, const struct ident *b)
{
	return a->net == b->net && !a->bound_dev_if && !b->bound_dev_if && !a->transparent &&
	       !b->transparent && addresses_mirror(a, b);
}

static void unpark_locked(struct pair_end *end)
{
	hlist_del_init(&end->ident.node);
	/* An end that is not parked has its final peer, or never gets one. Pairs with
	 * sks_end_detach_if_unmatched().
	 */
	smp_mb__before_atomic();
	clear_bit(END_PARKED, &end->flags);
	atomic_dec(&parked);
}

bool sks_match(struct pair_end *end)
{
	struct bucket *b = bucket_of(&end->ident);
	struct pair_end *other;
	unsigned int n = 0;
	bool linked = false;

	spin_lock_bh(&b->lock);
	hlist_for_each_entry(other, &b->head, ident.node) {
		n++;
		if (other->ident.iss != end->ident.irs || other->ident.irs != end->ident.iss)
			continue;
		if (!hashes_mirror(&end->ident, &other->ident) &&
		    !tuples_mirror(&end->ident, &other->ident)) {
			sks_stat_inc(SOCKSPLICE_STAT_doubt_hash);
			set_bit(END_DOUBT, &end->flags);
			set_bit(END_DOUBT, &other->flags);
			continue;
		}
		if (!addresses_mirror(&end->ident, &other->ident)) {
			set_bit(END_TRANSLATED, &end->flags);
			set_bit(END_TRANSLATED, &other->flags);
		}
		/* @other is on the list. So it is attached, and its attachment's reference keeps
		 * it alive.
		 */
		sks_end_link(end, other);
		unpark_locked(other);
		linked = true;
		break;
	}
	if (!linked && n < BUCKET_LIMIT) {
		end->ident.expires = jiffies + PARK_TIME;
		set_bit(END_PARKED, &end->flags);
		hlist_add_head(&end->ident.node, &b->head);
		if (atomic_inc_return(&parked) == 1)
			schedule_delayed_work(&expire, HZ);
	}
	spin_unlock_bh(&b->lock);
	/* @end is neither linked nor parked, so the caller detaches it. */
	if (!linked && n >= BUCKET_LIMIT)
		sks_verdict_end(SOCKSPLICE_STAT_declined_crowd, "crowd", end);
	return linked;
}

void sks_match_unpark(struct pair_end *end)
{
	struct bucket *b = bucket_of(&end->ident);

	spin_lock_bh(&b->lock);
	if (test_bit(END_PARKED, &end->flags))
		unpark_locked(end);
	spin_unlock_bh(&b->lock);
}

static bool has_expired(const struct ident *id)
{
	return time_after_eq(jiffies, id->expires) ||
	       time_before_eq(id->expires, READ_ONCE(flushed_at) + PARK_TIME);
}

/* Detaches the ends whose socket no task owns right now. A call of the application on the socket
 * would do so too (sks_end_detach_if_unmatched()), but an idle application makes none.
 */
static void settle_left(void)
{
	struct pair_end *end;
	struct hlist_node *next;
	struct sock *sk;

	hlist_for_each_entry_safe(end, next, &left, ident.node) {
		cond_resched();
		sk = sks_end_trylock(end);
		if (IS_ERR(sk))
			continue;
		if (sk) {
			sks_end_detach(sk);
			sks_end_unlock(sk);
		}
		hlist_del_init(&end->ident.node);
		sks_end_put(end, NULL);
	}
}

/* Why @end found no peer: one of the counters expired_*. */
static enum sks_stat why_expired(const struct pair_end *end)
{
	if (!time_after_eq(jiffies, end->ident.expires))
		return SOCKSPLICE_STAT_expired_drain;
	if (test_bit(END_DOUBT, &end->flags))
		return SOCKSPLICE_STAT_expired_doubt;
	return test_bit(END_LOCAL, &end->flags) ? SOCKSPLICE_STAT_expired_not_enrolled :
						  SOCKSPLICE_STAT_expired_elsewhere;
}

static void expire_work(struct work_struct *work)
{
	struct pair_end *end;
	struct hlist_node *next;
	enum sks_stat why;
	int i;

	for (i = 0; i < 1 << IDENT_BITS; i++) {
		struct bucket *b = &table[i];

		if (hlist_empty(&b->head))
			continue;
		cond_resched();
		spin_lock_bh(&b->lock);
		hlist_for_each_entry_safe(end, next, &b->head, ident.node) {
			if (!has_expired(&end->ident))
				continue;
			unpark_locked(end);
			sks_end_hold(end);	/* there is no peer to hold */
			hlist_add_head(&end->ident.node, &left);
			why = why_expired(end);
			sks_verdict_end(why, sks_stat_name(why) + strlen("expired_"), end);
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

void sks_match_flush(void)
{
	WRITE_ONCE(flushed_at, jiffies);
	cancel_delayed_work(&expire);
	schedule_delayed_work(&expire, 0);
}

int sks_match_init(void)
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

/* The caller knows that no socket is attached, so no end parks any more. */
void sks_match_exit(void)
{
	cancel_delayed_work_sync(&expire);
	settle_left();
	kvfree(table);
}
