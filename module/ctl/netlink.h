/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_NETLINK_H
#define SOCKSPLICE_NETLINK_H

/*
 * The room ctl/ is what the command line and listeners see: the generic-netlink family
 * (netlink.c), and the events that report verdicts (notify.c). It may call every room but
 * upkeep/: sosplice/, admit/, sockmap/, datapath/, pair/ and core/. Only main.c may call it.
 * pair/ reaches it by a struct verdict_sink.
 */

#include <linux/types.h>

struct ident;
struct sk_buff;
struct sock;
struct pair_end;

int sks_netlink_init(void);
void sks_netlink_exit(void);

/* True if a message to the group of events would reach a listener. */
bool sks_netlink_has_listeners(void);

/* A message to the group of events. _begin makes it, in any context, and returns NULL if there is
 * no memory. The caller fills it with the functions below, and ends it by genlmsg_end() with
 * _begin's @hdr. _send sends it, which also frees it and may sleep.
 */
struct sk_buff *sks_netlink_event_begin(void **hdr);
void sks_netlink_event_send(struct sk_buff *skb);

/* These return -EMSGSIZE if there is no room. */

/* Adds a socket that has no struct pair_end. The caller keeps @sk from going away. */
int sks_netlink_put_sock(struct sk_buff *skb, const struct sock *sk, const struct ident *id,
			 int type);
/* Add an end, or both ends of a pair. The caller holds the ends. Their sockets may be gone. */
int sks_netlink_put_end(struct sk_buff *skb, const struct pair_end *end);
int sks_netlink_put_pair(struct sk_buff *skb, const struct pair_end *active,
			 const struct pair_end *passive);

#endif /* SOCKSPLICE_NETLINK_H */
