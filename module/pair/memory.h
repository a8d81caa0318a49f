/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How much memory the rings hold, and how much they may: all of them together, and those of one
 * memory group. The policy that enrolls an end names its group by a number.
 */
#ifndef SOCKSPLICE_MEMORY_H
#define SOCKSPLICE_MEMORY_H

#include <linux/types.h>

struct memory_group;

/* Returns the group with this id, and makes it if there is none. The caller gets a reference, and
 * puts it. NULL if there is no memory. Never sleeps.
 */
struct memory_group *sks_memory_group_get(u32 id);
void sks_memory_group_put(struct memory_group *group);

/* Counts @size bytes. Returns false, and counts nothing but the failure, if the module's cap or
 * that of @group forbids it. @group may be NULL. A cap of 0 means no limit.
 */
bool sks_memory_charge(struct memory_group *group, u64 cap, u32 size);
void sks_memory_uncharge(struct memory_group *group, u32 size);

u64 sks_memory_held(void);	/* bytes of all rings */

#endif /* SOCKSPLICE_MEMORY_H */
