// SPDX-License-Identifier: GPL-2.0
/* What a mesh or an accelerator does to the connections of a cgroup: each end
 * enters a sockhash when it is established. Then either an sk_msg program
 * passes what one end sends straight to the other, or a verdict program looks
 * at what arrives.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "relay.h"

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 4096);
	__type(key, struct end);
	__type(value, __u64);
} ends SEC(".maps");

SEC("sockops")
int enroll(struct bpf_sock_ops *ops)
{
	struct end key = { ops->local_port, bpf_ntohl(ops->remote_port) };

	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ||
	    ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		bpf_sock_hash_update(ops, &ends, &key, BPF_ANY);
	return 1;
}

SEC("sk_msg")
int to_peer(struct sk_msg_md *msg)
{
	struct end peer = { bpf_ntohl(msg->remote_port), msg->local_port };

	/* by TCP, as ever, if the peer is not in the map */
	bpf_msg_redirect_hash(msg, &ends, &peer, BPF_F_INGRESS);
	return SK_PASS;
}

SEC("sk_skb/stream_verdict")
int look(struct __sk_buff *skb)
{
	return SK_PASS;
}

char _license[] SEC("license") = "GPL";
