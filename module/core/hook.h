/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hooks on three functions of TCP. Struct proto does not reach two of them. splice(2) reads a
 * TCP socket by tcp_splice_read(). SO_RCVLOWAT calls tcp_set_rcvlowat(), which wakes the reader if
 * the bytes already reach the new mark.
 *
 * These calls are redirected only if a part of this module serves their socket. The ftrace callback
 * tests that. For any other socket splice(2) runs, and sleeps, in the kernel's function with
 * nothing of ours on its stack, so it never delays an unload.
 *
 * The third is tcp_getsockopt(), for TCP_ULP on every TCP socket. TCP reads the ULP slot twice,
 * without the lock, with a page fault between. A socket that became ours, or stopped being ours,
 * meanwhile would have it copy the name from an address near NULL, which is fatal on some
 * architectures. There no socket becomes ours before such calls of TCP's own have
 * ended: see sks_hook_may_attach().
 */
#ifndef SOCKSPLICE_HOOK_H
#define SOCKSPLICE_HOOK_H

#include <linux/types.h>

struct pipe_inode_info;
struct sock;
struct socket;

/* A part of the module that serves calls on sockets of its own. */
struct hook_client {
	/* True if splice(2) from @sk goes to @splice_read. Called in the ftrace callback, under
	 * rcu_read_lock(), so it takes no lock and does not sleep. The hook asks again before the
	 * call, so a stale answer is harmless.
	 */
	bool (*wants_splice)(struct sock *sk);

	/* Serves splice(2) as tcp_splice_read() would. The pipe is locked, the socket is not. May
	 * sleep.
	 */
	ssize_t (*splice_read)(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			       size_t len, unsigned int flags);

	/* The client's sockets are attached (inflight.h), which keeps the module during a call.
	 * For a client without attached sockets the hook takes a module reference for each call.
	 */
	bool attached;

	/* True if the client wants to be called for SO_RCVLOWAT on @sk. The context is that of
	 * @wants_splice. NULL: the client never wants that.
	 */
	bool (*wants_rcvlowat)(struct sock *sk);

	/* SO_RCVLOWAT of such a socket has just been set. The socket is locked, perhaps by a
	 * softirq. Called under rcu_read_lock().
	 */
	void (*rcvlowat_set)(struct sock *sk);
};

/* Registers @client. Called before sks_hook_init(). The client that registers first is asked
 * first. @client stays valid for as long as the module is loaded.
 */
void sks_hook_register(const struct hook_client *client);

/* Installs the hooks. If one of the first two cannot be installed, the module loads but pairs
 * nothing.
 */
void sks_hook_init(void);

/* Called once sks_loaded is set. From then on getsockopt(TCP_ULP) is redirected. Begins to look for
 * calls from before, where that matters.
 */
void sks_hook_loaded(void);

/* Removes the hooks. A task that a hook sent here may still be about to return from here.
 * sks_inflight_drain() waits for such tasks.
 */
void sks_hook_exit(void);

/* 0, or the reason why nothing is paired. -EBUSY: another user (a livepatch, say) already
 * redirects one of the functions. -EOPNOTSUPP: the kernel lacks the ftrace features. -EAGAIN: see
 * sks_hook_may_attach().
 */
int sks_hook_status(void);

/* True on an architecture that takes TCP's copy from a bad address for a fault of the user's. On
 * others, false as long as a getsockopt(TCP_ULP) from before sks_hook_loaded() may be inside TCP's
 * function, and where that function could not be hooked: then no socket may become ours. The
 * module looks for such calls five times a second, and names their process in the kernel's log.
 */
bool sks_hook_may_attach(void);

/* Like sks_hook_status(), but for the hook on tcp_splice_read() alone: psock.c needs no other. */
int sks_hook_splice_status(void);

/* Calls the kernel's own tcp_splice_read(). A task that sleeps in it has a frame of ours below:
 * see inflight.h.
 */
ssize_t sks_hook_orig(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags);

/* Makes the current system call, which reads from @sk and has moved nothing yet, enter the kernel
 * again. Returns the error that the call must return for that, or 0 in these cases:
 *   - The call cannot be entered again: it is no system call of the task's own, it is no simple
 *     read, or its descriptor was closed or made non-blocking meanwhile.
 *   - It need not be: a signal is pending, so TCP's function would not sleep.
 */
int sks_hook_restart(const struct sock *sk);

/* For a call that is not ours, or no longer: the kernel's own function takes over. If that could
 * sleep, the system call is restarted. The caller has moved nothing to the pipe, and the socket is
 * not locked.
 */
ssize_t sks_hook_pass(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags);

#ifdef SOCKSPLICE_HOOK_BY_OPS
/* The function that the hook leads to, for bench/uml's driver. */
ssize_t sks_hook_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			     size_t len, unsigned int flags);
#endif

#endif /* SOCKSPLICE_HOOK_H */
