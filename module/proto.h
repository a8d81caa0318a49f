/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_PROTO_H
#define SOCKSPLICE_PROTO_H

#include <net/sock.h>

int socksplice_proto_init(void);

/* Gives the socket, which is locked, the kernel's own struct proto again. */
void socksplice_proto_restore(struct sock *sk);

/* Our clone of the struct proto that the socket has. */
struct proto *socksplice_proto_clone(const struct sock *sk);

/* True if @prot is one of the two that can be cloned. */
bool socksplice_proto_known(const struct proto *prot);

/* Takes the chan off a socket that will not be paired any more. Locked. */
void socksplice_proto_settle(struct sock *sk);

/*
 * Back to plain TCP, for what cannot work beside a ring. What the peer has yet
 * to read of our ring stays there for it, in its place before all that TCP
 * carries from now on. What we have yet to read cannot be put back into TCP's
 * queue: -EBUSY until the application has read it, and while another thread is
 * in the middle of a call that reads; -EINTR. Refused or not, the pair is on its way
 * back to TCP from here on. May sleep; the socket is not locked.
 */
int socksplice_proto_unpair(struct sock *sk);

/* getsockopt(TCP_ULP) of a socket whose slot is ours: no ULP, as far as the application
 * can tell. Similar to do_tcp_getsockopt().
 */
int socksplice_proto_getsockopt_ulp(char __user *optval, int __user *optlen);

#endif /* SOCKSPLICE_PROTO_H */
