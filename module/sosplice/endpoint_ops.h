/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The struct proto and struct proto_ops of a socket that has an endpoint.
 */
#ifndef SOCKSPLICE_ENDPOINT_OPS_H
#define SOCKSPLICE_ENDPOINT_OPS_H

#include <linux/poll.h>
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

/* Waits until the socket is no splice's source, and returns 0, or the error that the read returns.
 * The socket is not locked, before and after. A task that might sleep next enters the call again,
 * by the function that the socket has now. If it slept in the kernel's function, called from ours,
 * it would hold the module.
 */
int sks_endpoint_reader_wait(struct sock *sk, bool nonblock);

/* True if the option of getsockopt(2) would read what is the splice's. The socket is not locked. */
bool sks_endpoint_hides(struct sock *sk, int level, int optname);

/* Sets the mark that sks_endpoint_hide_lowat() has hidden. The socket is locked. */
int sks_endpoint_set_rcvlowat(struct sock *sk, int val);

typedef __poll_t (*poll_function)(struct file *file, struct socket *sock, poll_table *wait);

/* Has @poll, the kernel's own function, look, and hides of a source what is the splice's. @poll
 * looks at the receive queue, where the mover leaves what the sink has no room for. It also sees
 * an end of stream that the splice has not reached yet.
 */
__poll_t sks_endpoint_poll(poll_function poll, struct file *file, struct socket *sock,
			   poll_table *wait);

#endif /* SOCKSPLICE_ENDPOINT_OPS_H */
