// SPDX-License-Identifier: GPL-2.0
/* A list_lru that knows memory cgroups takes a lock class of its own by a function. */
#include <linux/list_lru.h>

int probe(struct list_lru *lru, struct shrinker *shrinker, struct lock_class_key *key);
int probe(struct list_lru *lru, struct shrinker *shrinker, struct lock_class_key *key)
{
	return list_lru_init_memcg_key(lru, shrinker, key);
}
