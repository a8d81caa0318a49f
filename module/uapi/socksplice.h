/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface of socksplice.ko to user space and to BPF programs: the generic-netlink family,
 * its attributes, and the options of the kfuncs.
 *
 * Numbers here are ABI: append, never renumber.
 */
#ifndef _UAPI_SOCKSPLICE_H
#define _UAPI_SOCKSPLICE_H

#include <linux/types.h>

#define SOCKSPLICE_GENL_NAME	"socksplice"
#define SOCKSPLICE_GENL_VERSION	1

/*
 * Commands. Each needs CAP_NET_ADMIN in the initial user namespace (GENL_ADMIN_PERM), else EPERM.
 * It also needs a socket of the initial network namespace, else EACCES, because the answers name
 * the connections of every network namespace. STATUS_GET and STATS_GET name none, and need less:
 * the process that opened the netlink socket had the capability then, in whatever network
 * namespace. So a program may open the socket, give up its privileges, and go on reading counters.
 *
 * STATUS_GET	do	-> SOCKSPLICE_A_STATUS_*, one message
 * STATS_GET	dump	-> one message per counter: STAT_NAME, STAT_VALUE
 * PAIR_GET	dump	-> one message per live pair, SOCKSPLICE_A_PAIR_*
 * STATUS_SET	do	<- STATUS_PAIRING, STATUS_SPLICE and/or STATUS_SO_SPLICE (u8 0 or 1):
 *			   new connections are paired or not; splice(2) on
 *			   sockmap sockets is served or not; new splices are
 *			   accepted or not. Live pairs and splices stay. And/or
 *			   STATUS_MEMORY_CAP; rings that exist stay. EOPNOTSUPP if
 *			   STATUS_SPLICE is 1 and splice(2) is not hooked. Then
 *			   nothing is set.
 * PAIR_DROP	do	<- PAIR_ID, or none for all: begins to un-pair, without
 *			   waiting. ENOENT if there is no such pair (any more).
 *			   PAIR_GET shows the pairs that are still draining.
 * EVENT	sent to the group "events": the verdict on a connection; see enum
 *			   socksplice_event. Joining the group needs CAP_NET_ADMIN,
 *			   and only sockets of the initial network namespace get
 *			   events.
 * SPLICE_GET	dump	-> one message per live splice (SO_SPLICE), SOCKSPLICE_A_SPLICE_*
 * SPLICE_DROP	do	begins to end all splices, as a descriptor of -1 from the application
 *			   would, and to forget the counts of those that have ended.
 *			   Does not wait.
 */
enum {
	SOCKSPLICE_CMD_UNSPEC,
	SOCKSPLICE_CMD_STATUS_GET,
	SOCKSPLICE_CMD_STATS_GET,
	SOCKSPLICE_CMD_PAIR_GET,
	SOCKSPLICE_CMD_STATUS_SET,
	SOCKSPLICE_CMD_PAIR_DROP,
	SOCKSPLICE_CMD_EVENT,
	SOCKSPLICE_CMD_SPLICE_GET,
	SOCKSPLICE_CMD_SPLICE_DROP,
	__SOCKSPLICE_CMD_MAX,
};
#define SOCKSPLICE_CMD_MAX (__SOCKSPLICE_CMD_MAX - 1)

#define SOCKSPLICE_GENL_EVENTS	"events"	/* the multicast group */

/*
 * Each verdict on a connection, with its possible reasons. An event has EVENT, EVENT_TIME,
 * EVENT_SEQ and perhaps EVENT_REASON. If the verdict is about a pair, it also has all that
 * PAIR_GET shows of the pair. Otherwise it has one PAIR_END. That of DECLINED has the addresses,
 * the namespace, the cookie, the inode and the cgroup only.
 */
enum socksplice_event {
	SOCKSPLICE_EVENT_UNSPEC,
	SOCKSPLICE_EVENT_PAIRED,	/* no reason, or "shadow" */
	SOCKSPLICE_EVENT_DECLINED,	/* one end; reason X of the counter declined_X */
	SOCKSPLICE_EVENT_EXPIRED,	/* one end, which found no peer in time; reason X of the
					 * counter expired_X
					 */
	SOCKSPLICE_EVENT_DROPPED,	/* un-pairing begins: "request", "setsockopt", "path",
					 * "captured", "urgent"
					 */
	SOCKSPLICE_EVENT_ENDED,		/* "closed", or "dropped" if it is on TCP again */
	SOCKSPLICE_EVENT_LIMITED,	/* a pair, once for each end: the end has no ring to send
					 * into, and sends by TCP for now: "memory_cap" or
					 * "no_memory"
					 */
};

enum {
	SOCKSPLICE_A_UNSPEC,
	SOCKSPLICE_A_PAD,

	SOCKSPLICE_A_STATUS_VERSION,	/* string: the module's version */
	SOCKSPLICE_A_STATUS_BTF,	/* u8: 1 if BPF can call the kfuncs */
	SOCKSPLICE_A_STATUS_SOCKOPS,	/* u8: 1 if sock_ops programs may call them, too */
	SOCKSPLICE_A_STATUS_HOOK,	/* s32: 0, or why splice(2) is not hooked (-errno) */
	SOCKSPLICE_A_STATUS_PAIRING,	/* u8: 1 = new connections are paired */
	SOCKSPLICE_A_STATUS_SHADOW,	/* u8: 1 = match and count, move no data */
	SOCKSPLICE_A_STATUS_ENROLL_ALL,	/* u8: 1 = every TCP socket is enrolled */
	SOCKSPLICE_A_STATUS_SPLICE,	/* u8: 1 = splice(2) on sockmap sockets is served */
	SOCKSPLICE_A_STATUS_RING_SIZE,	/* u32: default bytes per direction */

	SOCKSPLICE_A_STAT_NAME,		/* string, for example "declined_ulp" */
	SOCKSPLICE_A_STAT_VALUE,	/* u64 */

	SOCKSPLICE_A_PAIR_ID,		/* u32: unique among the live pairs */
	SOCKSPLICE_A_PAIR_AGE_MS,	/* u64: since the handshake */
	SOCKSPLICE_A_PAIR_END,		/* nested SOCKSPLICE_A_END_*; two of them:
					 * first the active opener's, then the other's
					 */

	SOCKSPLICE_A_END_FAMILY,	/* u16: AF_INET or AF_INET6 */
	SOCKSPLICE_A_END_SADDR,		/* binary, 4 or 16 bytes: own address */
	SOCKSPLICE_A_END_DADDR,		/* binary: the peer's, as this end sees it */
	SOCKSPLICE_A_END_SPORT,		/* u16, host order */
	SOCKSPLICE_A_END_DPORT,		/* u16, host order */
	SOCKSPLICE_A_END_NETNS,		/* u32: inode number of the namespace */
	SOCKSPLICE_A_END_COOKIE,	/* u64: as SO_COOKIE; 0 if never asked for, or closed */
	SOCKSPLICE_A_END_TX_RING_BYTES,	/* u64: sent by this end through the ring */
	SOCKSPLICE_A_END_TX_RING_MSGS,	/* u64 */
	SOCKSPLICE_A_END_TX_TCP_BYTES,	/* u64: sent by this end through TCP */
	SOCKSPLICE_A_END_TX_TCP_MSGS,	/* u64 */
	SOCKSPLICE_A_END_RING_SIZE,	/* u32: bytes this end's tx ring can hold */
	SOCKSPLICE_A_END_RING_MEM,	/* u32: bytes allocated for it now */
	SOCKSPLICE_A_END_RING_QUEUED,	/* u32: bytes in it that the reader has not read */
	SOCKSPLICE_A_END_CLOSED,	/* u8: 1 if this end's socket is gone, or on TCP again */

	SOCKSPLICE_A_PAIR_DRAINING,	/* u8: 1 = being un-paired */
	SOCKSPLICE_A_END_INODE,		/* u64: of the socket, as /proc/PID/fd has it;
					 * 0 if no file refers to it
					 */
	SOCKSPLICE_A_END_CGROUP,	/* u64: id of the socket's cgroup (version 2);
					 * 0 if it is gone
					 */
	SOCKSPLICE_A_STATUS_EVENTS,	/* u8: 1 if the asking socket can get events, because it is
					 * in the initial network namespace
					 */
	SOCKSPLICE_A_EVENT,		/* u8: enum socksplice_event */
	SOCKSPLICE_A_EVENT_REASON,	/* string */
	SOCKSPLICE_A_EVENT_TIME,	/* u64: nanoseconds since 1970 */
	SOCKSPLICE_A_EVENT_SEQ,		/* u64: one more than in the event before; a number that is
					 * missing is that of a lost event
					 */

	SOCKSPLICE_A_STATUS_SO_SPLICE,	/* u8: 1 = new splices (SO_SPLICE) are accepted */
	SOCKSPLICE_A_STATUS_LITERAL,	/* s32: 0: setsockopt(SOL_SOCKET, SO_SPLICE) works; 1: not
					 * switched on; or why it does not work (-errno)
					 */
	SOCKSPLICE_A_SPLICE_SOURCE,	/* nested SOCKSPLICE_A_END_* from FAMILY to COOKIE, and
					 * INODE
					 */
	SOCKSPLICE_A_SPLICE_SINK,	/* the same */
	SOCKSPLICE_A_SPLICE_UID,	/* u32: uid of its user, in the initial user namespace */
	SOCKSPLICE_A_SPLICE_MOVED,	/* u64: bytes so far */
	SOCKSPLICE_A_SPLICE_MAX,	/* u64: its limit in bytes, 0 if none */
	SOCKSPLICE_A_SPLICE_IDLE_MS,	/* u64: its idle time, 0 if none */
	SOCKSPLICE_A_SPLICE_AGE_MS,	/* u64: since setsockopt() */
	SOCKSPLICE_A_END_GROUP,		/* u32: as it was enrolled, 0 if none */
	SOCKSPLICE_A_STATUS_MEMORY_CAP,	/* u64: most bytes that all rings may hold, 0: no limit */
	SOCKSPLICE_A_STATUS_SPLICE_NATIVE,	/* u8: 1 = the kernel serves splice(2) on sockmap
						 * sockets itself; STATUS_SPLICE stays 0
						 */
	SOCKSPLICE_A_END_BUSY_POLL,	/* u32: µs, as it was enrolled, 0 if not */

	__SOCKSPLICE_A_MAX,
};
#define SOCKSPLICE_A_MAX (__SOCKSPLICE_A_MAX - 1)

#define SOCKSPLICE_RING_SIZE_MIN	(1U << 12)
#define SOCKSPLICE_RING_SIZE_MAX	(1U << 20)
#define SOCKSPLICE_RING_SIZE_DEFAULT	(1U << 16)
#define SOCKSPLICE_RING_MAX_DEFAULT	(1U << 18)
#define SOCKSPLICE_BUSY_POLL_MAX	1000U	/* µs */

/* While a packet socket captures the connection's packets, in the namespace of either end, the
 * connection is not paired. A pair goes back to TCP within about two seconds.
 */
#define SOCKSPLICE_PAIR_YIELDS		(1U << 0)

/**
 * struct socksplice_pair_opts - options of bpf_sock_splice_pair()
 * @ring_size: bytes of the ring that this end sends into. A power of two from
 *	SOCKSPLICE_RING_SIZE_MIN to _MAX, or 0 for the default. A ring has at least
 *	one page of the machine.
 * @busy_poll_usec: how long this end's reader spins before it sleeps, in µs,
 *	0 to SOCKSPLICE_BUSY_POLL_MAX, while it is paired. If the socket's own
 *	SO_BUSY_POLL is longer, that counts, up to the same maximum.
 * @flags: SOCKSPLICE_PAIR_*; all other bits must be 0.
 * @group: a number by which the policy that enrols this end knows it again; 0 for
 *	none. It may not be 0 if @memory_cap is not.
 * @memory_cap: the most bytes that the rings of all ends with the same @group may
 *	hold together; bytes that find no room go by TCP. 0: no limit.
 * @ring_max: the size that the ring may grow to if it is full again and again. The
 *	same values as for @ring_size. A value below @ring_size has no effect. 0: the
 *	ring keeps its size; or, if @ring_size is 0 too, the module's default.
 * @reserved: must be 0.
 */
struct socksplice_pair_opts {
	__u32 ring_size;
	__u32 busy_poll_usec;
	__u32 flags;
	__u32 group;
	__u64 memory_cap;
	__u32 ring_max;
	__u32 reserved;
};

#endif /* _UAPI_SOCKSPLICE_H */
