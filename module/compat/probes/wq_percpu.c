// SPDX-License-Identifier: GPL-2.0
/* Workqueues that are bound to CPUs are asked for. */
#include <linux/workqueue.h>

unsigned int probe(void);
unsigned int probe(void)
{
	return WQ_PERCPU;
}
