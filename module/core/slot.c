// SPDX-License-Identifier: GPL-2.0
#include <linux/kmemleak.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/tcp.h>

#include "core/slot.h"

const struct tcp_ulp_ops *sks_slot_ulp[SLOT_KINDS] __ro_after_init;

int __init sks_slot_register(enum slot_kind kind, const struct tcp_ulp_ops *ops)
{
	struct tcp_ulp_ops *copy = kmemdup(ops, sizeof(*ops), GFP_KERNEL);

	if (!copy)
		return -ENOMEM;
	kmemleak_not_leak(copy);
	sks_slot_ulp[kind] = copy;
	return 0;
}

int sks_slot_getsockopt(const struct sock *sk, char __user *optval, int __user *optlen)
{
	const struct tcp_ulp_ops *ops;
	char name[TCP_ULP_NAME_MAX] = "";
	int len;

	if (get_user(len, optlen))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	len = min(len, TCP_ULP_NAME_MAX);
	/* The module of another ULP stays for an RCU grace period after its last socket. */
	rcu_read_lock();
	ops = READ_ONCE(inet_csk(sk)->icsk_ulp_ops);
	if (!ops || slot_is_ours(ops))
		len = 0;
	else
		memcpy(name, ops->name, sizeof(name));
	rcu_read_unlock();
	if (put_user(len, optlen) || copy_to_user(optval, name, len))
		return -EFAULT;
	return 0;
}
