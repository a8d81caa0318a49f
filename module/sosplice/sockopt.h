/* SPDX-License-Identifier: GPL-2.0 */
/* The socket option SO_SPLICE: what it takes and gives, and where it comes in. */
#ifndef SOCKSPLICE_SOPT_H
#define SOCKSPLICE_SOPT_H

#include <linux/sockptr.h>

struct sock;

/* Opens both ways. 0, or -EBUSY where something else has the option's number. */
int sks_sockopt_init(void);
void sks_sockopt_exit(void);

/* Whether new splices are accepted; else -ENOPROTOOPT. May sleep. */
void sks_sockopt_enable(bool on);

/* setsockopt(SO_SPLICE) with @len bytes at @arg; see so_splice(4). */
int sks_sockopt_set(struct sock *sk, sockptr_t arg, unsigned int len);

/* getsockopt(SO_SPLICE): *@len bytes are at @val, and then as many as were written. */
int sks_sockopt_get(const struct sock *sk, sockptr_t val, int *len);

#endif /* SOCKSPLICE_SOPT_H */
