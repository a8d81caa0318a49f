// SPDX-License-Identifier: GPL-2.0
/*
 * A server in the kernel, whose listener is the kernel's own and holds its network
 * namespace, as ksmbd's: sends back what it receives on port 7000 of 127.0.0.1, from
 * one connection after the other. Those are to be closed before it is unloaded.
 */
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <net/sock.h>

static struct socket *listener;
static struct task_struct *server;

static void echo(struct socket *conn, void *buf, size_t size)
{
	struct kvec vec = { .iov_base = buf };
	struct msghdr msg = {};
	int n;

	do {
		n = kernel_recvmsg(conn, &msg, &(struct kvec){ buf, size }, 1, size, 0);
		vec.iov_len = n;
	} while (n > 0 && kernel_sendmsg(conn, &msg, &vec, 1, n) == n);
}

static int serve(void *buf)
{
	struct socket *conn;

	while (!kernel_accept(listener, &conn, 0)) {
		echo(conn, buf, PAGE_SIZE);
		sock_release(conn);
	}
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	kfree(buf);
	return 0;
}

static int __init kernel_server_init(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(7000),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	void *buf = kmalloc(PAGE_SIZE, GFP_KERNEL);
	int err;

	if (!buf)
		return -ENOMEM;
	err = sock_create_kern(current->nsproxy->net_ns, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &listener);
	if (err)
		goto err_buf;
	sk_net_refcnt_upgrade(listener->sk);
	/* not kernel_bind(), whose second argument has another type on 7.x */
	err = listener->ops->bind(listener, (void *)&at, sizeof(at));
	if (!err)
		err = kernel_listen(listener, 1);
	if (err)
		goto err_sock;
	server = kthread_run(serve, buf, "kernel_server");
	if (!IS_ERR(server))
		return 0;
	err = PTR_ERR(server);
err_sock:
	sock_release(listener);
err_buf:
	kfree(buf);
	return err;
}

static void __exit kernel_server_exit(void)
{
	kernel_sock_shutdown(listener, SHUT_RDWR);
	kthread_stop(server);
	sock_release(listener);
}

module_init(kernel_server_init);
module_exit(kernel_server_exit);
MODULE_DESCRIPTION("A test of socksplice: a TCP server in the kernel");
MODULE_LICENSE("GPL");
