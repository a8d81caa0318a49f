/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_FINISH_H
#define SOCKSPLICE_FINISH_H

#include "sosplice/splice.h"

/* Ends @s, whose source the caller has locked. @err, if not 0, is left in SO_ERROR of the
 * source. The sink is seen to by the mover. Drops soend->out's reference.
 */
void socksplice_sosplice_end(struct sosplice *s, int err);

/* The same where there is no source any more: SOSPLICE_SOURCE_GONE. The mover only. */
void socksplice_sosplice_end_orphan(struct sosplice *s);

/* Ends what the socket, which is locked and about to be closed or disconnected, is an
 * end of.
 */
void socksplice_sosplice_leave(struct sock *sk, struct soend *end);

/* Takes its splices from the end of a socket that is being destroyed, and leaves them to
 * the mover. Any context.
 */
void socksplice_sosplice_abandon(struct soend *end);

/* Has a sink, which is locked, forget a splice that has ended. */
void socksplice_sosplice_tidy(struct sock *sk, struct soend *end);

#endif /* SOCKSPLICE_FINISH_H */
