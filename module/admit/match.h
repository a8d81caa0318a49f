/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which two sockets are the two ends of one connection.
 *
 * Addresses and ports cannot tell: NAT rewrites them, and two tenants may use the same ones in two
 * namespaces. Both ends of a connection know two things that strangers do not:
 *   - both initial sequence numbers. Each end's own number is the one that the other end received.
 *   - the flow hash that each end stamps on its packets as they cross the local stack (sk_txhash)
 *     and that the receiver keeps (sk_rxhash). It is random. Under IPv6 20 of its 32 bits are on
 *     the wire, as the flow label. Under IPv4 none are. A packet from another machine cannot carry
 *     it.
 *
 * Root of a namespace can forge the hash of its own packets, by openvswitch. That does not pair it
 * with a stranger, because the hashes have to match in both directions.
 *
 * Two ends are paired only if their sequence numbers mirror each other AND
 *   - their flow hashes mirror each other in both directions, or
 *   - both are in one network namespace, and their addresses and ports mirror each other. Then
 *     neither may be bound to a device, as two VRFs may hold equal tuples. Nor may either be
 *     IP_TRANSPARENT, as the two connections of a transparent proxy may mirror each other.
 *
 * Sequence numbers alone are not enough. For equal tuples in two namespaces they differ only by a
 * clock of 64 ns.
 *
 * The end that comes first parks in a table, keyed by the unordered pair of sequence numbers. The
 * second end finds it there. An end that finds no peer leaves the table after PARK_TIME, and its
 * socket goes back to plain TCP.
 */
#ifndef SOCKSPLICE_MATCH_H
#define SOCKSPLICE_MATCH_H

#include <linux/types.h>

struct pair_end;

int sks_match_init(void);
void sks_match_exit(void);

/* Looks for the peer of @end. True if the peer was parked and the two are now linked. False if
 * @end is now parked itself, or if the table has no room for it. Never sleeps, and takes no
 * socket's lock.
 */
bool sks_match(struct pair_end *end);

/* Makes all parked ends leave now, as after PARK_TIME. Any context. */
void sks_match_flush(void);

/* Takes @end out of the table if it is there. Nothing links it after that. */
void sks_match_unpark(struct pair_end *end);

#endif /* SOCKSPLICE_MATCH_H */
