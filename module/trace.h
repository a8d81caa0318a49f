/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints, under events/socksplice in tracefs. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM socksplice

#if !defined(SOCKSPLICE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SOCKSPLICE_TRACE_H

#include <linux/sock_diag.h>
#include <linux/tracepoint.h>
#include <net/sock.h>

/* One splice(2) call on a sockmap socket. @ref and @copy are the bytes of the
 * psock's ingress queue that went into the pipe as pages or as copies; what
 * the call took from TCP's own queue is the rest of @ret.
 */
TRACE_EVENT(psock_splice,
	TP_PROTO(struct sock *sk, size_t ref, size_t copy, ssize_t ret),
	TP_ARGS(sk, ref, copy, ret),

	TP_STRUCT__entry(
		__array(u32, cookie, 2)
		__field(size_t, ref)
		__field(size_t, copy)
		__field(ssize_t, ret)
	),

	TP_fast_assign(
		sock_diag_save_cookie(sk, __entry->cookie);
		__entry->ref = ref;
		__entry->copy = copy;
		__entry->ret = ret;
	),

	TP_printk("cookie=%llu ref=%zu copy=%zu ret=%zd",
		  (u64)__entry->cookie[1] << 32 | __entry->cookie[0],
		  __entry->ref, __entry->copy, __entry->ret)
);

/* The end of a splice (SO_SPLICE): its source and sink, the bytes it moved, and what
 * it left in SO_ERROR of the source.
 */
TRACE_EVENT(so_splice_end,
	TP_PROTO(struct sock *src, struct sock *dst, u64 moved, int err),
	TP_ARGS(src, dst, moved, err),

	TP_STRUCT__entry(
		__array(u32, src, 2)
		__array(u32, dst, 2)
		__field(u64, moved)
		__field(int, err)
	),

	TP_fast_assign(
		sock_diag_save_cookie(src, __entry->src);
		sock_diag_save_cookie(dst, __entry->dst);
		__entry->moved = moved;
		__entry->err = err;
	),

	TP_printk("src=%llu dst=%llu moved=%llu err=%d",
		  (u64)__entry->src[1] << 32 | __entry->src[0],
		  (u64)__entry->dst[1] << 32 | __entry->dst[0],
		  __entry->moved, __entry->err)
);

#endif /* SOCKSPLICE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
