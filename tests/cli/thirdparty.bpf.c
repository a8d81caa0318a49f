// SPDX-License-Identifier: GPL-2.0
/*
 * A policy of somebody else's: a sock_ops program that enrols every connection
 * of the cgroup it is attached to. It needs nothing but the prototypes of the
 * kfunc and of the kernel's cast to its argument, and the options. Before it
 * does so properly, it calls the kfunc in each wrong way, and keeps what each
 * call returned for the test to read.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#include "../../module/uapi/socksplice.h"

#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))

/* Only its name matters. */
struct bpf_sock_ops_kern {
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern int bpf_sock_splice_pair(struct bpf_sock_ops_kern *skops,
				struct socksplice_pair_opts *opts,
				__u32 opts__sz) __ksym;

struct results {
	int moment;	/* before the handshake */
	int flags;
	int memory_cap;
	int ring_size;
	int ring_max;
	int reserved;
	int busy_poll;
	int size;
	int proper;
	int again;
};

/* Not zero, so that a call that never happened shows. */
struct results active = { 99, 99, 99, 99, 99, 99, 99, 99, 99, 99 };
struct results passive = { 99, 99, 99, 99, 99, 99, 99, 99, 99, 99 };

static void enrol(struct bpf_sock_ops_kern *skops, struct results *r)
{
	struct socksplice_pair_opts bad_flags = { .flags = 2 };
	struct socksplice_pair_opts bad_memory_cap = { .memory_cap = 1 };
	struct socksplice_pair_opts bad_ring = { .ring_size = 5000 };
	struct socksplice_pair_opts bad_max = { .ring_max = 2 << 20 };
	struct socksplice_pair_opts bad_reserved = { .reserved = 1 };
	struct socksplice_pair_opts bad_poll = {
		.busy_poll_usec = SOCKSPLICE_BUSY_POLL_MAX + 1,
	};
	struct socksplice_pair_opts opts = { .ring_size = 8192 };

	r->flags = bpf_sock_splice_pair(skops, &bad_flags, sizeof(bad_flags));
	r->memory_cap = bpf_sock_splice_pair(skops, &bad_memory_cap, sizeof(bad_memory_cap));
	r->ring_size = bpf_sock_splice_pair(skops, &bad_ring, sizeof(bad_ring));
	r->ring_max = bpf_sock_splice_pair(skops, &bad_max, sizeof(bad_max));
	r->reserved = bpf_sock_splice_pair(skops, &bad_reserved, sizeof(bad_reserved));
	r->busy_poll = bpf_sock_splice_pair(skops, &bad_poll, sizeof(bad_poll));
	r->size = bpf_sock_splice_pair(skops, &opts, sizeof(opts) - 4);
	r->proper = bpf_sock_splice_pair(skops, &opts, sizeof(opts));
	r->again = bpf_sock_splice_pair(skops, &opts, sizeof(opts));
}

SEC("sockops")
int thirdparty(struct bpf_sock_ops *ctx)
{
	struct bpf_sock_ops_kern *skops = bpf_cast_to_kern_ctx(ctx);
	struct socksplice_pair_opts opts = {};

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		active.moment = bpf_sock_splice_pair(skops, &opts, sizeof(opts));
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		enrol(skops, &active);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		enrol(skops, &passive);
		break;
	}
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
