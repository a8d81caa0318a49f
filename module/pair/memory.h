/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the rings hold, and how much they may: all of them together, and those of one
 * memory group, which is whatever a policy says it is.
 */
#ifndef SOCKSPLICE_MEMORY_H
#define SOCKSPLICE_MEMORY_H

#include <linux/types.h>

struct memory_group;

/* The group with this id, made if there is none: counted, and to be put. NULL if there
 * is no memory. Never sleeps.
 */
struct memory_group *sks_memory_group_get(u32 id);
void sks_memory_group_put(struct memory_group *group);

/* Counts @size bytes, if neither the module's cap nor that of @group, which may be
 * NULL, is in the way: 0 for none. Else false, which is counted.
 */
bool sks_memory_charge(struct memory_group *group, u64 cap, u32 size);
void sks_memory_uncharge(struct memory_group *group, u32 size);

u64 sks_memory_held(void);	/* by all rings */

#endif /* SOCKSPLICE_MEMORY_H */
