/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between kernels that concern sockmap and the pages in its queues. */
#ifndef SOCKSPLICE_COMPAT_SKMSG_H
#define SOCKSPLICE_COMPAT_SKMSG_H

#include <linux/mm.h>
#include <linux/net.h>
#include <linux/skmsg.h>
#include <net/tcp.h>

#include "config.h"

/* Whether the kernel serves splice(2) on sockmap sockets itself. */
#ifdef HAVE_PROTO_SPLICE_READ
#define COMPAT_NATIVE_PSOCK_SPLICE	true
#else
#define COMPAT_NATIVE_PSOCK_SPLICE	false
#endif

/* Whether @page is one of the page allocator's, whose reference count keeps
 * its contents. Large kmalloc() pages are not slab: their count is frozen at 0
 * where they have a type of their own, and on older kernels it is 1, and holds
 * them, but whoever owns the object may still write to it.
 */
static inline bool compat_page_shareable(struct page *page)
{
#ifdef HAVE_PAGE_LARGE_KMALLOC
	if (PageLargeKmalloc(page))
		return false;
#endif
	return sendpage_ok(page);
}

/* How far a parser has come in TCP's bytes, if that is beyond @seq; else @seq. */
static inline u32 compat_psock_parsed(const struct sk_psock *psock, u32 seq, u32 end)
{
#ifdef HAVE_PSOCK_COPIED_SEQ
	if (after(psock->copied_seq, seq) && !after(psock->copied_seq, end))
		return psock->copied_seq;
#endif
	return seq;
}

/* The ingress queue's length in bytes, counted under ingress_lock. */
static inline void compat_psock_msg_len_sub(struct sk_psock *psock, u32 n)
{
#ifdef HAVE_PSOCK_MSG_TOT_LEN
	sk_psock_msg_len_add(psock, -(int)n);
#endif
}

#endif /* SOCKSPLICE_COMPAT_SKMSG_H */
