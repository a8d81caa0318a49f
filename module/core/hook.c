// SPDX-License-Identifier: GPL-2.0
/*
 * How it works
 *
 * An ftrace callback runs at the entry of tcp_splice_read(). If a client of ours serves the socket
 * (hook_target), the callback sets the instruction pointer to a function of ours. Our own calls of
 * the kernel's function arrive there too. The callback knows them by their return address, which
 * lies in this module. tcp_set_rcvlowat() is hooked in the same way, for paired sockets, and
 * tcp_getsockopt() for TCP_ULP.
 *
 * Calls of getsockopt(TCP_ULP) that began before the module was loaded
 *   - Before sks_loaded is set, calls are left to TCP, because a module that fails to load is
 *     freed, whatever task is inside.
 *   - Where such a call may be fatal, look_for_ulp() comes next. It begins with an RCU-tasks grace
 *     period. After it, each call that was not redirected has left TCP's function, or sleeps in
 *     it, or did so since. TCP sleeps there only in a page fault, in the system call of the task
 *     itself. So sks_caller_of_ulp() finds it.
 *
 * Unloading
 *   - A task that was redirected for a paired socket counts like one in the socket's own
 *     functions: see inflight.h. A socket in a sockmap holds nothing of ours, and
 *     getsockopt(TCP_ULP) serves any socket. So for these calls the callback takes a module
 *     reference, or leaves the call to the kernel if there is none.
 *   - No task is inside when the exit function runs. After unregister_ftrace_function() no task is
 *     redirected any more. A task that is about to return from a function of ours has returned
 *     after synchronize_rcu_tasks(). A softirq (a BPF program that sets SO_RCVLOWAT) has returned
 *     after synchronize_rcu(). sks_inflight_drain() calls both.
 */
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "core/caller.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "core/slot.h"

/* Written by init, before the hooks are installed; constant afterwards. */
static const struct hook_client *clients[2];

void sks_hook_register(const struct hook_client *client)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(clients); i++) {
		if (!clients[i]) {
			clients[i] = client;
			return;
		}
	}
	WARN_ON_ONCE(1);
}

/* Set by init and exit. No other code of the module runs at the same time. */
static int splice_status = -EOPNOTSUPP, lowat_status = -EOPNOTSUPP;

/* The same for getsockopt(TCP_ULP). -EAGAIN while calls of TCP's own may be left; where those are
 * harmless, for good. Else look_for_ulp() sets it to 0 once, without a lock. A task that attaches a
 * socket reads it without a lock, too.
 */
static int ulp_status = -EOPNOTSUPP;

int sks_hook_status(void)
{
	if (splice_status || lowat_status)
		return splice_status ?: lowat_status;
	return sks_hook_may_attach() ? 0 : READ_ONCE(ulp_status);
}

bool sks_hook_may_attach(void)
{
	return COMPAT_COPY_FROM_BAD_SOURCE_FAILS || !READ_ONCE(ulp_status);
}

int sks_hook_splice_status(void)
{
	return splice_status;
}

#if defined(SOCKSPLICE_HOOK_BY_OPS) && !defined(CONFIG_UML)
#error "only User Mode Linux lets a module write to the kernel's constants"
#endif

typedef ssize_t splice_read_fn(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			       size_t len, unsigned int flags);

typedef int set_rcvlowat_fn(struct sock *sk, int val);

#ifdef SOCKSPLICE_HOOK_BY_OPS
/* Written once, by init. */
static splice_read_fn *kernels_splice_read;
static set_rcvlowat_fn *kernels_set_rcvlowat;
#endif

/* Not every kernel exports these functions. IPv6 sockets have the same ones. */
static splice_read_fn *tcp_splice_read_fn(void)
{
#ifdef SOCKSPLICE_HOOK_BY_OPS
	return kernels_splice_read;
#else
	return inet_stream_ops.splice_read;
#endif
}

ssize_t sks_hook_orig(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags)
{
	ssize_t ret = tcp_splice_read_fn()(sock, ppos, pipe, len, flags);

	/* No tail call: the return address has to be in this module. */
	barrier();
	return ret;
}

/* True if the current system call may be entered again as if for the first time, and would reach
 * the same socket. Another thread may have closed the descriptor meanwhile. It is the first
 * argument of all these calls.
 */
static bool may_restart(const struct sock *sk)
{
	struct pt_regs *regs = current_pt_regs();
	unsigned long args[6];
	struct file *file;
	bool same;

	if ((current->flags & (PF_KTHREAD | PF_IO_WORKER)) || in_compat_syscall())
		return false;
	switch (syscall_get_nr(current, regs)) {
	case __NR_read:
	case __NR_readv:
	case __NR_recvfrom:
	case __NR_recvmsg:
	case __NR_splice:
		break;
	default:
		return false;
	}
	syscall_get_arguments(current, regs, args);
	file = fget((unsigned int)args[0]);
	if (!file)
		return false;
	/* Only a blocking call comes here. The restarted call goes by the file's flags of then. */
	same = file == READ_ONCE(sk->sk_socket)->file && !(file->f_flags & O_NONBLOCK);
	fput(file);
	return same;
}

int sks_hook_restart(const struct sock *sk)
{
	/* With a signal pending TCP's function does not sleep. It returns what came before. */
	if (signal_pending(current) || !may_restart(sk))
		return 0;
	/* As for task_work with TWA_SIGNAL: on its way back to user space the task finds no signal
	 * to deliver and enters the system call again. If it does find a signal, the call ends as
	 * it would have if it had slept: see sock_intr_errno().
	 */
	set_thread_flag(TIF_NOTIFY_SIGNAL);
	return READ_ONCE(sk->sk_rcvtimeo) == MAX_SCHEDULE_TIMEOUT ? -ERESTARTSYS : -ERESTARTNOHAND;
}

ssize_t sks_hook_pass(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags)
{
	ssize_t ret = 0;

	if (!(sock->file->f_flags & O_NONBLOCK))	/* may sleep for data */
		ret = sks_hook_restart(sock->sk);
	return ret ?: sks_hook_orig(sock, ppos, pipe, len, flags);
}

#if defined(CONFIG_DYNAMIC_FTRACE) && defined(CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS)
#define HOOK_BY_FTRACE
#endif

#if defined(HOOK_BY_FTRACE) || defined(SOCKSPLICE_HOOK_BY_OPS)

/* The client that serves splice(2) from @sk, or NULL. Under RCU: no lock, no sleep. */
static const struct hook_client *splice_client(struct sock *sk)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(clients) && clients[i]; i++) {
		if (clients[i]->wants_splice(sk))
			return clients[i];
	}
	return NULL;
}

/* Calls the client that serves the socket. Asks for it again, because the callback's answer may be
 * stale by now.
 */
static ssize_t hook_dispatch(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			     size_t len, unsigned int flags)
{
	const struct hook_client *client;

	rcu_read_lock();
	client = splice_client(sock->sk);
	rcu_read_unlock();
	return client ? client->splice_read(sock, ppos, pipe, len, flags) :
			sks_hook_pass(sock, ppos, pipe, len, flags);
}

/* Serves a call on an attached socket. */
static ssize_t hook_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
				size_t len, unsigned int flags)
{
	ssize_t ret;

	sks_enter();
	ret = hook_dispatch(sock, ppos, pipe, len, flags);
	sks_leave();
	return ret;
}

/* Serves a call for which the ftrace callback has taken a module reference. */
static ssize_t hook_splice_read_put(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
				    size_t len, unsigned int flags)
{
	ssize_t ret = hook_dispatch(sock, ppos, pipe, len, flags);

	module_put(THIS_MODULE);
	return ret;
}

/* The function above that serves a call on this socket, or NULL. Before sks_loaded is set, the call
 * of a socket that holds nothing of ours is left to TCP: a module that fails to load is freed,
 * whatever task is inside. Runs in the ftrace callback, under rcu_read_lock(): no lock, no sleep.
 */
static splice_read_fn *hook_target(struct sock *sk)
{
	const struct hook_client *client = splice_client(sk);

	if (!client)
		return NULL;
	if (client->attached)
		return hook_splice_read;
	if (READ_ONCE(sks_loaded) && try_module_get(THIS_MODULE))
		return hook_splice_read_put;
	return NULL;
}

/* The client that wants to be called for SO_RCVLOWAT on @sk, or NULL. Under RCU. */
static const struct hook_client *rcvlowat_client(struct sock *sk)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(clients) && clients[i]; i++) {
		if (clients[i]->wants_rcvlowat && clients[i]->wants_rcvlowat(sk))
			return clients[i];
	}
	return NULL;
}

static void tell_rcvlowat(struct sock *sk)
{
	const struct hook_client *client;

	rcu_read_lock();
	client = rcvlowat_client(sk);
	if (client)
		client->rcvlowat_set(sk);
	rcu_read_unlock();
}

static set_rcvlowat_fn *tcp_set_rcvlowat_fn(void)
{
#ifdef SOCKSPLICE_HOOK_BY_OPS
	return kernels_set_rcvlowat;
#else
	return inet_stream_ops.set_rcvlowat;
#endif
}

/* The socket is locked; a BPF program may call it in a softirq. */
static int hook_set_rcvlowat(struct sock *sk, int val)
{
	int ret;

	sks_enter();
	ret = tcp_set_rcvlowat_fn()(sk, val);
	tell_rcvlowat(sk);
	sks_leave();
	return ret;
}

#endif

#ifdef HOOK_BY_FTRACE

static void notrace hook_callback(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
				  struct ftrace_regs *fregs)
{
	splice_read_fn *target;
	struct socket *sock;

	if (within_module(parent_ip, THIS_MODULE))
		return;

	sock = (struct socket *)ftrace_regs_get_argument(fregs, 0);
	rcu_read_lock();
	target = hook_target(sock->sk);
	rcu_read_unlock();
	if (target)
		ftrace_regs_set_instruction_pointer(fregs, (unsigned long)target);
}

static void notrace lowat_callback(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	bool wants;

	if (within_module(parent_ip, THIS_MODULE))
		return;

	rcu_read_lock();
	wants = rcvlowat_client((struct sock *)ftrace_regs_get_argument(fregs, 0));
	rcu_read_unlock();
	if (wants)
		ftrace_regs_set_instruction_pointer(fregs, (unsigned long)hook_set_rcvlowat);
}

/* Serves getsockopt(TCP_ULP), for which the callback has taken a module reference. */
static int hook_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			   int __user *optlen)
{
	int ret = sks_slot_getsockopt(sk, optval, optlen);

	module_put(THIS_MODULE);
	return ret;
}

static void notrace ulp_callback(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
				 struct ftrace_regs *fregs)
{
	if ((int)ftrace_regs_get_argument(fregs, 1) != SOL_TCP ||
	    (int)ftrace_regs_get_argument(fregs, 2) != TCP_ULP ||
	    within_module(parent_ip, THIS_MODULE))
		return;
	if (READ_ONCE(sks_loaded) && try_module_get(THIS_MODULE))
		ftrace_regs_set_instruction_pointer(fregs, (unsigned long)hook_getsockopt);
}

static void look_for_ulp(struct work_struct *work);
static DECLARE_DELAYED_WORK(ulp_work, look_for_ulp);

static void look_for_ulp(struct work_struct *work)
{
	static pid_t told;	/* this and the next by this function alone */
	static bool settled;
	pid_t pid;

	if (!settled)
		synchronize_rcu_tasks();
	settled = true;
	pid = sks_caller_of_ulp();
	if (!pid) {
		/* What those calls read of the slot was read before it may be filled. */
		synchronize_rcu();
		WRITE_ONCE(ulp_status, 0);
		return;
	}
	if (pid != told)
		pr_warn("no socket is paired or spliced before task %d has left getsockopt(TCP_ULP)\n",
			pid);
	told = pid;
	schedule_delayed_work(&ulp_work, HZ / 5);
}

/* PERMANENT: kernel.ftrace_enabled=0 cannot switch it off unseen. */
static struct ftrace_ops hook_ops = {
	.func = hook_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
}, lowat_ops = {
	.func = lowat_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
}, ulp_ops = {
	.func = ulp_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

static int install(struct ftrace_ops *ops, const void *fn, const char *what, const char *lack)
{
	int err = ftrace_set_filter_ip(ops, (unsigned long)fn, 0, 0);

	if (!err)
		err = register_ftrace_function(ops);
	if (err) {
		ftrace_free_filter(ops);
		pr_warn("%s cannot be hooked (error %d): %s\n", what, err, lack);
	}
	return err;
}

static void uninstall(struct ftrace_ops *ops)
{
	unregister_ftrace_function(ops);
	ftrace_free_filter(ops);
}

void sks_hook_init(void)
{
	const char *unseen = "it will not see bytes that are not in TCP's own queue";
	const char *stale = "no socket is paired or spliced";

	if (COMPAT_COPY_FROM_BAD_SOURCE_FAILS)
		stale = "a call that is in a page fault may fail when its socket is un-paired";
	lowat_status = install(&lowat_ops, inet_stream_ops.set_rcvlowat, "SO_RCVLOWAT", unseen);
	splice_status = install(&hook_ops, inet_stream_ops.splice_read, "splice(2)", unseen);
	ulp_status = install(&ulp_ops, tcp_prot.getsockopt, "getsockopt(TCP_ULP)", stale);
	if (!ulp_status)
		ulp_status = -EAGAIN;
	/* Without the hook on splice(2) nothing is paired, so this hook serves nobody. Leave the
	 * function to other users.
	 */
	if (splice_status && !lowat_status) {
		uninstall(&lowat_ops);
		lowat_status = splice_status;
	}
}

void sks_hook_loaded(void)
{
	if (ulp_status == -EAGAIN && !COMPAT_COPY_FROM_BAD_SOURCE_FAILS)
		schedule_delayed_work(&ulp_work, 0);
}

void sks_hook_exit(void)
{
	cancel_delayed_work_sync(&ulp_work);
	if (!splice_status)
		uninstall(&hook_ops);
	if (!lowat_status)
		uninstall(&lowat_ops);
	if (!ulp_status || ulp_status == -EAGAIN)
		uninstall(&ulp_ops);
	splice_status = lowat_status = ulp_status = -ESHUTDOWN;
}

#elif defined(SOCKSPLICE_HOOK_BY_OPS)

/* For User Mode Linux booted with rodata=off: tests and benchmarks. A copy of these operations
 * keeps the kernel's functions: kTLS has such a copy, and so has the sink of a splice. ftrace
 * would redirect those calls, too.
 */
ssize_t sks_hook_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			     size_t len, unsigned int flags)
{
	splice_read_fn *target;

	rcu_read_lock();
	target = hook_target(sock->sk);
	rcu_read_unlock();
	/* a tail call: a task that sleeps in there does not return through this module */
	return (target ?: kernels_splice_read)(sock, ppos, pipe, len, flags);
}
EXPORT_SYMBOL_GPL(sks_hook_splice_read);

static int ops_set_rcvlowat(struct sock *sk, int val)
{
	bool wants;

	rcu_read_lock();
	wants = rcvlowat_client(sk);
	rcu_read_unlock();
	return (wants ? hook_set_rcvlowat : kernels_set_rcvlowat)(sk, val);
}

static void ops_set(splice_read_fn *read, set_rcvlowat_fn *lowat)
{
	WRITE_ONCE(*(splice_read_fn **)&inet_stream_ops.splice_read, read);
	WRITE_ONCE(*(splice_read_fn **)&inet6_stream_ops.splice_read, read);
	WRITE_ONCE(*(set_rcvlowat_fn **)&inet_stream_ops.set_rcvlowat, lowat);
	WRITE_ONCE(*(set_rcvlowat_fn **)&inet6_stream_ops.set_rcvlowat, lowat);
}

void sks_hook_init(void)
{
	kernels_splice_read = inet_stream_ops.splice_read;
	kernels_set_rcvlowat = inet_stream_ops.set_rcvlowat;
	ops_set(sks_hook_splice_read, ops_set_rcvlowat);
	splice_status = lowat_status = 0;
}

void sks_hook_loaded(void)
{
}

void sks_hook_exit(void)
{
	ops_set(kernels_splice_read, kernels_set_rcvlowat);
	splice_status = lowat_status = -ESHUTDOWN;
}

#else

void sks_hook_init(void)
{
	pr_warn("this kernel's ftrace cannot redirect functions: splice(2) is not hooked\n");
}

void sks_hook_loaded(void)
{
}

void sks_hook_exit(void)
{
}

#endif
