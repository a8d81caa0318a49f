// SPDX-License-Identifier: GPL-2.0
/*
 * How a splice ends. socksplice_sosplice_end() frees the source: what is in its queue, which
 * the sink has not got, is the application's. Later the mover takes the sink's pointer back,
 * unless the next splice into that sink has done so.
 */
#include <net/tcp.h>

#include "core/stats.h"
#include "core/trace.h"
#include "sosplice/budget.h"
#include "sosplice/endpoint.h"
#include "sosplice/finish.h"
#include "sosplice/loop.h"
#include "sosplice/splice.h"

/* Nobody finds it any more but its sink, and who splices into that finds it ended. */
static void retire(struct sosplice *s)
{
	set_bit(SOSPLICE_ENDED, &s->flags);
	socksplice_sosplice_settle(s);
	socksplice_sosplices_remove(s);
	socksplice_loop_forget(s);
	socksplice_mover_stop_tick(s);
	socksplice_budget_forget(s);
}

/* Drops the source's reference. */
static void bury(struct sosplice *s, int err)
{
	socksplice_stat_inc(SOCKSPLICE_STAT_so_splices_ended);
	trace_so_splice_end(s->src, s->dst, s->moved, err);
	socksplice_mover_queue(s);	/* for the sink */
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_end(struct sosplice *s, int err)
{
	struct sock *sk = s->src;
	struct soend *end = socksplice_soend_get(sk);

	sock_owned_by_me(sk);
	if (WARN_ON_ONCE(!end || end->out != s))
		return;

	retire(s);
	WRITE_ONCE(end->out, NULL);
	socksplice_soend_update(sk, end);

	if (err && !sk->sk_err) {
		end->err = err;
		WRITE_ONCE(sk->sk_err, err);
		sk_error_report(sk);
	}
	socksplice_soend_wake(sk);
	bury(s, err);
}

void socksplice_sosplice_end_orphan(struct sosplice *s)
{
	retire(s);
	bury(s, 0);
}

static void leave_as_sink(struct soend *end)
{
	struct sosplice *s = end->in;

	if (!s)
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SOSPLICE_SINK_KNOWS, &s->flags);
	set_bit(SOSPLICE_SINK_GONE, &s->flags);
	socksplice_mover_queue(s);
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_leave(struct sock *sk, struct soend *end)
{
	sock_owned_by_me(sk);
	leave_as_sink(end);
	if (end->out)
		socksplice_sosplice_end(end->out, 0);
	socksplice_soend_update(sk, end);
}

void socksplice_sosplice_abandon(struct soend *end)
{
	struct sosplice *s = end->out;

	leave_as_sink(end);
	if (!s)
		return;
	WRITE_ONCE(end->out, NULL);
	refcount_inc(&s->ref);	/* the bit gives away the source's */
	set_bit(SOSPLICE_SOURCE_GONE, &s->flags);
	socksplice_mover_queue(s);
	socksplice_sosplice_put(s);
}

void socksplice_sosplice_tidy(struct sock *sk, struct soend *end)
{
	struct sosplice *s = end->in;

	sock_owned_by_me(sk);
	if (!s || !test_bit(SOSPLICE_ENDED, &s->flags))
		return;
	WRITE_ONCE(end->in, NULL);
	clear_bit(SOSPLICE_SINK_KNOWS, &s->flags);
	socksplice_soend_update(sk, end);
	socksplice_sosplice_put(s);
}
