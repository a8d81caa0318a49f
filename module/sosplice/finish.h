/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_FINISH_H
#define SOCKSPLICE_FINISH_H

#include "sosplice/splice.h"

/* Ends @s, whose source the caller has locked. @err, if not 0, is left in SO_ERROR of the
 * source. The sink is seen to by the mover. Drops endpoint->out's reference.
 */
void sks_splice_end(struct splice *s, int err);

/* The same where there is no source any more: SPLICE_SOURCE_GONE. The mover only. */
void sks_splice_end_orphan(struct splice *s);

/* Ends what the socket, which is locked and about to be closed or disconnected, is an
 * end of.
 */
void sks_splice_detach_on_close(struct sock *sk, struct splice_endpoint *end);

/* Takes its splices from the end of a socket that is being destroyed, and leaves them to
 * the mover. Any context.
 */
void sks_splice_orphan_on_destroy(struct splice_endpoint *end);

/* Has a sink, which is locked, forget a splice that has ended. */
void sks_splice_forget_finished_sink(struct sock *sk, struct splice_endpoint *end);

#endif /* SOCKSPLICE_FINISH_H */
