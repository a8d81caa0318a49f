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

#endif /* SOCKSPLICE_LOOP_H */
