/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What identifies one end of a connection: its addresses and ports, and what both ends of
 * the connection know and strangers do not (match.h).
 */
#ifndef SOCKSPLICE_IDENT_H
#define SOCKSPLICE_IDENT_H

#include <linux/in6.h>
#include <linux/types.h>
#include <net/sock.h>

/* What identifies one end, taken at the handshake and never recomputed. */
struct ident {
	struct hlist_node node;		/* bucket lock */
	struct net *net;		/* compared, never followed */
	struct in6_addr saddr;		/* v4 addresses are v4-mapped */
	struct in6_addr daddr;
	u32 iss;			/* own initial sequence number */
	u32 irs;			/* the peer's, as received */
	u32 txhash;			/* stamped on what this end sends */
	u32 rxhash;			/* seen on what it received */
	int bound_dev_if;
	bool transparent;		/* its own address may be another machine's */
	unsigned long expires;		/* jiffies; while parked */
	u16 sport;			/* host order */
	u16 dport;
};

/* Reads the identity off a socket that is becoming ESTABLISHED. The socket is
 * the caller's. False where it has none that could be trusted.
 */
bool sks_ident_read(const struct sock *sk, bool active, struct ident *id);

/* Reads only the addresses and ports. */
void sks_ident_addresses(const struct sock *sk, struct ident *id);

#endif /* SOCKSPLICE_IDENT_H */
