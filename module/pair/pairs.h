/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All pairs: the tree that holds them by number, and walks over it.
 */
#ifndef SOCKSPLICE_PAIRS_H
#define SOCKSPLICE_PAIRS_H

#include "pair/end.h"

/* Joins two ends for good. The bucket lock is held. */
void sks_end_link(struct pair_end *a, struct pair_end *b);

/* @end, which has a @peer, ends. True if both have: the pair is gone then. Any context. */
bool sks_pairs_leave(struct pair_end *end, struct pair_end *peer);

/* Calls @fn for each live pair whose order is above *@last, in that order, and sets
 * *@last; stops when @fn returns non-zero and returns that. @fn is called under
 * pairs_lock, which is given up after every few pairs, so that it is never held for
 * long: a pair that is there all the time is seen once, one that is made or ends
 * meanwhile may be or not. May sleep.
 */
int sks_pairs_walk(u64 *last, int (*fn)(struct pair_end *active,
					struct pair_end *passive,
					void *arg), void *arg);

#define PAIRS_BATCH	256	/* pairs that are held at one time */

struct pairs_batch {
	unsigned int n;
	struct pair_end *chan[PAIRS_BATCH][2];
	bool (*want)(struct pair_end *active, struct pair_end *passive);
};

/* Calls @fn for each live pair that @want wants; @want under pairs_lock, @fn with
 * none, and the pair held. @batch is the caller's own. May sleep.
 */
void sks_pairs_each(struct pairs_batch *batch,
		    bool (*want)(struct pair_end *active,
				 struct pair_end *passive),
		    void (*fn)(struct pair_end *active,
			       struct pair_end *passive));
unsigned int sks_pairs_live(void);

#endif /* SOCKSPLICE_PAIRS_H */
