/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_LOOP_H
#define SOCKSPLICE_LOOP_H

#include "sosplice/splice.h"

void socksplice_loop_init(void);

void socksplice_loop_ident(const struct sock *sk, struct loop_ident *id);

/* Puts @s on the table, once. True if what it moves comes back to it, or if that would
 * take too long to find out.
 */
bool socksplice_loop_closes(struct sosplice *s);
void socksplice_loop_forget(struct sosplice *s);

#endif /* SOCKSPLICE_LOOP_H */
