// SPDX-License-Identifier: GPL-2.0
/* The workqueue that is bound to no CPU has its new name. */
#include <linux/workqueue.h>

struct workqueue_struct *probe(void);
struct workqueue_struct *probe(void)
{
	return system_dfl_wq;
}
