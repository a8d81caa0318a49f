/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_NETLINK_H
#define SOCKSPLICE_NETLINK_H

#include <linux/types.h>

struct ident;
struct sk_buff;
struct sock;
struct socksplice_chan;

int socksplice_netlink_init(void);
void socksplice_netlink_exit(void);

/* True if a message to the group of the events would reach anybody. */
bool socksplice_netlink_has_listeners(void);

/* A message to that group: begun, in any context, filled with the functions below, ended
 * by genlmsg_end() with _begin's @hdr, and sent, which also frees it and may sleep. NULL if
 * there is no memory.
 */
struct sk_buff *socksplice_netlink_event_begin(void **hdr);
void socksplice_netlink_event_send(struct sk_buff *skb);

/* These return -EMSGSIZE if there is no room. */

/* An end that has no chan; @sk may not go away meanwhile. */
int socksplice_netlink_put_sock(struct sk_buff *skb, const struct sock *sk,
				const struct ident *id, int type);
/* Who holds the chans keeps them; their sockets may be gone. */
int socksplice_netlink_put_end(struct sk_buff *skb, const struct socksplice_chan *c);
int socksplice_netlink_put_pair(struct sk_buff *skb, const struct socksplice_chan *active,
				const struct socksplice_chan *passive);

#endif /* SOCKSPLICE_NETLINK_H */
