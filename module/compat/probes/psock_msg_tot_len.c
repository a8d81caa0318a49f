// SPDX-License-Identifier: GPL-2.0
/* Some kernels count the bytes in a psock's ingress queue in msg_tot_len. */
#include <linux/skmsg.h>

u32 probe(struct sk_psock *psock);
u32 probe(struct sk_psock *psock)
{
	return psock->msg_tot_len;
}
