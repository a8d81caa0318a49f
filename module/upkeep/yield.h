/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a connection's packets are being captured. A policy may say that its pairs give way to a
 * capture.
 *
 * A packet socket counts as a capture if all of these hold:
 *   - It receives every protocol (ETH_P_ALL), as tcpdump's does.
 *   - It is in the network namespace of an end, on any device.
 *   - Its filter passes a packet of the connection.
 *
 * We run the filter on two made-up packets without data, one each way. So the sockets of DHCP
 * clients and LLDP daemons do not count, as they pass no TCP. `tcpdump port 80` counts for
 * connections of that port only. A filter that is an eBPF program may have side effects. So it is
 * not run, and the socket counts. A namespace with very many packet sockets counts, too.
 *
 * The kernel sends no event for packet sockets. So a work looks once a second while there are
 * pairs of such a policy. A capture counts once two looks in a row saw it. New connections are
 * checked during their handshake.
 */
#ifndef SOCKSPLICE_YIELD_H
#define SOCKSPLICE_YIELD_H

#include <linux/types.h>

struct ident;
struct net;

/* True if a packet socket in @net captures the connection whose end there is @id. Also true in
 * doubt, and if memory is short. Any context but a hard interrupt.
 */
bool sks_yield_sees(struct net *net, const struct ident *id);

/* A pair with END_YIELDS was made: starts the work. Any context but a hard interrupt. */
void sks_yield_start(void);

/* Ends the work. The caller knows that no end is left. May sleep. */
void sks_yield_exit(void);

#endif /* SOCKSPLICE_YIELD_H */
