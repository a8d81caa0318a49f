/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between kernels that concern sockmap and the pages in its queues. */
#ifndef SOCKSPLICE_COMPAT_SKMSG_H
#define SOCKSPLICE_COMPAT_SKMSG_H

#include <linux/mm.h>
#include <linux/net.h>
#include <linux/skmsg.h>
#include <net/tcp.h>

#include "config.h"

/* True if the kernel serves splice(2) on sockmap sockets itself. */
#ifdef HAVE_PROTO_SPLICE_READ
#define COMPAT_NATIVE_PSOCK_SPLICE	true
#else
#define COMPAT_NATIVE_PSOCK_SPLICE	false
#endif

/* True if @page came from the page allocator, so that a reference on it keeps its contents. Pages
 * of large kmalloc() calls are not slab pages. Where they have a type of their own, their
 * reference count is frozen at 0. On older kernels it is 1, and a reference keeps the page, but
 * the owner of the object may still write to it.
 */
static inline bool compat_page_shareable(struct page *page)
{
#ifdef HAVE_PAGE_LARGE_KMALLOC
	if (PageLargeKmalloc(page))
		return false;
#endif
	return sendpage_ok(page);
}

/* The sequence number that a parser has reached in TCP's bytes, if it is beyond @seq; else @seq. */
static inline u32 compat_psock_parsed(const struct sk_psock *psock, u32 seq, u32 end)
{
#ifdef HAVE_PSOCK_COPIED_SEQ
	if (after(psock->copied_seq, seq) && !after(psock->copied_seq, end))
		return psock->copied_seq;
#endif
	return seq;
}

/* Takes @n off the kernel's count of bytes in the ingress queue, which ingress_lock protects. */
static inline void compat_psock_msg_len_sub(struct sk_psock *psock, u32 n)
{
#ifdef HAVE_PSOCK_MSG_TOT_LEN
	sk_psock_msg_len_add(psock, -(int)n);
#endif
}

#endif /* SOCKSPLICE_COMPAT_SKMSG_H */
