/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_EVICT_H
#define SOCKSPLICE_EVICT_H

#include <linux/types.h>

struct sock;

/* Sends tasks that sleep in a read of the source, which is locked, out of it. They enter the call
 * again, and find our function for sources. True if there were such tasks: they are on their way.
 * Also true if one task could not be looked at just now.
 */
bool sks_evict_expel(struct sock *sk);

#endif /* SOCKSPLICE_EVICT_H */
