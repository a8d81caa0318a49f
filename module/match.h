/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which two sockets are the two ends of one connection.
 *
 * Addresses and ports do not tell: NAT rewrites them, and two tenants may use
 * the same ones in two namespaces. What both ends of a connection do know, and
 * strangers do not, is
 *   - both initial sequence numbers: each end's own is the other's received;
 *   - the flow hash that each end stamps on its packets as they cross the
 *     local stack (sk_txhash; random, and not on the wire but for 20 of its 32 bits,
 *     the flow label, under IPv6) and that the receiver keeps (sk_rxhash). One from
 *     another machine cannot match.
 * Both ends have to let it be known: who makes packets with a hash of his choice, as
 * root of a namespace can by openvswitch, joins himself to others of his kind alone.
 *
 * Joined are only ends whose sequence numbers mirror each other AND
 *   whose flow hashes do, in both directions, or
 *   which are in one network namespace, bound to no device (two VRFs may hold
 *   equal tuples) nor IP_TRANSPARENT (a proxy's two connections between others may
 *   mirror each other), with mirrored addresses and ports.
 * The first rule alone is not enough: initial sequence numbers of equal tuples
 * in two namespaces differ by a 64 ns clock only.
 *
 * The first end to arrive parks in a table, keyed by the unordered pair of
 * sequence numbers; the second finds it there. What never finds its peer
 * leaves after PARK_TIME and is taken off its chan: plain TCP.
 */
#ifndef SOCKSPLICE_MATCH_H
#define SOCKSPLICE_MATCH_H

#include <linux/types.h>

struct socksplice_chan;

int socksplice_match_init(void);
void socksplice_match_exit(void);

/* Looks for the peer of @c: true if it was there and the two are now linked, false if @c
 * is parked, or stays alone since too many are. Never sleeps, takes no socket's lock.
 */
bool socksplice_match(struct socksplice_chan *c);

/* All that wait now leave at once, as after PARK_TIME. */
void socksplice_match_flush(void);

/* Takes @c out of the table if it is there. After this nobody links it. */
void socksplice_match_unpark(struct socksplice_chan *c);

#endif /* SOCKSPLICE_MATCH_H */
