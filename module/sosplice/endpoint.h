/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_ENDPOINT_H
#define SOCKSPLICE_ENDPOINT_H

#include "sosplice/splice.h"

/* The caller has the socket locked, unless a function says otherwise. */

int sks_endpoint_init(void);

/* The functions below, of the same names, for sockets of another kind. @claim gets the endpoint, or
 * NULL.
 */
struct endpoint_kind {
	int (*claim)(struct sock *sk, struct splice_endpoint *end, struct splice_endpoint **spare);
	void (*update)(struct sock *sk, struct splice_endpoint *end);
	void (*detach)(struct sock *sk, struct splice_endpoint *end);
	void (*wake)(struct sock *sk);
};

/* Each is called once, at init. */
void sks_endpoint_register_udp(const struct endpoint_kind *kind);
void sks_endpoint_register_tls(const struct endpoint_kind *kind);

/* Hooks the socket. If it has no endpoint yet, attaches *@spare and sets that to NULL. A socket
 * that is paired stays paired. One that waits for its peer is taken back to TCP first. The caller
 * then gives the endpoint a splice, or calls update. Returns 0 or
 *	-EOPNOTSUPP	it listens
 *	-ENOTCONN	it is not connected
 *	-EINVAL		it cannot be spliced: kTLS in hardware, MPTCP, a sockmap's, or a socket
 *			that something in the kernel reads or repairs
 */
int sks_endpoint_claim(struct sock *sk, struct splice_endpoint **spare);

/* Sets the functions of the socket for the splices that it has now. Without any it gets its own
 * back.
 */
void sks_endpoint_update(struct sock *sk, struct splice_endpoint *end);

/* While the TCP socket is a source, its SO_RCVLOWAT is 1; before and after, what was set. */
void sks_endpoint_hide_lowat(struct sock *sk, struct splice_endpoint *end);

/* Put a new endpoint of @sk into the order of all, and take out and free one that is detached and
 * has no splice. The second may be called in any context.
 */
void sks_endpoint_list(struct splice_endpoint *end, struct sock *sk);
void sks_endpoint_unlist(struct splice_endpoint *end);

/* Detaches the endpoint of a socket that has no splice. */
void sks_endpoint_detach(struct sock *sk);

/* For a call that wants a socket without hooks: detaches the endpoint, if there is one. -EBUSY if
 * the socket has a splice. The socket is not locked.
 */
int sks_endpoint_make_plain(struct sock *sk);

/* True if the socket's callbacks are those of @end, which may be NULL. Exact under
 * sk_callback_lock.
 */
bool sks_endpoint_has_callbacks(const struct sock *sk, const struct splice_endpoint *end);

/* Wakes all tasks that wait on a source that is free again. */
void sks_endpoint_wake(struct sock *sk);

/* Called before and after the time in which the mover takes the error of another splice out of
 * sk_err, to send. poll(2) reports the error all the same.
 */
void sks_endpoint_err_out(struct splice_endpoint *end);
void sks_endpoint_err_back(struct splice_endpoint *end);

/* Like lock_sock(), but does not wait. False if the socket is owned. Then the movers of its
 * splices are queued once it no longer is.
 */
bool sks_endpoint_trylock(struct sock *sk);

/* Queues the movers of @end's splices. The caller has the lock that keeps @end attached. */
void sks_endpoint_queue(const struct splice_endpoint *end);

/* Marks all endpoints that are attached now. Any context but a hard interrupt. */
void sks_endpoints_mark(void);

/* Returns up to @max sockets of marked endpoints behind number *@last, which it moves on, and how
 * many there are. The caller puts the sockets.
 */
unsigned int sks_endpoints_marked(struct sock **sk, unsigned int max, u64 *last);

#endif /* SOCKSPLICE_ENDPOINT_H */
