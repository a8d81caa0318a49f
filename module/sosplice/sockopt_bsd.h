/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The call of the BSDs, setsockopt(fd, SOL_SOCKET, SO_SPLICE, …) and its getsockopt.
 *
 * The kernel answers what it does not know of SOL_SOCKET by itself and asks nobody, so
 * its two functions are redirected, for this one option. That costs every other option
 * of SOL_SOCKET a few instructions; it is done when SO_SPLICE is first switched on, and
 * stays until the module goes or so_splice_literal is set to 0, so that splices can be
 * ended while SO_SPLICE is off.
 */
#ifndef SOCKSPLICE_LITERAL_H
#define SOCKSPLICE_LITERAL_H

#include <linux/types.h>

/* The number that OpenBSD and FreeBSD gave it. */
#define LITERAL_SO_SPLICE	0x1023

#define LITERAL_UNUSED	1	/* not asked for */

/* May sleep, as all of these. From init on the other functions work. */
void sks_sockopt_bsd_init(void);

/* No call is redirected after this, but some may still be inside. */
void sks_sockopt_bsd_exit(void);

/* Redirects, or undoes it, as is wanted now. */
void sks_sockopt_bsd_update(void);

/* 0 if calls are redirected, LITERAL_UNUSED, or why they cannot be (-errno). */
int sks_sockopt_bsd_status(void);

#endif /* SOCKSPLICE_LITERAL_H */
