/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hooks of a UDP socket that is the source or the sink of a splice: as endpoint.c, but a UDP
 * socket has no ULP slot. A table has the endpoints, and the close of the socket detaches its own.
 *
 * While the socket has a splice, four of its callbacks, sk_user_data, its struct proto and its
 * struct proto_ops are ours. Until it is closed, struct proto and sk_destruct are ours, too. The
 * second is for a socket that other code closes by its own struct proto.
 *
 * A sink refuses to be corked (UDP_CORK, MSG_MORE), with EBUSY: UDP's sendmsg would append the
 * mover's datagram to the application's, and wait for the socket's lock to do so.
 *
 * UDP takes the lock of a socket only to cork. So a task that was inside UDP's own functions when
 * the splice began may still take a datagram later, or cork: datagram.c has what follows from that.
 */
#ifndef SOCKSPLICE_DATAGRAM_ENDPOINT_H
#define SOCKSPLICE_DATAGRAM_ENDPOINT_H

struct proto;
struct sock;

/* Called after sks_endpoint_init() and sks_splices_init(). */
int sks_datagram_endpoint_init(void);

/* True if the socket's next send would wait for its lock. The socket is locked. */
bool sks_datagram_is_corked(const struct sock *sk);

/* UDP's own functions, by the family of the socket's struct proto. */
const struct proto *sks_datagram_base(const struct sock *sk);

#endif /* SOCKSPLICE_DATAGRAM_ENDPOINT_H */
