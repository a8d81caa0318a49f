/* SPDX-License-Identifier: GPL-2.0 */
#ifndef UML_BENCH_OPS_H
#define UML_BENCH_OPS_H

#include <linux/types.h>

/* Sends splice(2) on the caller's IPv4 TCP socket @fd to the module, where its hook
 * sends it on a kernel that has ftrace; or to copy_splice_read(), which is how the
 * kernel splices from a file that has no way of its own. -EINVAL the second time.
 */
int ops_hook(int fd, bool by_module);

#endif /* UML_BENCH_OPS_H */
