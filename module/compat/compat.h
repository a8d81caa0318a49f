/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differences between kernels. No other file knows of them. The probes in compat/probes make
 * config.h at build time. Each HAVE_ macro says that its probe compiled against this kernel's
 * headers.
 */
#ifndef SOCKSPLICE_COMPAT_H
#define SOCKSPLICE_COMPAT_H

#include <linux/btf.h>
#include <linux/hrtimer.h>
#include <linux/list_lru.h>
#include <linux/version.h>

/* Without this check an older kernel would give only compiler errors. No probe is needed for it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "socksplice wants Linux 6.12 or later"
#endif

/* Policies run with preemption off, and call functions that take locks that sleep on PREEMPT_RT. */
#ifdef CONFIG_PREEMPT_RT
#error "socksplice does not work on a kernel with PREEMPT_RT: boot one without"
#endif

#include <linux/sched.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "compat/getsockopt.h"

/* struct proto.recvmsg lost its addr_len argument in 7.1. */
#ifdef HAVE_RECVMSG_ADDR_LEN
#define COMPAT_ADDR_LEN_PARAM	, int *addr_len
#define COMPAT_ADDR_LEN_ARG	, addr_len
#define COMPAT_ADDR_LEN_NULL	, NULL
#else
#define COMPAT_ADDR_LEN_PARAM
#define COMPAT_ADDR_LEN_ARG
#define COMPAT_ADDR_LEN_NULL
#endif

/* The address that struct proto.connect takes; another type since 6.19. */
#ifdef HAVE_SOCKADDR_UNSIZED
#define COMPAT_SOCKADDR	struct sockaddr_unsized
#else
#define COMPAT_SOCKADDR	struct sockaddr
#endif

/* struct tcp_ulp_ops.get_info and get_info_size gained net_admin in 6.19. */
#ifdef HAVE_ULP_INFO_NET_ADMIN
#define COMPAT_NET_ADMIN_PARAM	, bool net_admin
#else
#define COMPAT_NET_ADMIN_PARAM
#endif

/* Kernels without this flag trust the arguments of kfuncs by default. */
#ifdef KF_TRUSTED_ARGS
#define COMPAT_KF_TRUSTED_ARGS	KF_TRUSTED_ARGS
#else
#define COMPAT_KF_TRUSTED_ARGS	0
#endif

/* The macros of BTF id sets leave their section in a module with an alignment of one byte. The
 * compiler takes a set for aligned, and arm64's loads then drop the low bits of its address: the
 * module would search beyond the set. Belongs before the first set of a file.
 */
#define COMPAT_ALIGN_BTF_IDS	asm(".pushsection .BTF_ids, \"a\"; .balign 8; .popsection")

/* accept() on an MPTCP listener knows the children that speak plain TCP by their sk_prot, and
 * warns about ours. A fix came in 6.18, and in 6.12.60 of the long-term kernels. It shows in no
 * header, so the version has to tell.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0) || \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 60) && \
	 LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0))
#define COMPAT_MPTCP_KNOWS_FALLBACK	1
#else
#define COMPAT_MPTCP_KNOWS_FALLBACK	0
#endif

/* True if the reader of @sk wants time stamps. Any context. A flag says so where the kernel has it:
 * sk_tsflags is on the cache line of the reader's lock. A sender that reads that line for every
 * message makes each lock and unlock of a reader on another CPU wait for it.
 */
static inline bool compat_wants_stamps(const struct sock *sk)
{
#ifdef HAVE_TIMESTAMPING_ANY
	return READ_ONCE(sk->sk_flags) & (BIT(SOCK_RCVTSTAMP) | BIT(SOCK_TIMESTAMPING_ANY));
#else
	return sock_flag(sk, SOCK_RCVTSTAMP) || READ_ONCE(sk->sk_tsflags);
#endif
}

/* The workqueue that is bound to no CPU. */
#ifdef HAVE_SYSTEM_DFL_WQ
#define COMPAT_UNBOUND_WQ	system_dfl_wq
#else
#define COMPAT_UNBOUND_WQ	system_unbound_wq
#endif

/* Since 6.17 a workqueue that is bound to CPUs needs a flag for that. */
#ifdef HAVE_WQ_PERCPU
#define COMPAT_WQ_PERCPU	WQ_PERCPU
#else
#define COMPAT_WQ_PERCPU	0
#endif

/* Since 6.13 one call replaces hrtimer_init() and the assignment of the function. */
#ifdef HAVE_HRTIMER_SETUP
#define compat_hrtimer_setup	hrtimer_setup
#else
#define compat_hrtimer_setup(timer, fn, clock, mode) \
	do { \
		hrtimer_init(timer, clock, mode); \
		(timer)->function = (fn); \
	} while (0)
#endif

/* The callback of list_lru_walk_one() lost its lock argument in 6.13. */
#ifdef HAVE_LIST_LRU_WALK_LOCK
#define COMPAT_LRU_WALK_PARAMS	struct list_lru_one *list, spinlock_t *lock
#else
#define COMPAT_LRU_WALK_PARAMS	struct list_lru_one *list
#endif

/* Until 6.13 the lock class is an argument of __list_lru_init(). */
#ifdef HAVE_LIST_LRU_INIT_MEMCG_KEY
#define compat_list_lru_init_memcg_key	list_lru_init_memcg_key
#else
#define compat_list_lru_init_memcg_key(lru, shrinker, key) __list_lru_init(lru, true, key, shrinker)
#endif

#endif /* SOCKSPLICE_COMPAT_H */
