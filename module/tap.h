/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who captures packets, for policies that say that pairs give way to it.
 *
 * What counts is a packet socket that gets every protocol (ETH_P_ALL), as tcpdump's does,
 * in the network namespace of an end, on whatever device, whose filter would let a packet
 * of the connection pass. The filter is asked with a packet made up for it, without
 * data, each way. So the sockets of DHCP clients and LLDP daemons, which let no TCP pass,
 * do not count, and `tcpdump port 80` counts for the connections of that port. A filter
 * that is a BPF program of its own may do more than answer: it is not asked, and counts.
 * So does a namespace with very many packet sockets.
 *
 * The kernel tells nobody of packet sockets, so a work looks once a second, as long as
 * there are pairs of such a policy, and what it sees twice counts. New connections are
 * looked at when they are made.
 */
#ifndef SOCKSPLICE_TAP_H
#define SOCKSPLICE_TAP_H

#include <linux/types.h>

struct ident;
struct net;

/* Whether somebody in @net captures the connection whose end, in @net, is @id. True
 * also in doubt, and for want of memory. Any context but a hard interrupt.
 */
bool socksplice_tap_sees(struct net *net, const struct ident *id);

/* There is a pair with CHAN_YIELDS. */
void socksplice_tap_start(void);

/* No chan is left. */
void socksplice_tap_exit(void);

#endif /* SOCKSPLICE_TAP_H */
