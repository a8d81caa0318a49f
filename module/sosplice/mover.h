/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_MOVER_H
#define SOCKSPLICE_MOVER_H

#include "sosplice/splice.h"

/* The work of a splice. */
void sks_mover_work(struct work_struct *work);

/* The first rounds, run by the caller of setsockopt(), which holds @s. They end when the bytes that
 * were queued have moved or the sink takes no more. If another task owns one of the sockets, the
 * mover goes on, and sets SPLICE_SETTLED when the bytes have moved.
 */
void sks_mover_begin(struct splice *s);

#endif /* SOCKSPLICE_MOVER_H */
