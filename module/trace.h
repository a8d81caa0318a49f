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

#endif /* SOCKSPLICE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
