/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The struct proto and struct proto_ops of a socket at an end of a splice.
 */
#ifndef SOCKSPLICE_ENDPOINT_OPS_H
#define SOCKSPLICE_ENDPOINT_OPS_H

#include <net/sock.h>

enum family { V4, V6, FAMILIES };

/* What a socket is: between splices, a sink that is no source, or a source. */
enum role { RESTING, SINK, SOURCE, ROLES };

/* Learns the ops of @sock, an ordinary socket of family @f. Sleeps. */
int sks_endpoint_ops_learn(enum family f, const struct socket *sock);

/* Makes each struct proto. -EOPNOTSUPP if the two of this kernel have different functions. */
int sks_endpoint_ops_init(void);

/* Whose struct proto @prot is, if it is one of ours; else FAMILIES. */
enum family sks_endpoint_ops_family(const struct proto *prot);

/* True if the socket has the kernel's own proto_ops. */
bool sks_endpoint_ops_are_plain(const struct socket *sock);

/* Gives @sk, which is locked, the struct proto of a resting endpoint of family @f. */
void sks_endpoint_ops_claim(struct sock *sk, enum family f);

/* Gives @sk, which is locked, the functions of @role, but for those that somebody else has
 * replaced since.
 */
void sks_endpoint_ops_set(struct sock *sk, enum role role);

#endif /* SOCKSPLICE_ENDPOINT_OPS_H */
