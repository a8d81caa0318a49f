/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_TLS_H
#define SOCKSPLICE_TLS_H

#include "sosplice/splice.h"

/* Like stream_round(), if the source or the sink has kTLS. @first: as sks_round_may_take(). */
enum mover_next sks_tls_round(struct splice *s, u32 *left, bool first, int *why);

/* Whether a splice with kTLS may end for @why, as of why_end(). Not while the TLS of one of its
 * sockets is in the middle of a record. The source is locked.
 */
bool sks_tls_may_end(struct splice *s, int why);

/* Bytes that TLS has decrypted and that nobody has read, or more. The socket has kTLS and is
 * locked.
 */
u64 sks_tls_unread(const struct sock *sk);

#endif /* SOCKSPLICE_TLS_H */
