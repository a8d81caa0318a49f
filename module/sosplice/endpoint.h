/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_ENDPOINT_H
#define SOCKSPLICE_ENDPOINT_H

#include "sosplice/splice.h"

/* All with the socket's lock held, unless they say otherwise. */

int sks_endpoint_init(void);

/* Hooks the socket, and attaches *@spare and sets it to NULL if it has no end yet. One
 * that is paired stays so; one that waits for its peer does not any more. The
 * caller gives it a splice, or calls update. 0, or
 * -EOPNOTSUPP for a listener, -ENOTCONN, -EINVAL for what cannot be spliced (kTLS,
 * MPTCP, a sockmap's, a socket that something in the kernel reads or repairs).
 */
int sks_endpoint_claim(struct sock *sk, struct splice_endpoint **spare);

/* Gives the socket its own functions again once it has no splice. */
void sks_endpoint_update(struct sock *sk, struct splice_endpoint *end);

/* Takes the end off a socket that has no splice. */
void sks_endpoint_detach(struct sock *sk);

/* Whether the socket's callbacks are those of @end, which may be NULL. Exact under
 * sk_callback_lock.
 */
bool sks_endpoint_has_callbacks(const struct sock *sk, const struct splice_endpoint *end);

/* Wakes all who wait for anything on a source that is free again. */
void sks_endpoint_wake(struct sock *sk);

/* Around the time for which the mover has the error of another splice out of sk_err, to
 * send: poll sees the error all the same.
 */
void sks_endpoint_err_out(struct splice_endpoint *end);
void sks_endpoint_err_back(struct splice_endpoint *end);

/* As lock_sock(), without waiting: false where the socket is owned, and then @end's
 * works are queued once it no longer is.
 */
bool sks_endpoint_trylock(struct sock *sk);

/* Has the movers of @end's splices look. Under the lock that keeps @end attached. */
void sks_endpoint_queue(const struct splice_endpoint *end);

/* Marks all endpoints that are attached now. Any context but a hard interrupt. */
void sks_endpoints_mark(void);

/* Up to @max sockets of marked endpoints behind number *@last, which it moves on. The caller
 * puts the sockets. Returns how many there are.
 */
unsigned int sks_endpoints_marked(struct sock **sk, unsigned int max, u64 *last);

#endif /* SOCKSPLICE_ENDPOINT_H */
