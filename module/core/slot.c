// SPDX-License-Identifier: GPL-2.0
#include <linux/kmemleak.h>
#include <linux/slab.h>
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
