/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_PROTO_H
#define SOCKSPLICE_PROTO_H

#include <net/sock.h>

int socksplice_proto_init(void);

/* Somebody else in the kernel has kept a pointer to something of ours: the module stays,
 * and says so.
 */
void socksplice_proto_taken_over(void);

/* Gives the socket, which is locked, the kernel's own struct proto again. */
void socksplice_proto_restore(struct sock *sk);

/* Our clone of the struct proto that the socket has. */
struct proto *socksplice_proto_clone(const struct sock *sk);

/* What a paired socket has: the clone of tcpv6_prot or of tcp_prot. All its functions
 * also do for a socket that has lost its chan since.
 */
struct proto *socksplice_proto_paired(bool v6);

/* True for options that a socket with hooks of ours cannot have, unless TCP refuses them
 * whatever they are set to.
 */
bool socksplice_proto_wants_plain(const struct sock *sk, int level, int optname,
				  unsigned int optlen);

/* True if @prot is one of the two that can be cloned. */
bool socksplice_proto_known(const struct proto *prot);

/* Takes the chan off a socket that will not be paired any more. Locked. */
void socksplice_proto_settle(struct sock *sk);

#endif /* SOCKSPLICE_PROTO_H */
