/* SPDX-License-Identifier: GPL-2.0 */
/*
 * splice(2) on sockets that are in a BPF sockmap or sockhash. It delivers what read(2) would,
 * including the bytes in the psock's ingress queue.
 *
 * The room sockmap/ holds this alone, and knows nothing of pairs. The hook on tcp_splice_read()
 * brings it its calls. It may call core/ only. Only ctl/ and main.c may call it.
 */
#ifndef SOCKSPLICE_PSOCK_H
#define SOCKSPLICE_PSOCK_H

#include <linux/types.h>

/* True if the kernel serves splice(2) on sockmap sockets itself. Then this code serves nothing. */
bool sks_psock_is_native(void);

/* 0, or the reason why splice(2) on sockmap sockets cannot be served: the hook's error. */
int sks_psock_status(void);

/* Whether splice(2) on sockmap sockets is served. If it is off, the kernel's own function serves
 * all calls, and calls that are asleep go on in there. Switching it on changes nothing on a kernel
 * that serves such sockets itself.
 */
bool sks_psock_enabled(void);
void sks_psock_enable(bool on);	/* may sleep */

/* Registers with the hook on splice(2). Called before that is installed. */
void sks_psock_init(void);

#endif /* SOCKSPLICE_PSOCK_H */
