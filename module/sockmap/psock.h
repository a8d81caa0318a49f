/* SPDX-License-Identifier: GPL-2.0 */
/*
 * splice(2) on sockets that are in a BPF sockmap or sockhash: delivers what
 * read(2) would, the bytes in the psock's ingress queue included.
 */
#ifndef SOCKSPLICE_PSOCK_H
#define SOCKSPLICE_PSOCK_H

#include <linux/types.h>

/* Whether the kernel serves splice(2) on sockmap sockets itself: nothing of ours does then. */
bool sks_psock_is_native(void);

/* Why splice(2) on sockmap sockets cannot be served: without the hook, its error. */
int sks_psock_status(void);

/* Whether splice(2) on sockmap sockets is served. Off leaves everything to the
 * kernel; calls that are asleep go on in the kernel's own function. Turning it
 * on changes nothing on a kernel that serves it natively.
 */
bool sks_psock_enabled(void);
void sks_psock_enable(bool on);	/* may sleep */

/* Registers with the hook on splice(2), which comes up after this. */
void sks_psock_init(void);

#endif /* SOCKSPLICE_PSOCK_H */
