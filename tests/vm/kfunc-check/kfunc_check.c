// SPDX-License-Identifier: GPL-2.0
/*
 * The smallest module with a kfunc that takes a kernel type: its BTF must refer
 * to the kernel's own struct bpf_sock_ops_kern, not describe it again.
 */
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/filter.h>
#include <linux/module.h>
#include <net/tcp.h>

__bpf_kfunc_start_defs();

__bpf_kfunc int kfunc_check(struct bpf_sock_ops_kern *skops)
{
	return tcp_sk(skops->sk)->rcv_nxt;
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(kfunc_check_ids)
BTF_ID_FLAGS(func, kfunc_check)
BTF_KFUNCS_END(kfunc_check_ids)

static const struct btf_kfunc_id_set kfunc_check_set = {
	.owner = THIS_MODULE,
	.set = &kfunc_check_ids,
};

static int __init kfunc_check_init(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_SOCK_OPS, &kfunc_check_set);
}
module_init(kfunc_check_init);

MODULE_DESCRIPTION("Never loaded: shows how a kernel's headers make a module's BTF");
MODULE_LICENSE("GPL");
