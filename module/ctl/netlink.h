/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_NETLINK_H
#define SOCKSPLICE_NETLINK_H

#include <linux/types.h>

struct ident;
struct sk_buff;
struct sock;
struct pair_end;

int sks_netlink_init(void);
void sks_netlink_exit(void);

/* True if a message to the group of the events would reach anybody. */
bool sks_netlink_has_listeners(void);

/* A message to that group: begun, in any context, filled with the functions below, ended
 * by genlmsg_end() with _begin's @hdr, and sent, which also frees it and may sleep. NULL if
 * there is no memory.
 */
struct sk_buff *sks_netlink_event_begin(void **hdr);
void sks_netlink_event_send(struct sk_buff *skb);

/* These return -EMSGSIZE if there is no room. */

/* An end that has no end; @sk may not go away meanwhile. */
int sks_netlink_put_sock(struct sk_buff *skb, const struct sock *sk,
			 const struct ident *id, int type);
/* Who holds the ends keeps them; their sockets may be gone. */
int sks_netlink_put_end(struct sk_buff *skb, const struct pair_end *end);
int sks_netlink_put_pair(struct sk_buff *skb, const struct pair_end *active,
			 const struct pair_end *passive);

#endif /* SOCKSPLICE_NETLINK_H */
