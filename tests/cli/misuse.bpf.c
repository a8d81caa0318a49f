// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that call the kfuncs from where they must not be called. The kernel
 * must refuse to load each of them; MISUSE says which one this is.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#include "../../module/uapi/socksplice.h"

#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))

struct bpf_sock_ops_kern {
} __attribute__((preserve_access_index));
struct sock {
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern int bpf_sock_splice_pair(struct bpf_sock_ops_kern *skops,
				struct socksplice_pair_opts *opts,
				__u32 opts__sz) __ksym;
extern int bpf_sock_splice_pair_sk(struct sock *sk,
				   struct socksplice_pair_opts *opts,
				   __u32 opts__sz) __ksym;

#if defined(TRACEPOINT)		/* of another event of a socket */
SEC("tp_btf/tcp_destroy_sock")
#elif defined(FENTRY)		/* the socket may be in any state */
SEC("fentry/tcp_close")
#endif
#if defined(TRACEPOINT) || defined(FENTRY)
int misuse(unsigned long long *ctx)
{
	struct socksplice_pair_opts opts = {};

	bpf_sock_splice_pair_sk((struct sock *)ctx[0], &opts, sizeof(opts));
	return 0;
}
#elif defined(NO_OPTIONS)
SEC("tp_btf/inet_sock_set_state")
int misuse(unsigned long long *ctx)
{
	bpf_sock_splice_pair_sk((struct sock *)ctx[0], (void *)0, 16);
	return 0;
}
#elif defined(NO_SOCKET)
SEC("tp_btf/inet_sock_set_state")
int misuse(unsigned long long *ctx)
{
	struct socksplice_pair_opts opts = {};

	bpf_sock_splice_pair_sk((void *)0, &opts, sizeof(opts));
	return 0;
}
#elif defined(WRONG_KFUNC)	/* that of the tracepoint, in a sock_ops program */
SEC("sockops")
int misuse(struct bpf_sock_ops *ctx)
{
	struct socksplice_pair_opts opts = {};

	bpf_sock_splice_pair_sk((struct sock *)ctx, &opts, sizeof(opts));
	return 1;
}
#elif defined(SOCK_OPS)
SEC("sockops")
int misuse(struct bpf_sock_ops *ctx)
{
	struct socksplice_pair_opts opts = {};

	bpf_sock_splice_pair(bpf_cast_to_kern_ctx(ctx), &opts, sizeof(opts));
	return 1;
}
#endif

char LICENSE[] SEC("license") = "GPL";
