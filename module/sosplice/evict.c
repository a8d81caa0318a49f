// SPDX-License-Identifier: GPL-2.0
/*
 * Evicts tasks that have slept on a source since before it was one, in TCP's own recvmsg or in
 * ours for pairs. As soon as anything wakes them, they would take what arrives.
 */
#include <linux/fdtable.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/wait.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <net/sock.h>

#include "datapath/rx.h"
#include "pair/end.h"
#include "sosplice/evict.h"
#include "sosplice/splice.h"

/* Tells whether the first argument of the task's system call is the socket: 1, 0, or -EAGAIN if
 * another CPU has the task's lock. Since the task went to sleep, the descriptor may have become
 * another file's. Then sks_hook_restart() could not send the task here again either.
 */
static int calls_on(struct task_struct *task, const struct file *file)
{
	unsigned long args[6];
	int same;

	syscall_get_arguments(task, task_pt_regs(task), args);
	/* The lock keeps task->files. Only try it: a wake-up may have interrupted its holder, and
	 * wait for the queue's lock, which we have.
	 */
	if (!spin_trylock(&task->alloc_lock))
		return -EAGAIN;
	rcu_read_lock();
	same = file && task->files && files_lookup_fd_raw(task->files, args[0]) == file;
	rcu_read_unlock();
	spin_unlock(&task->alloc_lock);
	return same;
}

/* Tells whether the task, which sleeps on a TCP socket, is in a read and may be evicted: 1, 0 or
 * -EAGAIN. A task that waits for room sleeps in the same way, and in splice(2) even in the same
 * system call. recvmmsg(2) that has read messages would make the interruption the socket's error.
 */
static int is_reader(struct task_struct *task, const struct file *file)
{
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	switch (syscall_get_nr(task, task_pt_regs(task))) {
	case __NR_read:
	case __NR_readv:
	case __NR_preadv2:
	case __NR_recvfrom:
	case __NR_recvmsg:
		return 1;
	case __NR_splice:
		return calls_on(task, file);
	default:
		return 0;
	}
}

bool sks_evict_expel(struct sock *sk)
{
	const struct pair_end *paired = sks_end_get(sk);
	wait_queue_head_t *wq = sk_sleep(sk);
	wait_queue_entry_t *entry;
	unsigned long flags;
	bool found = false;
	int stay = 0;		/* readers of a pair that cannot be evicted */

	sock_owned_by_me(sk);
	if (!rcu_access_pointer(sk->sk_wq) || !sk->sk_socket || !wq_has_sleeper(wq))
		return paired && paired->rx_sleepers;
	spin_lock_irqsave(&wq->lock, flags);
	list_for_each_entry(entry, &wq->head, entry) {
		struct task_struct *task = entry->private;
		int reads;

		if (entry->func != woken_wake_function && !sks_rx_is_sleeper(entry))
			continue;
		reads = is_reader(task, sk->sk_socket->file);
		if (!reads) {
			stay += sks_rx_is_sleeper(entry);
			continue;
		}
		found = true;
		if (reads < 0)
			continue;
		/* As for task_work with TWA_SIGNAL: the task leaves its system call and enters it
		 * again.
		 */
		set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL);
		wake_up_process(task);
	}
	spin_unlock_irqrestore(&wq->lock, flags);
	/* Also count a pair's readers that spin or were just woken: they look once more. */
	return found || (paired && paired->rx_sleepers > stay);
}
