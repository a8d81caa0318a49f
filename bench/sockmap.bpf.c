// SPDX-License-Identifier: GPL-2.0
/*
 * What sockmap redirection does for a local connection, for comparison: each
 * message goes to the receive queue of the socket that is bound to the port it
 * was sent to. Good for a benchmark only: ports do not name a socket.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

SEC("sk_msg")
int redirect(struct sk_msg_md *msg)
{
	__u32 port = bpf_ntohl(msg->remote_port);

	return bpf_msg_redirect_hash(msg, &sockets, &port, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
