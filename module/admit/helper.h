/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether connection tracking has a helper bound to a connection.
 *
 * A helper (of FTP, SIP, IRC ...) reads what the two ends say, lets in the connections that they
 * agree on, and rewrites addresses where there is NAT. It would not see the bytes of a ring. A
 * rule binds it to a connection with the connection's first packet. So the handshake is late
 * enough to ask, and we ask the connection's own entry. Neither ports nor the names of loaded
 * modules would tell, and since 7.3 no helper has a port of its own.
 *
 * We ask in the namespace of the end and in the initial one, where a container's host routes. A
 * helper in a third namespace between the two, or in a zone of connection tracking, is not found.
 */
#ifndef SOCKSPLICE_HELPER_H
#define SOCKSPLICE_HELPER_H

#include <linux/types.h>

struct ident;
struct net;

/* True if the connection whose end, in @net, is @id has a helper. Any context but a hard
 * interrupt.
 */
bool sks_helper_sees(struct net *net, const struct ident *id);

void sks_helper_init(void);
/* The caller knows that no end is enrolled any more. */
void sks_helper_exit(void);

#endif /* SOCKSPLICE_HELPER_H */
