// SPDX-License-Identifier: GPL-2.0
#include <linux/rbtree.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "pair/end.h"
#include "pair/pairs.h"

/* All pairs, sorted by their order. A pair is in the tree by the end that is shown first, which is
 * the active opener's if there is one. After a walk has dropped the lock, the tree lets it find
 * its place again, whatever has ended since.
 */
static struct rb_root pairs = RB_ROOT;
static u64 pairs_order;
static unsigned int pairs_live;
static DEFINE_SPINLOCK(pairs_lock);	/* protects the tree, the two above and END_ENDED */

#define PAIRS_WALK	64	/* pairs that a walk visits before it drops the lock */

unsigned int sks_pairs_live(void)
{
	return READ_ONCE(pairs_live);
}

/* The newest pair has the highest order. */
static void pairs_insert(struct pair_end *end)
{
	struct rb_node **p = &pairs.rb_node, *parent = NULL;

	lockdep_assert_held(&pairs_lock);
	while (*p) {
		parent = *p;
		p = &parent->rb_right;
	}
	rb_link_node(&end->in_pairs, parent, p);
	rb_insert_color(&end->in_pairs, &pairs);
}

static struct pair_end *pairs_entry(struct rb_node *n)
{
	return rb_entry_safe(n, struct pair_end, in_pairs);
}

/* The first pair whose order is above @order. */
static struct pair_end *pairs_above(u64 order)
{
	struct pair_end *end = pairs_entry(pairs.rb_node), *found = NULL;

	lockdep_assert_held(&pairs_lock);
	while (end) {
		if (end->order > order) {
			found = end;
			end = pairs_entry(end->in_pairs.rb_left);
		} else {
			end = pairs_entry(end->in_pairs.rb_right);
		}
	}
	return found;
}

void sks_end_link(struct pair_end *a, struct pair_end *b)
{
	struct pair_end *first = test_bit(END_ACTIVE, &a->flags) ? a : b;

	refcount_inc(&a->ref);
	refcount_inc(&b->ref);

	/* A task that finds the pair in the tree finds it complete. Neither end can be detached
	 * before that: the caller has @a's socket, and @b's end would need the bucket's lock to
	 * leave the table.
	 */
	spin_lock_bh(&pairs_lock);
	do {
		a->order = ++pairs_order;
	} while (!(u32)a->order);	/* no pair has the number 0 */
	b->order = a->order;
	a->id = b->id = (u32)a->order;
	/* Pairs with sks_end_peer(). */
	smp_store_release(&a->peer, b);
	smp_store_release(&b->peer, a);
	pairs_insert(first);
	WRITE_ONCE(pairs_live, pairs_live + 1);
	spin_unlock_bh(&pairs_lock);
}

bool sks_pairs_leave(struct pair_end *end, struct pair_end *peer)
{
	bool last;

	spin_lock_bh(&pairs_lock);
	set_bit(END_ENDED, &end->flags);
	last = test_bit(END_ENDED, &peer->flags);
	if (last) {
		rb_erase(RB_EMPTY_NODE(&end->in_pairs) ? &peer->in_pairs : &end->in_pairs, &pairs);
		WRITE_ONCE(pairs_live, pairs_live - 1);
	}
	spin_unlock_bh(&pairs_lock);
	return last;
}

int sks_pairs_walk(u64 *last,
		   int (*fn)(struct pair_end *active, struct pair_end *passive, void *arg),
		   void *arg)
{
	struct pair_end *end;
	int err = 0, n;

	do {
		spin_lock_bh(&pairs_lock);
		end = pairs_above(*last);
		for (n = 0; end && n < PAIRS_WALK; n++) {
			err = fn(end, sks_end_peer(end), arg);
			if (err)
				break;
			*last = end->order;
			end = pairs_entry(rb_next(&end->in_pairs));
		}
		spin_unlock_bh(&pairs_lock);
		cond_resched();
	} while (end && !err);
	return err;
}

/* Adds the pair and takes references. Runs under pairs_lock, so both ends are still alive. */
static int batch_add(struct pair_end *a, struct pair_end *b, void *arg)
{
	struct pairs_batch *batch = arg;

	if (!batch->want(a, b))
		return 0;
	if (batch->n == PAIRS_BATCH)
		return -EAGAIN;
	refcount_inc(&a->ref);
	refcount_inc(&b->ref);
	batch->ends[batch->n][0] = a;
	batch->ends[batch->n][1] = b;
	batch->n++;
	return 0;
}

void sks_pairs_each(struct pairs_batch *batch,
		    bool (*want)(struct pair_end *active, struct pair_end *passive),
		    void (*fn)(struct pair_end *active, struct pair_end *passive))
{
	unsigned int i;
	u64 last = 0;
	int more;

	batch->want = want;
	do {
		batch->n = 0;
		more = sks_pairs_walk(&last, batch_add, batch);
		for (i = 0; i < batch->n; i++) {
			fn(batch->ends[i][0], batch->ends[i][1]);
			sks_end_put(batch->ends[i][0], batch->ends[i][1]);
			cond_resched();	/* users decide how long @fn takes */
		}
	} while (more);
}
