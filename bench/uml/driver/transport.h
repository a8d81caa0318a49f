/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The compared ways to bring bytes from one kernel thread to another. The sockets are ordinary
 * ones, used through sendmsg and recvmsg like an application's. The module alone decides whether
 * they are paired. The bare ring is module/core/ring.h with two wait queues and nothing else.
 * "socket" is the bare ring behind sendmsg and recvmsg, without a lock, a state or an option. It
 * shows the best that a pair could reach.
 */
#ifndef UML_BENCH_TRANSPORT_H
#define UML_BENCH_TRANSPORT_H

#include <linux/net.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "core/ring.h"

struct bare_ring {
	struct ring ring;
	wait_queue_head_t readers, writers;
};

/* One end of a connection; used by one thread at a time. */
struct end {
	struct socket *sock;		/* NULL: a bare ring */
	struct bare_ring *in, *out;
	unsigned int poll_usec;		/* how long a reader spins before it sleeps */
	bool event_loop;		/* sleeps in poll() only, and never in another call */
};

struct conn {
	char name[24];
	bool is_tcp;
	struct end end[2];
	struct socket *spliced[2];	/* joined by SO_SPLICE between the ends: see relay.h */
};

/* Listens on the IPv4 address @addr, in the caller's network namespace, and closes the earlier
 * listener. transport_open_tcp() connects to it from its caller's network namespace.
 */
int transport_listen(const char *addr);
int transport_open_tcp(struct conn *c);
/* The caller's descriptors @fds[0] and @fds[1] are the ends of a TCP connection. */
int transport_open_given(struct conn *c, const int *fds);
int transport_open_unix(struct conn *c);
/* By SMC-D over its loopback device; -EPROTO if the connection has gone back to TCP. In the first
 * network namespace.
 */
int transport_open_smc(struct conn *c);
/* Closes both sockets; not those of "ring" and "socket". */
void transport_close(struct conn *c);
int transport_open_ring(struct conn *c, u32 size);
int transport_open_socket(struct conn *c, u32 size);

/* Sets busy polling and TCP_NODELAY of both ends, and whether an event loop uses them. A bare ring
 * cannot be used by one. The caller is privileged.
 */
int transport_set(struct conn *c, unsigned int poll_usec, bool nodelay, bool event_loop);

/* Sends all @len bytes. Returns 0 or an error. */
int transport_send(struct end *e, void *buf, size_t len);
/* Receives as many bytes as there are, at least one and at most @len. Returns their number or an
 * error.
 */
ssize_t transport_recv(struct end *e, void *buf, size_t len);

/* Returns the ULP data of a locked socket if its ULP is called @name, else NULL. The module exports
 * no function for it.
 */
const void *transport_ulp(const struct sock *sk, const char *name);

/* Returns the bytes that both ends have sent through rings, by the module's own count. It is 0 if
 * the connection is not paired.
 */
u64 transport_ring_bytes(const struct conn *c);

#endif /* UML_BENCH_TRANSPORT_H */
