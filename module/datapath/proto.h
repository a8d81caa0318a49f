/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_PROTO_H
#define SOCKSPLICE_PROTO_H

#include <net/sock.h>

/* Sets up the struct proto of paired sockets. 0, or -EOPNOTSUPP. */
int sks_proto_init(void);

/* True for options that a socket with hooks of ours cannot have, unless TCP refuses them
 * whatever they are set to.
 */
bool sks_proto_wants_plain(const struct sock *sk, int level, int optname,
			   unsigned int optlen);

#endif /* SOCKSPLICE_PROTO_H */
