// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>

#include "core/stats.h"

DEFINE_PER_CPU(struct sks_stats, sks_stats);

static const char *const names[] = {
#define X(name) #name,
	SOCKSPLICE_STATS(X)
#undef X
};

const char *sks_stat_name(unsigned int i)
{
	return names[i];
}

u64 sks_stat_sum(unsigned int i)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(sks_stats, cpu).v[i];
	return sum;
}
