/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_FINISH_H
#define SOCKSPLICE_FINISH_H

#include "sosplice/splice.h"

/* Makes the count of @s the one that socksplice_moved() returns. @end: of the source, which is
 * locked.
 */
void sks_splice_show_count(struct splice_endpoint *end, const struct splice *s);

/* Ends @s, whose source the caller has locked. If @err is not 0, it is left in SO_ERROR of the
 * source. The mover sees to the sink. Drops endpoint->out's reference.
 */
void sks_splice_end(struct splice *s, int err);

/* Like sks_splice_end(), if the source is gone (SPLICE_SOURCE_GONE). Only the mover calls it. */
void sks_splice_end_orphan(struct splice *s);

/* Ends the splices of a socket that is about to be closed or disconnected. The socket is locked. */
void sks_splice_detach_on_close(struct sock *sk, struct splice_endpoint *end);

/* Takes its splices from the endpoint of a socket that is being destroyed, and leaves them to the
 * mover. Any context.
 */
void sks_splice_orphan_on_destroy(struct splice_endpoint *end);

/* Makes a sink, which is locked, forget a splice that has ended. */
void sks_splice_forget_finished_sink(struct sock *sk, struct splice_endpoint *end);

#endif /* SOCKSPLICE_FINISH_H */
