// SPDX-License-Identifier: GPL-2.0
/* The sockmap programs of the tests and the benchmark. What they do with a
 * socket's bytes stands in `rules`, by the socket's local port.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "sockmap.h"

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} src SEC(".maps"), dst SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

SEC("sk_skb/stream_parser")
int parser(struct __sk_buff *skb)
{
	__u32 port = skb->local_port;
	struct rule *r = bpf_map_lookup_elem(&rules, &port);

	return r && r->record ? r->record : skb->len;
}

SEC("sk_skb/stream_verdict")
int verdict(struct __sk_buff *skb)
{
	__u32 port = skb->local_port;
	struct rule *r = bpf_map_lookup_elem(&rules, &port);

	if (!r)
		return SK_PASS;
	/* The end of a stream is its own socket's affair, mostly. */
	if (!skb->len && !r->fin)
		return SK_PASS;
	if (r->pull)
		bpf_skb_pull_data(skb, skb->len);
	switch (r->action) {
	case RULE_DROP:
		return SK_DROP;
	case RULE_TO_SRC:
		return bpf_sk_redirect_map(skb, &src, r->key, r->flags);
	case RULE_TO_DST:
		return bpf_sk_redirect_map(skb, &dst, r->key, r->flags);
	case RULE_TO_HASH:
		return bpf_sk_redirect_hash(skb, &hash, &r->key, r->flags);
	default:
		return SK_PASS;
	}
}

SEC("sk_msg")
int message(struct sk_msg_md *msg)
{
	__u32 port = msg->local_port;
	struct rule *r = bpf_map_lookup_elem(&rules, &port);

	if (!r)
		return SK_PASS;
	if (r->record)
		bpf_msg_apply_bytes(msg, r->record);
	/* What was in several pieces is in one, and then in none. */
	if (r->pull) {
		bpf_msg_pull_data(msg, 0, msg->size, 0);
		bpf_msg_pop_data(msg, 0, msg->size, 0);
	}
	switch (r->action) {
	case RULE_DROP:
		return SK_DROP;
	case RULE_TO_SRC:
		return bpf_msg_redirect_map(msg, &src, r->key, r->flags);
	case RULE_TO_DST:
		return bpf_msg_redirect_map(msg, &dst, r->key, r->flags);
	case RULE_TO_HASH:
		return bpf_msg_redirect_hash(msg, &hash, &r->key, r->flags);
	default:
		return SK_PASS;
	}
}

char _license[] SEC("license") = "GPL";
