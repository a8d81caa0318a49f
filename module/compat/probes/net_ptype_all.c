// SPDX-License-Identifier: GPL-2.0
/* Newer kernels have a list of those who see every packet for each namespace. */
#include <net/net_namespace.h>

struct list_head *probe(struct net *net);
struct list_head *probe(struct net *net)
{
	return &net->ptype_all;
}
