/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_PROTO_H
#define SOCKSPLICE_PROTO_H

/*
 * The room datapath/ serves the system calls of enrolled sockets: it sends and receives by ring
 * or TCP, waits, closes, copies for captures, and takes pairs back to TCP. proto.c is its way in,
 * by the clones of struct proto, and splice_read.c, by the hooks of core/hook.h. The room may call
 * pair/ and core/. The rooms above it may call it: upkeep/, sosplice/, ctl/ and main.c.
 */

#include <net/sock.h>

/* Sets up the struct proto of enrolled sockets. 0, or -EOPNOTSUPP. */
int sks_proto_init(void);

/* True for options that a socket with functions of ours cannot have. False if TCP refuses the
 * option whatever its value is.
 */
bool sks_proto_wants_plain(const struct sock *sk, int level, int optname, unsigned int optlen);

#endif /* SOCKSPLICE_PROTO_H */
