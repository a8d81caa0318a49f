// SPDX-License-Identifier: GPL-2.0
#include <linux/rbtree.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "pair/end.h"
#include "pair/pairs.h"

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

bool socksplice_pairs_leave(struct socksplice_chan *c, struct socksplice_chan *peer)
{
	bool last;

	spin_lock_bh(&pairs_lock);
	set_bit(CHAN_ENDED, &c->flags);
	last = test_bit(CHAN_ENDED, &peer->flags);
	if (last) {
		rb_erase(RB_EMPTY_NODE(&c->in_pairs) ? &peer->in_pairs : &c->in_pairs, &pairs);
		WRITE_ONCE(pairs_live, pairs_live - 1);
	}
	spin_unlock_bh(&pairs_lock);
	return last;
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
