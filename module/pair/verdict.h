/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verdicts: what becomes of a connection that was considered, and why. The functions
 * here, and nothing else, count and trace (trace.h) each one and hand it to the sinks.
 */
#ifndef SOCKSPLICE_EVENT_H
#define SOCKSPLICE_EVENT_H

#include <net/sock.h>

#include "core/stats.h"
#include "uapi/socksplice.h"

struct pair_end;

/* @why, one of the counters declined_*, keeps @sk from being paired. The caller has
 * it locked or is the softirq that owns it. Never sleeps.
 */
void sks_verdict_declined(enum sks_stat why, const struct sock *sk);

/* @what became of @end and, if it has one, of its peer; @reason as listed with enum
 * socksplice_event, or NULL. The caller keeps both from going away. Any context but
 * a hard interrupt, also under spinlocks, except one that a netlink listener's
 * wake-up takes; never sleeps.
 */
void sks_verdict_end(enum sks_stat what, const char *reason,
		     const struct pair_end *end);

/* A part of the module that wants to hear of verdicts. Called in the context of the
 * functions above: neither function sleeps.
 */
struct verdict_sink {
	void (*event)(enum socksplice_event event, const char *reason,
		      const struct pair_end *end);
	/* NULL: the sink does not care. @reason: the counter's name without "declined_". */
	void (*declined)(const char *reason, const struct sock *sk);
};

/* Before anything can be paired. @sink is never freed. */
void sks_verdict_register(const struct verdict_sink *sink);

#endif /* SOCKSPLICE_EVENT_H */
