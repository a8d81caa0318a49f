/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The struct proto of a paired socket: a clone of tcp_prot or of tcpv6_prot whose functions
 * datapath/ sets at init.
 */
#ifndef SOCKSPLICE_CLONE_H
#define SOCKSPLICE_CLONE_H

#include <net/sock.h>

/* Makes the clones, and calls @fill to set the functions of each. Called once, before any socket
 * is attached. -EOPNOTSUPP if this kernel's tcp_prot and tcpv6_prot have different functions.
 */
int sks_clone_init(void (*fill)(struct proto *clone));

/* Gives @sk, which is locked, the clone of its struct proto. sks_clone_knows() that proto. */
void sks_clone_set(struct sock *sk);

/* Gives @sk, which is locked, the kernel's own struct proto again. */
void sks_clone_unset(struct sock *sk);

/* The clone of tcpv6_prot or of tcp_prot. All its functions also serve a socket that has lost its
 * end.
 */
struct proto *sks_clone_of(bool v6);

/* True if @prot is one of the two that can be cloned. */
bool sks_clone_knows(const struct proto *prot);

/* Other code in the kernel has kept a pointer to something of ours. So the module stays loaded,
 * and the log says so.
 */
void sks_taken_over(void);

#endif /* SOCKSPLICE_CLONE_H */
