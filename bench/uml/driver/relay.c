// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/slab.h>
#include <net/sock.h>

#include "relay.h"
#include "sosplice.h"
#include "uapi/so_splice.h"

#define PUMP_SIZE	65536	/* what examples/tcp-proxy copies at a time */

/* One direction. Only its thread uses it. */
struct pump {
	struct end from, to;
	char buf[PUMP_SIZE];
};

static int pump_thread(void *arg)
{
	struct pump *p = arg;
	ssize_t n;

	do {
		n = transport_recv(&p->from, p->buf, sizeof(p->buf));
	} while (n > 0 && !transport_send(&p->to, p->buf, n));
	return 0;	/* the measurement that misses it says so */
}

static int pump(struct socket *from, struct socket *to, unsigned int cpu)
{
	struct pump *p = kvzalloc(sizeof(*p), GFP_KERNEL);
	struct task_struct *task;

	if (!p)
		return -ENOMEM;
	p->from.sock = from;
	p->to.sock = to;
	task = kthread_create(pump_thread, p, "relay");
	if (IS_ERR(task)) {
		kvfree(p);
		return PTR_ERR(task);
	}
	kthread_bind(task, cpu);
	wake_up_process(task);
	return 0;
}

/* A file descriptor of the caller's, which keeps it; or an error. */
static int socket_fd(struct socket *sock)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);
	struct file *file;

	if (fd < 0)
		return fd;
	file = sock_alloc_file(sock, O_CLOEXEC, NULL);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	fd_install(fd, file);
	return fd;
}

static int splice(struct socket *from, int to)
{
	struct socksplice_so_splice opt = { .sp_fd = to };

	return from->ops->setsockopt(from, SOL_IP, SOCKSPLICE_SO_SPLICE,
				     KERNEL_SOCKPTR(&opt), sizeof(opt));
}

static int open_legs(struct conn *c, struct conn *legs)
{
	int err, i;

	err = transport_open_tcp(&legs[0]);
	if (!err)
		err = transport_open_tcp(&legs[1]);
	for (i = 0; i < 2 && !err; i++)
		err = transport_set(&legs[i], 0, true);
	c->end[0] = legs[0].end[0];
	c->end[1] = legs[1].end[1];
	c->is_tcp = true;
	return err;
}

int relay_open_copying(struct conn *c, unsigned int cpu)
{
	struct conn legs[2] = {};
	int err = open_legs(c, legs);

	if (!err)
		err = pump(legs[0].end[1].sock, legs[1].end[0].sock, cpu);
	if (!err)
		err = pump(legs[1].end[0].sock, legs[0].end[1].sock, cpu);
	return err;
}

int relay_open_spliced(struct conn *c)
{
	struct conn legs[2] = {};
	int fd[2], err = open_legs(c, legs);
	struct socket *inner[2] = { legs[0].end[1].sock, legs[1].end[0].sock };
	int i;

	for (i = 0; i < 2 && !err; i++) {
		fd[i] = socket_fd(inner[i]);
		err = min(fd[i], 0);
	}
	for (i = 0; i < 2 && !err; i++)
		err = splice(inner[i], fd[!i]);
	c->spliced[0] = inner[0];
	c->spliced[1] = inner[1];
	return err;
}

u64 relay_spliced_bytes(const struct conn *c)
{
	u64 bytes = 0;
	int i;

	for (i = 0; i < 2 && c->spliced[i]; i++) {
		struct sock *sk = c->spliced[i]->sk;
		const struct soend *end;

		lock_sock(sk);
		end = transport_ulp(sk, "so_splice");
		if (end)
			bytes += end->moved;
		release_sock(sk);
	}
	return bytes;
}
