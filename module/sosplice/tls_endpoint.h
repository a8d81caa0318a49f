/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hooks of a TCP socket with kTLS that is the source or the sink of a splice: as endpoint.c,
 * but the ULP slot, two of the callbacks, struct proto and struct proto_ops are TLS's. So the
 * endpoint is in a table, and the close of the socket detaches it.
 *
 * While the socket has a splice, these are ours:
 *   - struct proto and struct proto_ops: copies of TLS's, with a few functions of ours. The socket
 *     holds the TLS module, and so what we copied.
 *   - sk_user_data, to keep other code of the kernel away.
 *   - an entry in the socket's wait queue, before all others. The four callbacks stay: TLS needs
 *     its own, and each of them ends at the wait queue. TLS wakes it when a record is complete.
 *     The entry queues the mover, and keeps the news of data from those behind it.
 * Until the socket is closed, struct proto and sk_destruct are ours, too.
 *
 * TLS sets struct proto itself for TLS_TX and TLS_RX. Our setsockopt refuses these meanwhile. A
 * task that was inside TLS's own setsockopt before can still do it. Then the splice ends, and
 * sk_destruct detaches the endpoint.
 */
#ifndef SOCKSPLICE_TLS_ENDPOINT_H
#define SOCKSPLICE_TLS_ENDPOINT_H

#include <linux/types.h>

struct proto;
struct proto_ops;
struct sock;

/* Whether TLS decrypts what the socket receives, or encrypts what it sends, in software. The socket
 * has kTLS and is locked.
 */
bool sks_tls_can_read(const struct sock *sk);
bool sks_tls_can_write(const struct sock *sk);

/* TLS's own functions of a socket that has our functions. NULL if other code has replaced ours. */
const struct proto *sks_tls_proto(const struct sock *sk);
const struct proto_ops *sks_tls_ops(const struct sock *sk);

/* Has TLS try again to pass its records on to TCP. The movers of the socket's splices do not
 * notice. The socket is locked, and has our functions.
 */
void sks_tls_push(struct sock *sk);

/* Wakes a reader that was inside TLS before the splice. It keeps the mover out until it has read,
 * and the splice has kept the news of data from it. Otherwise like sks_tls_push().
 */
void sks_tls_wake_reader(struct sock *sk);

/* Called after sks_endpoint_init() and sks_splices_init(). */
void sks_tls_endpoint_init(void);

#endif /* SOCKSPLICE_TLS_ENDPOINT_H */
