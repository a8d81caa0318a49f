/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What identifies one end of a connection: its addresses and ports, and the numbers that both ends
 * of the connection know and strangers do not (match.h).
 */
#ifndef SOCKSPLICE_IDENT_H
#define SOCKSPLICE_IDENT_H

#include <linux/in6.h>
#include <linux/types.h>
#include <net/sock.h>

/* Read from the socket at the handshake and never computed again. */
struct ident {
	struct hlist_node node;		/* in the table of match.c; its bucket's lock */
	struct net *net;		/* compared only; may be gone, so never dereferenced */
	struct in6_addr saddr;		/* own address; IPv4 addresses are v4-mapped */
	struct in6_addr daddr;
	u32 iss;			/* own initial sequence number */
	u32 irs;			/* the peer's, as received */
	u32 txhash;			/* stamped on the packets that this end sends */
	u32 rxhash;			/* found on the packets that it received */
	int bound_dev_if;
	bool transparent;		/* IP_TRANSPARENT: the address may be another machine's */
	unsigned long expires;		/* jiffies; set while the end is parked */
	u16 sport;			/* host order */
	u16 dport;
};

/* Reads the identity from a socket that is becoming ESTABLISHED. The caller has it locked, or is
 * the softirq that owns it. False if the socket has no sequence numbers that can be trusted.
 */
bool sks_ident_read(const struct sock *sk, bool active, struct ident *id);

/* True if the packets that @sk sends stay in its network namespace, so its peer is there. False
 * also for a peer there to which address translation redirects the packets. The caller is that of
 * sks_ident_read().
 */
bool sks_ident_is_local(const struct sock *sk);

/* Reads only the addresses and ports. */
void sks_ident_addresses(const struct sock *sk, struct ident *id);

#endif /* SOCKSPLICE_IDENT_H */
