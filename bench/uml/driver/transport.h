/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is compared: ways to bring bytes from one kernel thread to another. A socket
 * is an ordinary one and is used as an application uses it, by its sendmsg and
 * recvmsg; whether it is paired is the module's business alone. The bare ring is
 * module/core/ring.h with two wait queues and nothing else. "socket" is the same behind
 * sendmsg and recvmsg, with no lock, no state and no option: what a pair could at best be.
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
	unsigned int poll_usec;		/* how long a reader looks before it sleeps */
	bool event_loop;		/* never sleeps in a call, but until poll() says to call */
};

struct conn {
	char name[24];
	bool is_tcp;
	struct end end[2];
	struct socket *spliced[2];	/* what SO_SPLICE joins between them: see relay.h */
};

/* Listens on the IPv4 address @addr, in the caller's network namespace, in place of
 * the listener before; _open_tcp connects to it from the caller's.
 */
int transport_listen(const char *addr);
int transport_open_tcp(struct conn *c);
int transport_open_unix(struct conn *c);
int transport_open_ring(struct conn *c, u32 size);
int transport_open_socket(struct conn *c, u32 size);

/* Busy polling and TCP_NODELAY of both ends from now on, and whether who uses them is an
 * event loop, which a bare ring cannot be. The caller is privileged.
 */
int transport_set(struct conn *c, unsigned int poll_usec, bool nodelay, bool event_loop);

/* All of @len bytes; 0 or an error. */
int transport_send(struct end *e, void *buf, size_t len);
/* As many bytes as there are, at least one and at most @len; or an error. */
ssize_t transport_recv(struct end *e, void *buf, size_t len);

/* What the module keeps with a locked socket, if it calls it @name; or NULL. The module
 * exports no function for it.
 */
const void *transport_ulp(const struct sock *sk, const char *name);

/* Bytes that both ends have sent by a ring of the module, by the module's own count:
 * 0 if the connection is not paired.
 */
u64 transport_ring_bytes(const struct conn *c);

#endif /* UML_BENCH_TRANSPORT_H */
