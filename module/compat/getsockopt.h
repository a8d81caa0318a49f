/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between architectures about a getsockopt(TCP_ULP).
 */
#ifndef SOCKSPLICE_COMPAT_GETSOCKOPT_H
#define SOCKSPLICE_COMPAT_GETSOCKOPT_H

#include <linux/net.h>
#include <linux/ptrace.h>
#include <linux/socket.h>
#include <linux/tcp.h>
#include <net/tcp.h>
#include <asm/syscall.h>

#include "compat/callers.h"

/* copy_to_user() from a kernel address that is not mapped: true if it fails like one to such a user
 * address, false if the kernel may oops (arm64). User Mode Linux is for tests, and no test does
 * this.
 */
#if defined(CONFIG_X86) || defined(CONFIG_UML)
#define COMPAT_COPY_FROM_BAD_SOURCE_FAILS	1
#else
#define COMPAT_COPY_FROM_BAD_SOURCE_FAILS	0
#endif

/* TCP copies the name that lies at this offset from NULL. Nothing is mapped in the first page. */
static_assert(offsetofend(struct tcp_ulp_ops, name) <= SZ_4K);

/* True if @task, which is not the current one and belongs to a user, is in a getsockopt(TCP_ULP),
 * or perhaps is. The answer is exact for a task that stays in its system call meanwhile. Under RCU
 * and cpus_read_lock(), which keep the stack of @task.
 */
static inline bool compat_in_getsockopt_ulp(struct task_struct *task)
{
	struct pt_regs *regs = task_pt_regs(task);
	unsigned long args[6];
	int nr;

	/* A task that has exited has no stack: then this is an offset in none. */
	OPTIMIZER_HIDE_VAR(regs);
	if ((unsigned long)regs < THREAD_SIZE)
		return false;
	nr = syscall_get_nr(task, regs);
	if (nr < 0)	/* no system call */
		return false;
	syscall_get_arguments(task, regs, args);
	nr &= COMPAT_NR_BITS;
	if (nr == COMPAT_NR_SOCKETCALL)
		return (int)args[0] == SYS_GETSOCKOPT;	/* the rest is in the user's memory */
	if (nr != __NR_getsockopt && nr != COMPAT_NR_GETSOCKOPT_32 &&
	    nr != COMPAT_NR_GETSOCKOPT_X32)
		return false;
	return (int)args[1] == SOL_TCP && (int)args[2] == TCP_ULP;
}

#endif /* SOCKSPLICE_COMPAT_GETSOCKOPT_H */
