/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The configuration that the command line hands to policy.bpf.c.
 *
 * The command line writes and reads these bytes (cli/src/policy/config.rs):
 * change both together, and POLICY_LAYOUT with them.
 */
#ifndef _SOCKSPLICE_POLICY_H
#define _SOCKSPLICE_POLICY_H

#include <linux/types.h>

#define POLICY_LAYOUT		7
/* As many as a cgroup's mask has bits. */
#define POLICY_MAX		32
#define POLICY_NAME		32
#define POLICY_PORTS		64
#define POLICY_CIDRS		64
/* A cgroup deeper than this below the root cannot be named. */
#define POLICY_CGROUP_DEPTH	64
/* Bytes of a cgroup's path, or of a pattern, with the NUL. A power of two. */
#define POLICY_PATH		512
/* How many patterns all policies together can have. */
#define POLICY_PATTERNS		64
/* How many cgroups they can name at one time. */
#define POLICY_CGROUPS		65536
/* How many selectors of containers all policies together can have: bits of a mask. */
#define POLICY_SELECTORS	64
/* Bytes of a selector's text, with the NUL. */
#define POLICY_SELECTOR		256
/* How many containers they can have found at one time. */
#define POLICY_FOUND		4096

/* Both ends of the range are part of it. */
struct policy_ports {
	__u16 first;
	__u16 last;
};

/* Words in host order. An IPv4 network has its words in the last place. */
struct policy_cidr {
	__u32 v4;
	__u32 net[4];
	__u32 mask[4];
};

struct policy {
	char name[POLICY_NAME];	/* ends with a NUL; for those who read it back */
	__u32 tcp;		/* what matches is not enrolled */
	__u32 ring_size;	/* 0: the module's default */
	__u32 busy_poll_usec;	/* 0: the socket's own value */
	__u32 loopback_only;	/* both addresses are loopback addresses */
	__u32 group;		/* see struct socksplice_pair_opts */
	__u32 memory_cap[2];	/* its lower and its upper half */
	__u32 yields;		/* gives way to who captures packets */
	__u32 ring_max;		/* 0: see struct socksplice_pair_opts */
	__u32 busy_poll_epoll;	/* its event loops spin, too; only user space reads it */
	__u32 n_ports;		/* 0: every port */
	__u32 n_cidrs;		/* 0: every address */
	struct policy_ports ports[POLICY_PORTS];
	struct policy_cidr cidrs[POLICY_CIDRS];
};

/*
 * The path of a cgroup as the kernel writes it: from the root of the hierarchy, with a leading
 * '/', and zeroes up to the end.
 */
struct policy_path {
	char text[POLICY_PATH] __attribute__((aligned(8)));
};

/* A path in which each '*' stands for any bytes but '/'. */
struct policy_pattern {
	struct policy_path path;
	__u32 policies;		/* bit N: policy N has this pattern */
};

/* What names containers, as the administrator has written it. Only user space reads it. */
struct policy_selector {
	char text[POLICY_SELECTOR];
	__u32 policies;		/* bit N: policy N has this selector */
};

/* The cgroup of a container that selectors name. */
struct policy_found {
	__u64 selectors;	/* bit N: selector N names the container */
	__u32 policies;		/* those that have one of these selectors */
	__u32 source;		/* the engine that has the container; for user space */
};

/* The first policy that a socket matches decides. */
struct policy_config {
	__u32 layout;
	__u32 n_policies;
	struct policy policies[POLICY_MAX];
};

#endif /* _SOCKSPLICE_POLICY_H */
