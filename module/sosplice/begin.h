/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_BEGIN_H
#define SOCKSPLICE_BEGIN_H

#include <net/sock.h>

int sks_splice_init(void);
void sks_splice_exit(void);

extern bool sks_splice_enabled;	/* set by sks_sockopt_enable() */

/* True if the socket is TCP or UDP. */
bool sks_splice_can(const struct sock *sk);

/* setsockopt(SO_SPLICE). @src is not locked. @max is in bytes, @idle_us in µs; 0 means no limit
 * for both. @fd < 0 ends the splice. Returns 0 or an errno that so_splice(4) lists.
 */
int sks_splice_set(struct sock *src, int fd, s64 max, u64 idle_us);

/* Bytes that the present splice has moved, or else the last one. */
u64 sks_splice_moved(const struct sock *sk);

#endif /* SOCKSPLICE_BEGIN_H */
