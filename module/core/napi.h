/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A NAPI instance for the sockets of pairs. epoll_wait(2), poll(2) and io_uring can spin before
 * they sleep, where net.core.busy_poll, EPIOCSPARAMS or IORING_REGISTER_NAPI ask for it. But they
 * do so only for a socket that names a NAPI instance, and the stack's local packets name none.
 * While a thread spins, a sender's wake-up finds nobody asleep, so it sends no interrupt to
 * another CPU.
 *
 * A thread may spin for as long as its user likes, and no RCU-tasks grace period ends meanwhile.
 * So there is an instance only while there are attached sockets (inflight.h). Its end sends the
 * threads on.
 */
#ifndef SOCKSPLICE_NAPI_H
#define SOCKSPLICE_NAPI_H

#include <net/sock.h>

#ifdef CONFIG_NET_RX_BUSY_POLL

/* The id of the instance; 0 while there is none. */
extern unsigned int sks_napi_id;

/* Names the instance in @sk, just before @sk's pollers are told of bytes in its ring: then epoll
 * takes the id. TCP's own packets, such as the probes, overwrite it. Any context.
 */
static inline void sks_napi_mark(struct sock *sk)
{
	const unsigned int id = READ_ONCE(sks_napi_id);

	if (unlikely(READ_ONCE(sk->sk_napi_id) != id))
		WRITE_ONCE(sk->sk_napi_id, id);
}

/* Takes the id away. An epoll set forgets it after its next time-out. Any context. */
static inline void sks_napi_unmark(struct sock *sk)
{
	const unsigned int id = READ_ONCE(sks_napi_id);

	if (id && READ_ONCE(sk->sk_napi_id) == id)
		WRITE_ONCE(sk->sk_napi_id, 0);
}

/* A socket is being attached: an instance is wanted. Any context but a hard interrupt. */
void sks_napi_want(void);

/* Makes the instance, if there is none. Without memory there is none, and nothing spins. May
 * sleep.
 */
void sks_napi_start(void);

/* Deletes the instance, if there is one, and keeps sks_napi_start() from making another one until
 * sks_napi_allow(). Threads that spin leave when their CPU is wanted, which RCU sees to. Sleeps for
 * a grace period.
 */
void sks_napi_stop(void);
void sks_napi_allow(void);

/* As sks_napi_stop(), when no socket can be attached any more. */
void sks_napi_exit(void);

#else

static inline void sks_napi_mark(struct sock *sk)
{
}

static inline void sks_napi_unmark(struct sock *sk)
{
}

static inline void sks_napi_want(void)
{
}

static inline void sks_napi_start(void)
{
}

static inline void sks_napi_stop(void)
{
}

static inline void sks_napi_allow(void)
{
}

static inline void sks_napi_exit(void)
{
}

#endif

#endif /* SOCKSPLICE_NAPI_H */
