/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters, shown by name through netlink. Each CPU has its own, so counting takes no lock. A sum
 * that is taken while other CPUs count is exact for no instant, as with the kernel's own SNMP
 * counters.
 */
#ifndef SOCKSPLICE_STATS_H
#define SOCKSPLICE_STATS_H

#include <linux/percpu.h>
#include <linux/types.h>

/* X(name): the order is the order of `socksplice stats show`. */
#define SOCKSPLICE_STATS(X)						\
	X(enrolled)		/* ends that a policy enrolled */	\
	X(pairs_made)							\
	X(pairs_ended)							\
	X(pairs_dropped)	/* un-paired, or still draining */	\
	X(shadow_matches)	/* pairs made in shadow mode */		\
	X(park_expired)		/* enrolled, but the peer never was */	\
	X(declined_off)		/* pairing is switched off */		\
	X(declined_hook)	/* splice(2) would not see the ring */	\
	X(declined_ulp)		/* kTLS, MPTCP or another ULP */	\
	X(declined_psock)	/* in a sockmap, or sk_user_data set */	\
	X(declined_kernel)	/* a kernel socket, or foreign callbacks */ \
	X(declined_proto)	/* not TCP, or not its own struct proto */ \
	X(declined_filter)	/* SO_ATTACH_FILTER, SO_ATTACH_BPF */	\
	X(declined_repair)						\
	X(declined_timestamps)						\
	X(declined_pacing)						\
	X(declined_ipsec)						\
	X(declined_sequence)	/* its initial sequence numbers are unknown */ \
	X(declined_memory)						\
	X(declined_crowd)	/* its bucket of ends without a peer is full: match.c */ \
	X(declined_captured)	/* a packet socket captures its packets: yield.h */ \
	X(declined_helper)	/* a helper of connection tracking reads it: helper.h */ \
	X(doubt_hash)		/* sequences mirror, flow hashes do not */ \
	X(ring_bytes)							\
	X(ring_messages)						\
	X(tcp_bytes_startup)	/* the reader had not called recv yet */ \
	X(tcp_bytes_reader)	/* an older call may still read past the ring */ \
	X(tcp_bytes_spill)	/* the ring was full, or not empty since TCP took over */ \
	X(tcp_bytes_special)	/* urgent, zerocopy, control messages */ \
	X(tcp_bytes_memory)	/* no memory for a ring */		\
	X(tcp_bytes_closed)	/* the ring was closed for good */	\
	X(tcp_bytes_idle)	/* no packet had come for path_timeout seconds */ \
	X(rings_grown)		/* doubled, since they were full again and again */ \
	X(rings_given_back)	/* freed after sks_ring_idle seconds without a byte */ \
	X(pages_reclaimed)	/* pages of rings that memory pressure took back */ \
	X(rings_capped)		/* got no page: a cap of memory.h is reached */ \
	X(ends_limited)		/* got no ring when they wanted to send into one */ \
	X(spills)							\
	X(writer_waits)		/* sleeps of writers until the reader made room */ \
	X(busy_poll_hits)						\
	X(busy_poll_nsec)	/* that readers spun */			\
	X(probes_sent)		/* packets that ask whether the path works */ \
	X(probes_lost)		/* pairs that went back to TCP: no probe was answered */ \
	X(events_lost)		/* lost because the queue or memory was full */ \
	X(capture_records)	/* records that fitted into the buffer of `capture` */ \
	X(capture_dropped)	/* records that did not */		\
	X(psock_splice_calls)						\
	X(psock_splice_ref_bytes)					\
	X(psock_splice_copy_bytes)					\
	X(so_splices_made)						\
	X(so_splices_ended)						\
	X(so_splice_bytes)						\
	X(so_splice_copied_bytes)	/* of these, from TCP, but copied */ \
	X(so_splice_from_ring_bytes)	/* of these, from the ring of a paired source */ \
	X(so_splice_to_ring_bytes)	/* of these, into the ring of a paired sink */ \
	X(so_splice_loops)		/* ended with ELOOP */		\
	X(so_splice_throttled)		/* times that a mover had to wait for its share */

enum sks_stat {
#define X(name) SOCKSPLICE_STAT_##name,
	SOCKSPLICE_STATS(X)
#undef X
	SOCKSPLICE_STAT_MAX,
};

struct sks_stats {
	u64 v[SOCKSPLICE_STAT_MAX];
};

DECLARE_PER_CPU(struct sks_stats, sks_stats);

static inline void sks_stat_add(enum sks_stat s, u64 n)
{
	this_cpu_add(sks_stats.v[s], n);
}

static inline void sks_stat_inc(enum sks_stat s)
{
	this_cpu_inc(sks_stats.v[s]);
}

const char *sks_stat_name(unsigned int i);
u64 sks_stat_sum(unsigned int i);

#endif /* SOCKSPLICE_STATS_H */
