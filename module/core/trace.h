/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints, under events/socksplice in tracefs; docs/tracepoints.md. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM socksplice

#if !defined(SOCKSPLICE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SOCKSPLICE_TRACE_H

#include <linux/sock_diag.h>
#include <linux/tracepoint.h>
#include <net/sock.h>

#include "core/ident.h"
#include "uapi/socksplice.h"

/* One splice(2) call on a sockmap socket. @ref and @copy are the bytes of the psock's ingress
 * queue that went into the pipe as pages or as copies. The rest of @ret came from TCP's own queue.
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

/* A splice (SO_SPLICE) ends: its source and sink, the bytes that it moved, and the error that it
 * left in SO_ERROR of the source.
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

/* The verdict on one connection (verdict.h). @id and @netns are those of the end that caused it.
 * @pair is 0 if there is no pair. @ring and @tcp are the bytes that both ends have sent.
 */
TRACE_EVENT(verdict,
	TP_PROTO(u8 event, const char *reason, const struct ident *id, u32 netns, u32 pair,
		 u64 ring, u64 tcp),
	TP_ARGS(event, reason, id, netns, pair, ring, tcp),

	TP_STRUCT__entry(
		__field(u8, event)
		__array(char, reason, 16)
		__array(u8, saddr, 16)
		__array(u8, daddr, 16)
		__field(u16, sport)
		__field(u16, dport)
		__field(u32, netns)
		__field(u32, pair)
		__field(u64, ring)
		__field(u64, tcp)
	),

	TP_fast_assign(
		__entry->event = event;
		strscpy(__entry->reason, reason ?: "", sizeof(__entry->reason));
		memcpy(__entry->saddr, &id->saddr, 16);
		memcpy(__entry->daddr, &id->daddr, 16);
		__entry->sport = id->sport;
		__entry->dport = id->dport;
		__entry->netns = netns;
		__entry->pair = pair;
		__entry->ring = ring;
		__entry->tcp = tcp;
	),

	TP_printk("%s reason=%s saddr=%pI6c sport=%u daddr=%pI6c dport=%u netns=%u pair=%u ring=%llu tcp=%llu",
		  __print_symbolic(__entry->event,
				   { SOCKSPLICE_EVENT_PAIRED, "paired" },
				   { SOCKSPLICE_EVENT_DECLINED, "declined" },
				   { SOCKSPLICE_EVENT_EXPIRED, "expired" },
				   { SOCKSPLICE_EVENT_DROPPED, "dropped" },
				   { SOCKSPLICE_EVENT_ENDED, "ended" },	\
				   { SOCKSPLICE_EVENT_LIMITED, "limited" }),
		  __entry->reason, __entry->saddr, __entry->sport, __entry->daddr,
		  __entry->dport, __entry->netns, __entry->pair, __entry->ring,
		  __entry->tcp)
);

#endif /* SOCKSPLICE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH core
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
