/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between kernels that concern the lists of packet types. */
#ifndef SOCKSPLICE_COMPAT_PTYPE_H
#define SOCKSPLICE_COMPAT_PTYPE_H

#include <net/hotdata.h>
#include <net/net_namespace.h>

#include "config.h"

/* The packet types that receive every packet of any device. Under RCU. Since 6.14 each namespace
 * has such a list. Before that there was one for all namespaces.
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
