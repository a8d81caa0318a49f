// SPDX-License-Identifier: GPL-2.0
#include <linux/string.h>

#include "core/ident.h"
#include "core/stats.h"
#include "core/trace.h"
#include "pair/end.h"
#include "pair/verdict.h"

/* Written by init, before anything can be paired; constant afterwards. */
static const struct verdict_sink *sinks[2];

void sks_verdict_register(const struct verdict_sink *sink)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sinks); i++) {
		if (!sinks[i]) {
			sinks[i] = sink;
			return;
		}
	}
	WARN_ON_ONCE(1);
}

static enum socksplice_event event_of(enum sks_stat what)
{
	switch (what) {
	case SOCKSPLICE_STAT_pairs_made:
	case SOCKSPLICE_STAT_shadow_matches:
		return SOCKSPLICE_EVENT_PAIRED;
	case SOCKSPLICE_STAT_expired_not_enrolled:
	case SOCKSPLICE_STAT_expired_elsewhere:
	case SOCKSPLICE_STAT_expired_doubt:
	case SOCKSPLICE_STAT_expired_drain:
		return SOCKSPLICE_EVENT_EXPIRED;
	case SOCKSPLICE_STAT_pairs_dropped:
		return SOCKSPLICE_EVENT_DROPPED;
	case SOCKSPLICE_STAT_pairs_ended:
		return SOCKSPLICE_EVENT_ENDED;
	case SOCKSPLICE_STAT_ends_limited:
		return SOCKSPLICE_EVENT_LIMITED;
	default:
		return SOCKSPLICE_EVENT_DECLINED;
	}
}

void sks_verdict_declined(enum sks_stat why, const struct sock *sk)
{
	const char *reason = sks_stat_name(why) + strlen("declined_");
	unsigned int i;
	struct ident id;

	sks_stat_inc(why);
	if (trace_verdict_enabled()) {
		sks_ident_addresses(sk, &id);
		trace_verdict(SOCKSPLICE_EVENT_DECLINED, reason, &id, sock_net(sk)->ns.inum, 0, 0,
			      0);
	}
	for (i = 0; i < ARRAY_SIZE(sinks); i++) {
		if (sinks[i] && sinks[i]->declined)
			sinks[i]->declined(reason, sk);
	}
}

static void trace_end(enum socksplice_event event, const char *reason, const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end);
	u64 ring = READ_ONCE(end->ring_bytes), tcp = READ_ONCE(end->tcp_bytes);

	if (peer) {
		ring += READ_ONCE(peer->ring_bytes);
		tcp += READ_ONCE(peer->tcp_bytes);
	}
	trace_verdict(event, reason, &end->ident, end->netns_inum, peer ? end->id : 0, ring, tcp);
}

void sks_verdict_end(enum sks_stat what, const char *reason, const struct pair_end *end)
{
	const enum socksplice_event event = event_of(what);
	unsigned int i;

	sks_stat_inc(what);
	if (trace_verdict_enabled())
		trace_end(event, reason, end);
	for (i = 0; i < ARRAY_SIZE(sinks); i++) {
		if (sinks[i])
			sinks[i]->event(event, reason, end);
	}
}
