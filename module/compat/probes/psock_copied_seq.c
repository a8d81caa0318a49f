// SPDX-License-Identifier: GPL-2.0
/* Newer kernels note in a psock how far its parser has read. */
#include <linux/skmsg.h>

unsigned int probe(const struct sk_psock *psock);
unsigned int probe(const struct sk_psock *psock)
{
	return psock->copied_seq;
}
