/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_SPLICE_READ_H
#define SOCKSPLICE_SPLICE_READ_H

#include <linux/types.h>

struct pipe_inode_info;
struct sock;
struct socket;

/* True if splice(2) from @sk is ours to serve, because its peer may put bytes into a ring. Needs
 * no lock: a paired socket stays paired until no more bytes go into its ring.
 */
bool sks_pair_owns(struct sock *sk);

/* Like sks_pair_owns(), for a call that enters TCP's own tcp_splice_read() if the answer is no. In
 * that case sets END_RX_EARLY in the end of a socket whose peer is yet to come.
 */
bool sks_pair_splices(struct sock *sk);

/**
 * sks_pair_splice_read - splice(2) from a paired socket into a pipe
 *
 * Similar to tcp_splice_read(). Bytes of the ring are copied to fresh pages,
 * because the ring's own are written again; TCP's go the kernel's own way.
 *
 * Context: the pipe is locked, the socket is not; sleeps.
 * Return: bytes moved, 0 at the end of file, or what tcp_splice_read() would.
 */
ssize_t sks_pair_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			     size_t len, unsigned int flags);

/* Registers with the hooks on splice(2) and SO_RCVLOWAT. Called before they are installed. */
void sks_pair_splice_init(void);

#endif /* SOCKSPLICE_SPLICE_READ_H */
