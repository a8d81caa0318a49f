/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All pairs: the tree that holds them by number, and the walks over it.
 */
#ifndef SOCKSPLICE_PAIRS_H
#define SOCKSPLICE_PAIRS_H

#include "pair/end.h"

/* Makes @a and @b the two ends of a pair, for good. The bucket's lock is held. */
void sks_end_link(struct pair_end *a, struct pair_end *b);

/* Records that @end, which has a @peer, is detached. True if both are: the pair is gone then. Any
 * context.
 */
bool sks_pairs_leave(struct pair_end *end, struct pair_end *peer);

/* Calls @fn for each live pair whose order is above *@last, in that order, and sets *@last. Stops
 * when @fn returns non-zero, and returns that. @fn runs under pairs_lock. The walk drops the lock
 * after every few pairs, so that it is never held for long. A pair that is there all the time is
 * seen once. A pair that is made or ends meanwhile may be seen or not. May sleep.
 */
int sks_pairs_walk(u64 *last,
		   int (*fn)(struct pair_end *active, struct pair_end *passive, void *arg),
		   void *arg);

#define PAIRS_BATCH	256	/* pairs that one batch holds */

struct pairs_batch {
	unsigned int n;
	struct pair_end *ends[PAIRS_BATCH][2];
	bool (*want)(struct pair_end *active, struct pair_end *passive);
};

/* Calls @fn for each live pair for which @want is true. @want runs under pairs_lock. @fn runs
 * without a lock, on a pair that is held. @batch belongs to the caller. May sleep.
 */
void sks_pairs_each(struct pairs_batch *batch,
		    bool (*want)(struct pair_end *active, struct pair_end *passive),
		    void (*fn)(struct pair_end *active, struct pair_end *passive));
unsigned int sks_pairs_live(void);

#endif /* SOCKSPLICE_PAIRS_H */
