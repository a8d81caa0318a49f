// SPDX-License-Identifier: GPL-2.0
/*
 * Whether the current system call is the only one on a socket.
 *
 * A task inside a function of the socket layer keeps the socket's file from being freed, in one of
 * three ways:
 *   - by a reference on the file, which the task took for its call (fget). Or an io_uring request
 *     or a consumer in the kernel took it, for longer;
 *   - by a descriptor alone, if only one task uses its files_struct: such a call borrows the
 *     descriptor's reference (fdget);
 *   - by the reference of an io_uring's table of registered files.
 *
 * So if the current call accounts for every reference on the file, no other task is inside. There
 * are two such cases:
 *   - The current task alone uses its files_struct, the file is in there, and its count is one.
 *     Every other holder would need a reference. Another borrower would need another descriptor,
 *     or this files_struct.
 *   - Other tasks share the files_struct, the file is in there, its count is two, and the current
 *     call took one. No call borrows from a shared files_struct. A call that borrowed before it
 *     was shared has returned, because only its own task could share it.
 *
 * A reference that comes and goes meanwhile (poll, send, fork, dup, SCM_RIGHTS, pidfd_getfd) makes
 * the answer no, never a wrong yes.
 *
 * Order: the caller has swapped sk_prot, or has seen the swap under the socket's lock. Then comes
 * a full barrier, then the read of the count. An old caller takes its reference, then loads
 * sk_prot. Taking a reference is a full barrier (file_ref_get(), or atomic_long_inc_not_zero()
 * before 6.13). So either the count here includes that reference, or that task loads our
 * functions.
 *
 * The descriptor is looked up after the count was read. Another thread that closes it clears the
 * table's entry first and drops the reference second.
 */
#include <linux/atomic.h>
#include <linux/compat.h>
#include <linux/cpu.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/net.h>
#include <linux/preempt.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "core/caller.h"

static bool is_shared(const struct files_struct *files)
{
	return atomic_read(&files->count) > 1;
}

/* True if the file of @sk has no references but these: that of the descriptor, which is the
 * current call's first argument, and, if @taken, one that the call took.
 */
static bool has_no_other_reference(const struct sock *sk, bool taken)
{
	const struct socket *sock = sk->sk_socket;
	struct file *file = sock ? sock->file : NULL;
	unsigned long args[6];
	bool same;

	if (!file)
		return false;
	smp_mb();	/* sk_prot before the count; pairs with the reference of an old caller */
	if (file_count(file) != 1 + taken)
		return false;
	smp_rmb();	/* the count before the descriptor; pairs with close(2) */
	syscall_get_arguments(current, current_pt_regs(), args);
	rcu_read_lock();
	same = files_lookup_fd_raw(current->files, args[0]) == file;
	rcu_read_unlock();
	return same;
}

/* Requests of an io_uring run in their task's context, on its way back from any system call. The
 * number and the arguments of that call are still in the registers then.
 */
static bool may_run_requests(void)
{
#ifdef CONFIG_IO_URING
	return current->io_uring;
#else
	return false;
#endif
}

/* True if the current task runs a system call of its own, not work for another task. */
static bool is_users_call(void)
{
	return in_task() && !(current->flags & (PF_KTHREAD | PF_IO_WORKER)) && current->files;
}

bool sks_caller_is_alone(const struct sock *sk)
{
	sock_owned_by_me(sk);
	if (!is_users_call())
		return false;
	/* The count of one leaves no reference for a request or a consumer in the kernel. So
	 * the call has borrowed that of the descriptor, whatever call it is.
	 */
	if (!is_shared(current->files))
		return has_no_other_reference(sk, false);
	if (may_run_requests() || in_compat_syscall())
		return false;
	/* These calls take a reference on the file of their first argument, and no other. */
	switch (syscall_get_nr(current, current_pt_regs())) {
	case __NR_read:
	case __NR_readv:
	case __NR_preadv2:
	case __NR_recvfrom:
	case __NR_recvmsg:
	case __NR_recvmmsg:
	case __NR_splice:
	case __NR_setsockopt:
		return has_no_other_reference(sk, true);
	default:
		return false;
	}
}

bool sks_caller_connects_alone(const struct sock *sk)
{
	/* In any other call on this socket the current task may be inside TCP's recvmsg itself,
	 * because the handshake may end in any release_sock().
	 */
	if (!is_users_call() || may_run_requests() || in_compat_syscall() ||
	    syscall_get_nr(current, current_pt_regs()) != __NR_connect)
		return false;
	return has_no_other_reference(sk, is_shared(current->files));
}

pid_t sks_caller_of_ulp(void)
{
	struct task_struct *process, *task;
	pid_t found = 0;

	/* A task that exits gives its stack back an RCU grace period later, or to a cache of its
	 * CPU, which frees it when that CPU goes.
	 */
	cpus_read_lock();
	rcu_read_lock();
	for_each_process_thread(process, task) {
		/* No request of an io_uring asks for an option of TCP. */
		if (task != current &&
		    !(task->flags & (PF_KTHREAD | PF_USER_WORKER | PF_IO_WORKER)) &&
		    compat_in_getsockopt_ulp(task))
			found = task_pid_nr(task);
	}
	rcu_read_unlock();
	cpus_read_unlock();
	return found;
}
