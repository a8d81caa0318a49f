/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verdicts: what becomes of a connection that was considered, and why. Each is
 * counted, traced (trace.h) and told to who listens (`socksplice pair monitor`),
 * by the functions here and nowhere else.
 *
 * Where nobody listens or traces, an event costs its counter and two tests. What
 * is told is a snapshot, taken while others may send. It is sent by a work, since the
 * way to the listeners is as long as any user's namespace makes it; who joins the group
 * there hears nothing, but has events made.
 */
#ifndef SOCKSPLICE_EVENT_H
#define SOCKSPLICE_EVENT_H

#include <net/sock.h>

#include "stats.h"

struct socksplice_chan;

/* @why, one of the counters declined_*, keeps @sk from being paired. The caller has
 * it locked or is the softirq that owns it. Never sleeps.
 */
void socksplice_event_declined(enum socksplice_stat why, const struct sock *sk);

/* @what became of @c and, if it has one, of its peer; @reason as listed with enum
 * socksplice_event, or NULL. The caller keeps both from going away. Any context but
 * a hard interrupt, also under spinlocks, except one that a netlink listener's
 * wake-up takes; never sleeps.
 */
void socksplice_event_chan(enum socksplice_stat what, const char *reason,
			   const struct socksplice_chan *c);

/* Nothing is told from now on, and all that was has been sent. May sleep. */
void socksplice_event_stop(void);

#endif /* SOCKSPLICE_EVENT_H */
