// SPDX-License-Identifier: GPL-2.0
/* Until 6.13 the callback of list_lru_walk_one() gets the list's lock as an argument. */
#include <linux/list_lru.h>

enum lru_status probe(struct list_head *item, struct list_lru_one *list, spinlock_t *lock,
		      void *arg);
enum lru_status probe(struct list_head *item, struct list_lru_one *list, spinlock_t *lock,
		      void *arg)
{
	list_lru_walk_cb cb = probe;

	return cb(item, list, lock, arg);
}
