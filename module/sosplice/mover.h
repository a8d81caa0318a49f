/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_MOVER_H
#define SOCKSPLICE_MOVER_H

#include "sosplice/splice.h"

/* The work function of a splice. */
void sks_mover_work(struct work_struct *work);

/* The first rounds, run by the caller of setsockopt(), which holds @s. They end when what was
 * queued has moved, or when the sink takes no more. If another task is in the way, the mover goes
 * on, and sets SPLICE_SETTLED when it is done.
 */
void sks_mover_begin(struct splice *s);

#endif /* SOCKSPLICE_MOVER_H */
