/* SPDX-License-Identifier: GPL-2.0 */
/* The socket option SO_SPLICE: its arguments, and the ways in which calls reach it. */
#ifndef SOCKSPLICE_SOCKOPT_H
#define SOCKSPLICE_SOCKOPT_H

#include <linux/sockptr.h>

struct sock;

/* Opens both ways in. 0, or -EBUSY if other code has the option's number. */
int sks_sockopt_init(void);
void sks_sockopt_exit(void);

/* Sets whether new splices are accepted. If not, they get -ENOPROTOOPT. May sleep. */
void sks_sockopt_enable(bool on);

/* setsockopt(SO_SPLICE) with @len bytes at @arg; see so_splice(4). */
int sks_sockopt_set(struct sock *sk, sockptr_t arg, unsigned int len);

/* getsockopt(SO_SPLICE). *@len is the room at @val, and on return the number of bytes written. */
int sks_sockopt_get(const struct sock *sk, sockptr_t val, int *len);

#endif /* SOCKSPLICE_SOCKOPT_H */
