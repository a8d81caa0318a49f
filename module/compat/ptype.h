/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between kernels that concern who sees packets. */
#ifndef SOCKSPLICE_COMPAT_PTYPE_H
#define SOCKSPLICE_COMPAT_PTYPE_H

#include <net/hotdata.h>
#include <net/net_namespace.h>

#include "config.h"

/* Who sees every packet of any device. RCU. Since 6.14 a list for each namespace, before
 * one for all of them.
 */
static inline const struct list_head *compat_ptype_all(const struct net *net)
{
#ifdef HAVE_NET_PTYPE_ALL
	return &net->ptype_all;
#else
	return &net_hotdata.ptype_all;
#endif
}

#endif /* SOCKSPLICE_COMPAT_PTYPE_H */
