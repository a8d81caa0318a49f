// SPDX-License-Identifier: GPL-2.0
/* Since 6.17 WQ_PERCPU asks for a workqueue that is bound to CPUs. */
#include <linux/workqueue.h>

unsigned int probe(void);
unsigned int probe(void)
{
	return WQ_PERCPU;
}
