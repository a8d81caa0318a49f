/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of system calls of 32-bit programs, which differ between architectures. The kernel
 * does not tell of a sleeping task which table its number is from.
 */
#ifndef SOCKSPLICE_COMPAT_CALLERS_H
#define SOCKSPLICE_COMPAT_CALLERS_H

#include <linux/build_bug.h>
#include <asm/unistd.h>

/* Elsewhere task_pt_regs() may read a stack that is gone, and socketcall(2) is a native call. */
#if !defined(CONFIG_X86_64) && !defined(CONFIG_ARM64) && !defined(CONFIG_UML)
#error "socksplice wants an x86-64 or arm64 kernel"
#endif

/* The numbers of getsockopt(2) in the tables of other callers, or -1. The native tables have no
 * call that sleeps under these numbers. x32 sets a bit. ia32 programs may also use socketcall(2).
 */
#if defined(CONFIG_X86_64)
#define COMPAT_NR_32(call)		__NR_ia32_##call
#define COMPAT_NR_BITS			~__X32_SYSCALL_BIT
#define COMPAT_NR_GETSOCKOPT_X32	__NR_x32_getsockopt
#define COMPAT_NR_SOCKETCALL		__NR_ia32_socketcall
#else
#define COMPAT_NR_BITS			~0
#define COMPAT_NR_GETSOCKOPT_X32	-1
#define COMPAT_NR_SOCKETCALL		-1
#endif
#if defined(CONFIG_ARM64)
#include <asm/unistd_compat_32.h>
#define COMPAT_NR_32(call)		__NR_compat32_##call
#endif

#ifdef COMPAT_NR_32
#define COMPAT_NR_GETSOCKOPT_32		COMPAT_NR_32(getsockopt)

/* sks_evict_expel() knows the readers among the tasks that sleep on a socket by native numbers. A
 * 32-bit task there must not have one of these: it could not enter its call again.
 */
#define COMPAT_IS_NO_READ(call) \
	static_assert(COMPAT_NR_32(call) != __NR_read && COMPAT_NR_32(call) != __NR_readv && \
		      COMPAT_NR_32(call) != __NR_preadv2 && COMPAT_NR_32(call) != __NR_recvfrom && \
		      COMPAT_NR_32(call) != __NR_recvmsg && COMPAT_NR_32(call) != __NR_splice)
COMPAT_IS_NO_READ(read);
COMPAT_IS_NO_READ(readv);
COMPAT_IS_NO_READ(preadv2);
COMPAT_IS_NO_READ(recvfrom);
COMPAT_IS_NO_READ(recvmsg);
COMPAT_IS_NO_READ(recvmmsg);
COMPAT_IS_NO_READ(splice);
COMPAT_IS_NO_READ(write);
COMPAT_IS_NO_READ(writev);
COMPAT_IS_NO_READ(pwritev2);
COMPAT_IS_NO_READ(sendto);
COMPAT_IS_NO_READ(sendmsg);
COMPAT_IS_NO_READ(sendmmsg);
COMPAT_IS_NO_READ(sendfile);
COMPAT_IS_NO_READ(sendfile64);
COMPAT_IS_NO_READ(connect);
COMPAT_IS_NO_READ(accept4);
#if defined(CONFIG_X86_64)
COMPAT_IS_NO_READ(socketcall);
#else
COMPAT_IS_NO_READ(recv);
COMPAT_IS_NO_READ(send);
COMPAT_IS_NO_READ(accept);
#endif
#else
#define COMPAT_NR_GETSOCKOPT_32		-1
#endif

#endif /* SOCKSPLICE_COMPAT_CALLERS_H */
