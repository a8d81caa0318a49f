/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hooks on tcp_splice_read(), as splice(2) is the one way to read a TCP socket
 * that goes past struct proto, and on tcp_set_rcvlowat(), as SO_RCVLOWAT tells of bytes
 * that reach a new mark.
 *
 * Only calls on sockets that a part of this module serves are redirected; the
 * test for that runs in the ftrace callback. Any other socket's splice(2)
 * runs, and sleeps, in the kernel's function with nothing of ours on its
 * stack, so it never delays an unload.
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
	 * rcu_read_lock(): takes no lock and does not sleep. Asked again before the call, so a
	 * stale answer is harmless.
	 */
	bool (*wants_splice)(struct sock *sk);

	/* Serves splice(2) as tcp_splice_read() would. The pipe is locked, the socket is not;
	 * may sleep.
	 */
	ssize_t (*splice_read)(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			       size_t len, unsigned int flags);

	/* The sockets are attached (inflight.h), which keeps the module during a call. For a
	 * client without this the hook takes a module reference for each call.
	 */
	bool attached;

	/* True if the client wants to hear of SO_RCVLOWAT on @sk. The context is that of
	 * @wants_splice. NULL: it never does.
	 */
	bool (*wants_rcvlowat)(struct sock *sk);

	/* SO_RCVLOWAT of such a socket has just been set. The socket is locked, perhaps by a
	 * softirq. Under rcu_read_lock().
	 */
	void (*rcvlowat_set)(struct sock *sk);
};

/* To be called before sks_hook_init(). The client that registers first is asked first.
 * @client stays valid for as long as the module is loaded.
 */
void sks_hook_register(const struct hook_client *client);

/* Installs the hooks. Where one cannot be nothing is paired, but the module loads. */
void sks_hook_init(void);

/* Removes the hooks. Tasks that they sent here may be about to return from here:
 * sks_inflight_drain() waits for them.
 */
void sks_hook_exit(void);

/* 0, or why there are no hooks: -EBUSY where another user (a livepatch, say) already
 * redirects one of the functions, -EOPNOTSUPP on a kernel without the ftrace features it needs.
 */
int sks_hook_status(void);

/* The same of the hook on tcp_splice_read() alone, which is all that psock.c wants. */
int sks_hook_splice_status(void);

/* The kernel's own tcp_splice_read(). A task that sleeps in it has a frame of ours below:
 * see inflight.h.
 */
ssize_t sks_hook_orig(struct socket *sock, loff_t *ppos,
		      struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags);

/* Has the current system call, which reads from @sk and has moved nothing yet,
 * entered again: the error that it must return for that. 0 where it cannot be:
 * not a system call of the task's own, not a simple one, or of a descriptor that was closed or
 * made non-blocking meanwhile; and where it need not be, as
 * TCP's function would not sleep: a signal is pending.
 */
int sks_hook_restart(const struct sock *sk);

/* For a call that turns out not to be ours, or no longer: the kernel's own
 * takes over, by a restart of the system call where it could sleep. Nothing
 * may have been moved to the pipe, and the socket is not locked.
 */
ssize_t sks_hook_pass(struct socket *sock, loff_t *ppos,
		      struct pipe_inode_info *pipe, size_t len,
		      unsigned int flags);

#ifdef SOCKSPLICE_HOOK_BY_OPS
/* Where the hook leads, for bench/uml's driver. */
ssize_t sks_hook_splice_read(struct socket *sock, loff_t *ppos,
			     struct pipe_inode_info *pipe, size_t len,
			     unsigned int flags);
#endif

#endif /* SOCKSPLICE_HOOK_H */
