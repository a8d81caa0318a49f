// SPDX-License-Identifier: GPL-2.0
/* Newer kernels call the workqueue that is bound to no CPU system_dfl_wq. */
#include <linux/workqueue.h>

struct workqueue_struct *probe(void);
struct workqueue_struct *probe(void)
{
	return system_dfl_wq;
}
