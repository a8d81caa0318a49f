// SPDX-License-Identifier: GPL-2.0
/* The sockmap proxy's verdict: what a socket receives is sent by the one that is in the
 * map under its ports.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "redirect.h"

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 1024);
	__type(key, struct end);
	__type(value, __u64);
} sinks SEC(".maps");

__u64 redirected;

SEC("sk_skb/stream_verdict")
int verdict(struct __sk_buff *skb)
{
	struct end key = { skb->local_port, bpf_ntohl(skb->remote_port) };

	__sync_fetch_and_add(&redirected, skb->len);
	return bpf_sk_redirect_hash(skb, &sinks, &key, 0);
}

char LICENSE[] SEC("license") = "GPL";
