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

/*
 * X(name) with its help text, in the order of `socksplice stats show`. The comments are
 * read when the command line is built: its exporter and the man page take the help texts
 * from here.
 */
#define SOCKSPLICE_STATS(X) \
	X(enrolled) /* Ends of connections that a policy enrolled */ \
	X(pairs_made) /* Pairs made */ \
	X(pairs_ended) /* Pairs that have ended */ \
	X(pairs_dropped) /* Pairs taken back to TCP while they lived */ \
	X(shadow_matches) /* Pairs found in shadow mode */ \
	X(no_policy) /* Ends of connections that none of the policies in force names */ \
	X(expired_not_enrolled) \
		/* Enrolled ends whose peer in the same network namespace was not enrolled */ \
	X(expired_elsewhere) \
		/* Enrolled ends that found no peer and send out of their network namespace */ \
	X(expired_doubt) \
		/* Enrolled ends that found no peer, only one that could not be proven */ \
	X(expired_drain) /* Enrolled ends that drain gave up before their peer came */ \
	X(declined_off) /* Ends declined because pairing is switched off */ \
	X(declined_hook) /* Ends declined because the hooks of splice(2) are not installed */ \
	X(declined_ulp) /* Ends declined because of kTLS, MPTCP or another ULP */ \
	X(declined_psock) \
		/* Ends declined because they are in a sockmap, or sk_user_data is set */ \
	X(declined_kernel) /* Ends declined because the kernel itself uses the socket */ \
	X(declined_proto) \
		/* Ends declined because they are not TCP, or have another struct proto */ \
	X(declined_filter) /* Ends declined because of SO_ATTACH_FILTER or SO_ATTACH_BPF */ \
	X(declined_repair) /* Ends declined because of TCP_REPAIR */ \
	X(declined_timestamps) /* Ends declined because they ask for timestamps of packets */ \
	X(declined_pacing) /* Ends declined because of SO_MAX_PACING_RATE */ \
	X(declined_ipsec) /* Ends declined because of an IPsec policy */ \
	X(declined_sequence) \
		/* Ends declined because their initial sequence numbers are not known */ \
	X(declined_memory) /* Ends declined because there was no memory */ \
	X(declined_crowd) \
		/* Ends declined because too many with the same hash wait for their peers */ \
	X(declined_captured) /* Ends declined because a packet socket captures their packets */ \
	X(declined_helper) \
		/* Ends declined because a helper of connection tracking reads their data */ \
	X(doubt_hash) \
		/* Ends not paired because only their sequence numbers fit, not the flow hashes */ \
	X(ring_bytes) /* Bytes sent by ring */ \
	X(ring_messages) /* Messages sent by ring */ \
	X(tcp_bytes_startup) /* Bytes sent by TCP because the reader had not called recv yet */ \
	X(tcp_bytes_reader) \
		/* Bytes sent by TCP because an older call may still read past the ring */ \
	X(tcp_bytes_spill) /* Bytes sent by TCP because the ring was full, or after such bytes */ \
	X(tcp_bytes_special) \
		/* Bytes sent by TCP because they are urgent, zerocopy or have control messages */ \
	X(tcp_bytes_memory) /* Bytes sent by TCP because there was no memory for a ring */ \
	X(tcp_bytes_closed) /* Bytes sent by TCP because the ring was closed for good */ \
	X(tcp_bytes_idle) \
		/* Bytes sent by TCP because no packet had come for path_timeout seconds */ \
	X(rings_grown) /* Rings made twice as large because they were full again and again */ \
	X(rings_given_back) /* Rings whose memory was freed because they were idle */ \
	X(pages_reclaimed) /* Pages of rings that memory pressure took back */ \
	X(rings_capped) /* Times that a ring got no page because a cap on memory was reached */ \
	X(ends_limited) /* Ends that had no ring to send into when they wanted one */ \
	X(spills) /* Times that a sender went on by TCP because the ring was full */ \
	X(writer_waits) /* Times that a sender waited for the reader */ \
	X(busy_poll_hits) /* Reads and polls that found bytes while they spun */ \
	X(busy_poll_nsec) /* Nanoseconds that readers and polls spun */ \
	X(napi_polls) /* Rounds of the threads that own the NAPI instance and spin */ \
	X(probes_sent) /* Packets of pairs that ask whether the path works */ \
	X(probes_lost) /* Pairs taken back to TCP because their probes got no answer */ \
	X(events_lost) /* Events lost because the queue or memory was full */ \
	X(capture_records) /* Records that captures had room for */ \
	X(capture_dropped) /* Records that captures had no room for */ \
	X(psock_splice_calls) /* Calls of splice(2) on sockmap sockets that the module served */ \
	X(psock_splice_ref_bytes) \
		/* Bytes that splice(2) took from sockmap sockets by reference */ \
	X(psock_splice_copy_bytes) /* Bytes that splice(2) took from sockmap sockets by copying */ \
	X(so_splices_made) /* Splices (SO_SPLICE) set up */ \
	X(so_splices_ended) /* Splices (SO_SPLICE) that have ended */ \
	X(so_splice_bytes) /* Bytes that SO_SPLICE moved */ \
	X(so_splice_datagrams) \
		/* Datagrams, or trains of them, that SO_SPLICE moved between UDP sockets */ \
	X(so_splice_copied_bytes) /* Bytes that SO_SPLICE took from TCP and copied */ \
	X(so_splice_from_ring_bytes) \
		/* Bytes that SO_SPLICE took from the ring of a paired source */ \
	X(so_splice_to_ring_bytes) /* Bytes that SO_SPLICE put into the ring of a paired sink */ \
	X(so_splice_loops) \
		/* Splices (SO_SPLICE) that ended because their bytes went in a circle */ \
	X(so_splice_throttled) \
		/* Times that the splices of a user had to wait for their share of the CPU */

/* clang-format off */
enum sks_stat {
#define X(name) SOCKSPLICE_STAT_##name,
	SOCKSPLICE_STATS(X)
#undef X
	SOCKSPLICE_STAT_MAX,
};
/* clang-format on */

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
