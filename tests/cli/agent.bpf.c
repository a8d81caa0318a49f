// SPDX-License-Identifier: GPL-2.0
/*
 * As programs do that observe connections: puts each socket that becomes established into
 * a sockhash.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);	/* so the kernel tells which sockets are in it */
} kept SEC(".maps");

SEC("sockops")
int keep(struct bpf_sock_ops *ops)
{
	__u64 key;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 0;
	/* volatile: the verifier refuses the one load of eight bytes that clang would make */
	key = (__u64)*(volatile __u32 *)&ops->local_port << 32 |
	      *(volatile __u32 *)&ops->remote_port;
	bpf_sock_hash_update(ops, &kept, &key, BPF_ANY);
	return 0;
}

SEC("sk_msg")
int pass(struct sk_msg_md *msg)
{
	return SK_PASS;
}

char _license[] SEC("license") = "GPL";
