// SPDX-License-Identifier: GPL-2.0
/*
 * Code of the kernel that calls the four callbacks of sockets without their locks, whatever
 * becomes of the sockets meanwhile: a thread calls them in a loop, with bottom halves on and
 * off in turn. The parameter "sockets" takes descriptors of the process that writes it, with
 * spaces between; the thread has those, and no others, until the next write.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <net/sock.h>

#define SOCKETS 8

static struct sock *sockets[SOCKETS];	/* held, may be closed; sockets_lock */
static DEFINE_MUTEX(sockets_lock);
static struct task_struct *caller;

static unsigned long calls, spliced_calls;	/* the thread; the second: with an owner */
module_param(calls, ulong, 0444);
module_param(spliced_calls, ulong, 0444);

static void forget(void)
{
	unsigned int i;

	lockdep_assert_held(&sockets_lock);
	for (i = 0; i < SOCKETS && sockets[i]; i++) {
		sock_put(sockets[i]);
		sockets[i] = NULL;
	}
}

static int set_sockets(const char *text, const struct kernel_param *kp)
{
	unsigned int n = 0;
	int fd, used, err = 0;

	mutex_lock(&sockets_lock);
	forget();
	for (; n < SOCKETS && sscanf(text, "%d%n", &fd, &used) == 1; text += used) {
		struct socket *sock = sockfd_lookup(fd, &err);

		if (!sock)
			break;
		sock_hold(sock->sk);
		sockets[n++] = sock->sk;
		sockfd_put(sock);
	}
	mutex_unlock(&sockets_lock);
	return err;
}

static const struct kernel_param_ops sockets_ops = { .set = set_sockets };
module_param_cb(sockets, &sockets_ops, NULL, 0200);

/* RCU, for the socket's file may be closed: as in the kernel's own softirqs. */
static void call(struct sock *sk)
{
	bool owned;

	rcu_read_lock();
	owned = READ_ONCE(sk->sk_user_data);
	READ_ONCE(sk->sk_data_ready)(sk);
	READ_ONCE(sk->sk_state_change)(sk);
	READ_ONCE(sk->sk_write_space)(sk);
	READ_ONCE(sk->sk_error_report)(sk);
	rcu_read_unlock();
	calls++;
	spliced_calls += owned;
}

static int calling(void *unused)
{
	unsigned int i, round;

	for (round = 0; !kthread_should_stop(); round++) {
		mutex_lock(&sockets_lock);
		if (round % 2)
			local_bh_disable();
		for (i = 0; i < SOCKETS && sockets[i]; i++)
			call(sockets[i]);
		if (round % 2)
			local_bh_enable();
		mutex_unlock(&sockets_lock);
		cond_resched();
	}
	return 0;
}

static int __init strange_caller_init(void)
{
	caller = kthread_run(calling, NULL, "strange_caller");
	return PTR_ERR_OR_ZERO(caller);
}

static void __exit strange_caller_exit(void)
{
	kthread_stop(caller);
	mutex_lock(&sockets_lock);
	forget();
	mutex_unlock(&sockets_lock);
}

module_init(strange_caller_init);
module_exit(strange_caller_exit);
MODULE_DESCRIPTION("A test of socksplice: calls sockets' callbacks without their locks");
MODULE_LICENSE("GPL");
