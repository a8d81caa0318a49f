// SPDX-License-Identifier: GPL-2.0
/* Since 6.13 list_lru_init_memcg_key() gives a list_lru a lock class of its own. */
#include <linux/list_lru.h>

int probe(struct list_lru *lru, struct shrinker *shrinker, struct lock_class_key *key);
int probe(struct list_lru *lru, struct shrinker *shrinker, struct lock_class_key *key)
{
	return list_lru_init_memcg_key(lru, shrinker, key);
}
