/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verdicts: what becomes of a connection that was considered, and why. The functions here, and no
 * others, count each verdict, trace it (trace.h) and hand it to the sinks.
 */
#ifndef SOCKSPLICE_VERDICT_H
#define SOCKSPLICE_VERDICT_H

#include <net/sock.h>

#include "core/stats.h"
#include "uapi/socksplice.h"

struct pair_end;

/* @sk is not paired, for the reason @why, one of the counters declined_*. The caller has @sk
 * locked, or is the softirq that owns it. Never sleeps.
 */
void sks_verdict_declined(enum sks_stat why, const struct sock *sk);

/* @what became of @end and, if it has one, of its peer. @reason is one that enum socksplice_event
 * lists, or NULL. The caller keeps both ends from going away. Any context but a hard interrupt,
 * and under spinlocks too. The exception is a lock that the wake-up of a netlink listener takes.
 * Never sleeps.
 */
void sks_verdict_end(enum sks_stat what, const char *reason, const struct pair_end *end);

/* A part of the module that wants to know of verdicts. Its functions run in the context of the
 * functions above, and do not sleep.
 */
struct verdict_sink {
	void (*event)(enum socksplice_event event, const char *reason, const struct pair_end *end);
	/* NULL: the sink does not need these. @reason: the counter's name without "declined_". */
	void (*declined)(const char *reason, const struct sock *sk);
};

/* Called before anything can be paired. @sink is never freed. */
void sks_verdict_register(const struct verdict_sink *sink);

#endif /* SOCKSPLICE_VERDICT_H */
