// SPDX-License-Identifier: GPL-2.0
#include <net/tcp.h>

#include "sosplice/callbacks.h"
#include "sosplice/splice.h"

/* Constant after init. */
static struct {
	void (*data_ready)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
} plain;

/* The splice that @sk is the source of, and the splice that it is the sink of, or NULL. Each may
 * have ended, and stays readable under rcu_read_lock().
 */
static struct splice *out_of(const struct sock *sk)
{
	const struct splice_endpoint *end = sks_endpoint_get_rcu(sk);

	return end ? READ_ONCE(end->out) : NULL;
}

static struct splice *in_of(const struct sock *sk)
{
	const struct splice_endpoint *end = sks_endpoint_get_rcu(sk);

	return end ? READ_ONCE(end->in) : NULL;
}

static void queue(struct splice *s)
{
	if (s)
		sks_mover_queue_rcu(s);
}

static void endpoint_data_ready(struct sock *sk)
{
	struct splice *s;
	bool queued;

	rcu_read_lock();
	s = out_of(sk);
	queued = s && sks_mover_queue_arrived(s);
	rcu_read_unlock();
	if (!queued || unlikely(READ_ONCE(tcp_sk(sk)->urg_data)))	/* EPOLLPRI */
		plain.data_ready(sk);
}

static void endpoint_state_change(struct sock *sk)
{
	plain.state_change(sk);
	rcu_read_lock();
	queue(out_of(sk));
	queue(in_of(sk));
	rcu_read_unlock();
}

static void endpoint_write_space(struct sock *sk)
{
	plain.write_space(sk);
	if (!sk_stream_is_writeable(sk))
		return;
	rcu_read_lock();
	queue(in_of(sk));
	rcu_read_unlock();
}

/* With IP_RECVERR sk_err is set without a change of state. Also called for each message of the
 * error queue.
 */
static void endpoint_error_report(struct sock *sk)
{
	plain.error_report(sk);
	rcu_read_lock();
	queue(out_of(sk));
	queue(in_of(sk));
	rcu_read_unlock();
}

void sks_callbacks_learn(const struct sock *sk)
{
	plain.data_ready = sk->sk_data_ready;
	plain.state_change = sk->sk_state_change;
	plain.write_space = sk->sk_write_space;
	plain.error_report = sk->sk_error_report;
}

bool sks_callbacks_are_plain(const struct sock *sk)
{
	return READ_ONCE(sk->sk_data_ready) == plain.data_ready &&
	       READ_ONCE(sk->sk_state_change) == plain.state_change &&
	       READ_ONCE(sk->sk_write_space) == plain.write_space &&
	       READ_ONCE(sk->sk_error_report) == plain.error_report;
}

bool sks_callbacks_report_plainly(const struct sock *sk)
{
	return READ_ONCE(sk->sk_state_change) == plain.state_change &&
	       READ_ONCE(sk->sk_error_report) == plain.error_report;
}

bool sks_callbacks_are_ours(const struct sock *sk)
{
	return READ_ONCE(sk->sk_data_ready) == endpoint_data_ready &&
	       READ_ONCE(sk->sk_state_change) == endpoint_state_change &&
	       READ_ONCE(sk->sk_write_space) == endpoint_write_space &&
	       READ_ONCE(sk->sk_error_report) == endpoint_error_report;
}

void sks_callbacks_set(struct sock *sk)
{
	lockdep_assert_held_write(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_data_ready, endpoint_data_ready);
	WRITE_ONCE(sk->sk_state_change, endpoint_state_change);
	WRITE_ONCE(sk->sk_write_space, endpoint_write_space);
	WRITE_ONCE(sk->sk_error_report, endpoint_error_report);
}

void sks_callbacks_clear(struct sock *sk)
{
	lockdep_assert_held_write(&sk->sk_callback_lock);
	if (sk->sk_data_ready == endpoint_data_ready)
		WRITE_ONCE(sk->sk_data_ready, plain.data_ready);
	if (sk->sk_state_change == endpoint_state_change)
		WRITE_ONCE(sk->sk_state_change, plain.state_change);
	if (sk->sk_write_space == endpoint_write_space)
		WRITE_ONCE(sk->sk_write_space, plain.write_space);
	if (sk->sk_error_report == endpoint_error_report)
		WRITE_ONCE(sk->sk_error_report, plain.error_report);
}

void sks_callbacks_plain_ready(struct sock *sk)
{
	plain.data_ready(sk);
}
