/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_LOOP_H
#define SOCKSPLICE_LOOP_H

#include "sosplice/splice.h"

void sks_loop_init(void);

void sks_loop_ident(const struct sock *sk, struct loop_ident *id);

/* Puts @s on the table, once. True if the bytes that it moves come back to it, or if that would
 * take too long to find out.
 */
bool sks_loop_closes(struct splice *s);
void sks_loop_forget(struct splice *s);

/* For UDP. Puts @s on the table once, before its first datagram. The source is locked. */
void sks_loop_join(struct splice *s);

/* How many splices of this machine the datagram has passed. */
unsigned int sks_loop_hops(const struct splice *s, const struct sk_buff *skb);

/* The sk_txhash with which @s sends a datagram that has passed @hops splices before: fewer than
 * LOOP_HOPS_MAX.
 */
u32 sks_loop_hash(const struct splice *s, unsigned int hops);

#define LOOP_HOPS_MAX	128	/* splices; a longer chain is taken for a loop */

#endif /* SOCKSPLICE_LOOP_H */
