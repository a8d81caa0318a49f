/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/socksplice-capture: copies of the bytes that pairs send by ring, for `socksplice capture`.
 *
 * Opening it needs CAP_NET_ADMIN and CAP_NET_RAW in the initial user namespace. There is one
 * capture at a time. It ends when its file is closed, in whatever way.
 *
 * SOCKSPLICE_CAPTURE_START	begins it. Once for each open file.
 *	EBUSY	there is a capture, or this file has had one
 *	EINVAL	the options are not as struct socksplice_capture_opts has them
 *	ENOMEM	no memory for the buffer, or its memory cgroup is full
 * SOCKSPLICE_CAPTURE_STOP	nothing more goes into the buffer. What is in it can still
 *				be read, up to the end of file.
 * SOCKSPLICE_CAPTURE_STATS	counters since START
 * STOP, STATS and read(2) fail with ENODATA before START.
 *
 * read(2) returns whole records, as many as there are and fit. It waits until a quarter of the
 * buffer is in use, but no longer than about 20 ms:
 *	0	the capture is stopped, and all was read
 *	EAGAIN	no record came in that time
 *	EMSGSIZE the next record does not fit; SOCKSPLICE_CAPTURE_RECORD_MAX bytes always do
 */
#ifndef _UAPI_SOCKSPLICE_CAPTURE_H
#define _UAPI_SOCKSPLICE_CAPTURE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SOCKSPLICE_CAPTURE_DEVICE	"socksplice-capture"

#define SOCKSPLICE_CAPTURE_SNAPLEN_MAX	(1U << 18)
#define SOCKSPLICE_CAPTURE_BUFFER_MIN	(1U << 19)
#define SOCKSPLICE_CAPTURE_BUFFER_MAX	(1U << 30)
#define SOCKSPLICE_CAPTURE_FILTERS	64

/**
 * struct socksplice_capture_opts - which pairs are captured, and how much of them
 * @snaplen: how many bytes of each record's data are kept, up to
 *	SOCKSPLICE_CAPTURE_SNAPLEN_MAX, which keeps all
 * @buffer: bytes that may wait to be read, headers included: a power of two from
 *	SOCKSPLICE_CAPTURE_BUFFER_MIN to _MAX. A record that finds no room is dropped.
 * @netns: the inode number of a network namespace, or 0
 * @n_ports: @ports that are used; at most SOCKSPLICE_CAPTURE_FILTERS, as the next two
 * @n_cgroups: @cgroups that are used
 * @n_pairs: @pairs that are used
 * @reserved: must be 0
 * @ports: ranges of ports in host order; both bounds belong to the range
 * @cgroups: ids of cgroups (version 2)
 * @pairs: ids of pairs
 *
 * A pair is captured if it is one of @pairs, and if one of its ends fits all other filters: its
 * namespace, its own or its peer's port, its socket's cgroup or one above it. A filter that is
 * empty or 0 fits everything.
 */
struct socksplice_capture_opts {
	__u32 snaplen;
	__u32 buffer;
	__u32 netns;
	__u32 n_ports;
	__u32 n_cgroups;
	__u32 n_pairs;
	__u32 reserved[2];
	struct {
		__u16 first;
		__u16 last;
	} ports[SOCKSPLICE_CAPTURE_FILTERS];
	__u64 cgroups[SOCKSPLICE_CAPTURE_FILTERS];
	__u32 pairs[SOCKSPLICE_CAPTURE_FILTERS];
};

/**
 * struct socksplice_capture_stats - what was lost since START
 * @dropped: records that found no room
 * @dropped_bytes: bytes that were sent and that those records were about
 */
struct socksplice_capture_stats {
	__u64 dropped;
	__u64 dropped_bytes;
};

/* An end of a connection, with the addresses that it sees. IPv4 addresses are v4-mapped, in
 * network order. Ports are in host order. @netns is the inode number of its namespace.
 */
struct socksplice_capture_end {
	__u8  saddr[16];
	__u8  daddr[16];
	__u16 sport;
	__u16 dport;
	__u32 netns;
};

/**
 * struct socksplice_capture_record - bytes that were appended to a ring at one time,
 *	or a verdict on a pair
 * @length: of the record with its data; a multiple of 8
 * @kept: bytes of data that follow
 * @time: nanoseconds since 1970
 * @dropped: records that found no room since START
 * @pair: id of the pair
 * @event: 0, or a value of enum socksplice_event. Its reason is the data, without a NUL
 * @from: index in @ends of the sender; 0 for an event
 * @reserved: 0
 * @size: bytes that were sent, of which @kept are here
 * @seq: TCP's sequence number of the place at which they stand in the stream
 * @ring: how many bytes this end had sent by ring before, modulo 2^32. All that this
 *	end had sent before is @seq + @ring, less the first sequence number.
 * @ack: the same sum of the other direction, up to which this end had read
 * @ends: the active opener's end, then the other's
 *
 * Records are in the order in which the bytes were sent: an answer comes after the bytes that it
 * answers. In an event @seq, @ring and @ack are a snapshot.
 */
struct socksplice_capture_record {
	__u32 length;
	__u32 kept;
	__u64 time;
	__u64 dropped;
	__u32 pair;
	__u8  event;
	__u8  from;
	__u16 reserved;
	__u32 size;
	__u32 seq;
	__u32 ring;
	__u32 ack;
	struct socksplice_capture_end ends[2];
};

#define SOCKSPLICE_CAPTURE_RECORD_MAX \
	(sizeof(struct socksplice_capture_record) + SOCKSPLICE_CAPTURE_SNAPLEN_MAX)

#define SOCKSPLICE_CAPTURE_START	_IOW('$', 1, struct socksplice_capture_opts)
#define SOCKSPLICE_CAPTURE_STOP		_IO('$', 2)
#define SOCKSPLICE_CAPTURE_STATS	_IOR('$', 3, struct socksplice_capture_stats)

#endif /* _UAPI_SOCKSPLICE_CAPTURE_H */
