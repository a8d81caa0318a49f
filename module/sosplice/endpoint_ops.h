/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The struct proto and struct proto_ops of a socket that has an endpoint.
 */
#ifndef SOCKSPLICE_ENDPOINT_OPS_H
#define SOCKSPLICE_ENDPOINT_OPS_H

#include <net/sock.h>

enum family { V4, V6, FAMILIES };

/* What a socket is: between splices, a sink that is not also a source, or a source. */
enum role { RESTING, SINK, SOURCE, ROLES };

/* Learns the ops of @sock, an ordinary socket of family @f. Sleeps. */
int sks_endpoint_ops_learn(enum family f, const struct socket *sock);

/* Makes each struct proto. -EOPNOTSUPP if this kernel's tcp_prot and tcpv6_prot differ. */
int sks_endpoint_ops_init(void);

/* The family of @prot if it is one of ours, else FAMILIES. */
enum family sks_endpoint_ops_family(const struct proto *prot);

/* True if the socket has the kernel's own proto_ops. */
bool sks_endpoint_ops_are_plain(const struct socket *sock);

/* Gives @sk, which is locked, the struct proto of a resting endpoint of family @f. */
void sks_endpoint_ops_claim(struct sock *sk, enum family f);

/* Gives @sk, which is locked, the functions of @role. Leaves functions that other code has put
 * there since.
 */
void sks_endpoint_ops_set(struct sock *sk, enum role role);

#endif /* SOCKSPLICE_ENDPOINT_OPS_H */
