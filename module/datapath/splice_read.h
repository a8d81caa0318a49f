/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_SPLICE_H
#define SOCKSPLICE_SPLICE_H

#include <linux/types.h>

struct pipe_inode_info;
struct sock;
struct socket;

/* True if this module serves splice(2) from @sk, because its peer may put bytes
 * into a ring. Needs no lock: a socket that is paired stays so until nobody puts
 * bytes into its ring any more.
 */
bool sks_pair_owns(struct sock *sk);

/* The same for a call that enters TCP's own tcp_splice_read() if the answer is no. If the socket
 * is enrolled and has no peer yet, its end notes that (END_RX_EARLY).
 */
bool sks_pair_splices(struct sock *sk);

/**
 * sks_pair_splice_read - splice(2) from a paired socket into a pipe
 *
 * Similar to tcp_splice_read(). Bytes of the ring are copied to fresh pages,
 * because the ring's own pages are written again. TCP's bytes go by the kernel's own way.
 *
 * Context: the pipe is locked, the socket is not; sleeps.
 * Return: bytes moved, 0 at the end of file, or what tcp_splice_read() would.
 */
ssize_t sks_pair_splice_read(struct socket *sock, loff_t *ppos,
			     struct pipe_inode_info *pipe, size_t len,
			     unsigned int flags);

/* Registers with the hooks on splice(2) and SO_RCVLOWAT, which come up after this. */
void sks_pair_splice_init(void);

#endif /* SOCKSPLICE_SPLICE_H */
