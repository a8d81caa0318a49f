// SPDX-License-Identifier: GPL-2.0
/*
 * How a splice ends. sks_splice_end() frees the source. What is in the source's queue and has not
 * reached the sink belongs to the application again. Later the mover clears the sink's pointer,
 * unless the next splice into that sink has done so.
 *
 * Applications look at the end without a lock, so its parts come in this order: the error, the
 * count that reaches the limit, the free source. Last of all setsockopt() may return.
 */
#include <net/tcp.h>

#include "core/stats.h"
#include "core/trace.h"
#include "sosplice/budget.h"
#include "sosplice/endpoint.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/splice.h"

/* Makes the splice unfindable except by its sink. A task that splices into that sink next finds it
 * ended.
 */
static void unlist(struct splice *s)
{
	set_bit(SPLICE_ENDED, &s->flags);
	sks_splices_remove(s);
	sks_loop_forget(s);
	sks_mover_stop_tick(s);
	sks_budget_forget(s);
}

/* Drops the source's reference. */
static void finish(struct splice *s, int err)
{
	sks_stat_inc(SOCKSPLICE_STAT_so_splices_ended);
	trace_so_splice_end(s->src, s->dst, s->moved, err);
	sks_splice_settle(s);
	sks_mover_queue(s);	/* the mover sees to the sink */
	sks_splice_put(s);
}

void sks_splice_show_count(struct splice_endpoint *end, const struct splice *s)
{
	sock_owned_by_me(s->src);
	if (s->moved)	/* if not, the last splice's count stays until this one has begun */
		smp_store_release(&end->moved, s->moved);	/* pairs with sks_splice_moved() */
}

void sks_splice_end(struct splice *s, int err)
{
	struct sock *sk = s->src;
	struct splice_endpoint *end = sks_endpoint_of(sk);
	const bool fails = err && !sk->sk_err;

	sock_owned_by_me(sk);
	if (WARN_ON_ONCE(!end || end->out != s))
		return;

	unlist(s);
	if (fails) {
		end->err = err;
		WRITE_ONCE(sk->sk_err, err);
	}
	sks_splice_show_count(end, s);
	smp_store_release(&end->out, NULL);	/* pairs with hooked_poll() */
	sks_endpoint_update(sk, end);
	if (fails)
		sk_error_report(sk);
	sks_endpoint_wake(sk);
	finish(s, err);
}

void sks_splice_end_orphan(struct splice *s)
{
	unlist(s);
	finish(s, 0);
}

static void leave_as_sink(struct splice_endpoint *end)
{
	struct splice *s = end->in;

	if (!s)
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SPLICE_SINK_KNOWS, &s->flags);
	set_bit(SPLICE_SINK_GONE, &s->flags);
	sks_mover_queue(s);
	sks_splice_put(s);
}

void sks_splice_detach_on_close(struct sock *sk, struct splice_endpoint *end)
{
	sock_owned_by_me(sk);
	leave_as_sink(end);
	if (end->out)
		sks_splice_end(end->out, 0);
	sks_endpoint_update(sk, end);
}

void sks_splice_orphan_on_destroy(struct splice_endpoint *end)
{
	struct splice *s = end->out;

	leave_as_sink(end);
	if (!s)
		return;
	WRITE_ONCE(end->out, NULL);
	refcount_inc(&s->ref);	/* the source's reference goes to SPLICE_SOURCE_GONE */
	set_bit(SPLICE_SOURCE_GONE, &s->flags);
	sks_mover_queue(s);
	sks_splice_put(s);
}

void sks_splice_forget_finished_sink(struct sock *sk, struct splice_endpoint *end)
{
	struct splice *s = end->in;

	sock_owned_by_me(sk);
	if (!s || !test_bit(SPLICE_ENDED, &s->flags))
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SPLICE_SINK_KNOWS, &s->flags);
	sks_endpoint_update(sk, end);
	sks_splice_put(s);
}
