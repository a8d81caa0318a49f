/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All pairs: the tree that holds them by number, and walks over it.
 */
#ifndef SOCKSPLICE_PAIRS_H
#define SOCKSPLICE_PAIRS_H

#include "pair/end.h"

/* Joins two chans for good. The bucket lock is held. */
void socksplice_chan_link(struct socksplice_chan *a, struct socksplice_chan *b);

/* @c, which has a @peer, ends. True if both have: the pair is gone then. Any context. */
bool socksplice_pairs_leave(struct socksplice_chan *c, struct socksplice_chan *peer);

/* Calls @fn for each live pair whose order is above *@last, in that order, and sets
 * *@last; stops when @fn returns non-zero and returns that. @fn is called under
 * pairs_lock, which is given up after every few pairs, so that it is never held for
 * long: a pair that is there all the time is seen once, one that is made or ends
 * meanwhile may be or not. May sleep.
 */
int socksplice_pairs_walk(u64 *last, int (*fn)(struct socksplice_chan *active,
					       struct socksplice_chan *passive,
					       void *arg), void *arg);

#define PAIRS_BATCH	256	/* pairs that are held at one time */

struct pairs_batch {
	unsigned int n;
	struct socksplice_chan *chan[PAIRS_BATCH][2];
	bool (*want)(struct socksplice_chan *active, struct socksplice_chan *passive);
};

/* Calls @fn for each live pair that @want wants; @want under pairs_lock, @fn with
 * none, and the pair held. @batch is the caller's own. May sleep.
 */
void socksplice_pairs_each(struct pairs_batch *batch,
			   bool (*want)(struct socksplice_chan *active,
					struct socksplice_chan *passive),
			   void (*fn)(struct socksplice_chan *active,
				      struct socksplice_chan *passive));
unsigned int socksplice_pairs_live(void);

#endif /* SOCKSPLICE_PAIRS_H */
