/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The call of the BSDs: setsockopt(fd, SOL_SOCKET, SO_SPLICE, …), and its getsockopt.
 *
 * The kernel rejects options of SOL_SOCKET that it does not know, and asks no other code. So its
 * two functions are redirected, for this one option. That costs every other option of SOL_SOCKET a
 * few instructions. It is done when SO_SPLICE is first switched on, and stays until the module
 * goes or so_splice_literal is set to 0. So splices can be ended while SO_SPLICE is off.
 */
#ifndef SOCKSPLICE_SOCKOPT_BSD_H
#define SOCKSPLICE_SOCKOPT_BSD_H

#include <linux/types.h>

/* The number of SO_SPLICE on OpenBSD and FreeBSD. */
#define LITERAL_SO_SPLICE	0x1023

#define LITERAL_UNUSED	1	/* not switched on */

/* From init on the other functions work. All functions here may sleep, except the status. */
void sks_sockopt_bsd_init(void);

/* No call is redirected after this, but some may still be inside. */
void sks_sockopt_bsd_exit(void);

/* Redirects calls, or stops that, as the switches say now. */
void sks_sockopt_bsd_update(void);

/* 0 if calls are redirected, LITERAL_UNUSED, or why they cannot be (-errno). */
int sks_sockopt_bsd_status(void);

#endif /* SOCKSPLICE_SOCKOPT_BSD_H */
