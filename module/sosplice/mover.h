/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_MOVER_H
#define SOCKSPLICE_MOVER_H

#include "sosplice/splice.h"

/* The work of a splice. */
void sks_mover_work(struct work_struct *work);

/* The first rounds, run by the caller of setsockopt(), which holds @s: until what was queued has
 * moved or the sink takes no more. Where another task is in the way, the mover goes on, and
 * says so by SPLICE_SETTLED.
 */
void sks_mover_begin(struct splice *s);

#endif /* SOCKSPLICE_MOVER_H */
