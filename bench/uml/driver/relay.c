// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/pipe_fs_i.h>
#include <linux/slab.h>
#include <net/sock.h>

#include "relay.h"
#include "sosplice/splice.h"
#include "uapi/so_splice.h"

#define COPY_SIZE	65536		/* what examples/tcp-proxy copies at a time */
#define SPLICE_SIZE	(1U << 20)	/* and what it splices, a pipe's worth */

/* One direction. Only its thread uses it. */
struct pump {
	struct end from, to;
	struct pipe_inode_info *pipe;	/* NULL: it copies */
	char buf[COPY_SIZE];
};

static ssize_t pump_copy(struct pump *p)
{
	ssize_t n = transport_recv(&p->from, p->buf, sizeof(p->buf));

	return n > 0 ? transport_send(&p->to, p->buf, n) : n;
}

/* As splice(2) does it, twice. */
static ssize_t pump_splice(struct pump *p)
{
	struct file *to = p->to.sock->file;
	loff_t pos = 0;
	ssize_t n, sent;

	pipe_lock(p->pipe);
	n = p->from.sock->ops->splice_read(p->from.sock, &pos, p->pipe, SPLICE_SIZE, 0);
	pipe_unlock(p->pipe);
	if (!n)
		return -EPIPE;
	for (; n > 0; n -= sent) {
		sent = to->f_op->splice_write(p->pipe, to, &pos, n, 0);
		if (sent <= 0)
			return -EPIPE;
	}
	return n;
}

static int pump_thread(void *arg)
{
	struct pump *p = arg;

	while (!(p->pipe ? pump_splice(p) : pump_copy(p)))
		;
	return 0;	/* the measurement that misses it says so */
}

/* @pipe is a descriptor of the caller's, or negative. */
static int pump(struct socket *from, struct socket *to, unsigned int cpu, int pipe)
{
	struct pump *p = kvzalloc(sizeof(*p), GFP_KERNEL);	/* kept, as all of it is */
	struct task_struct *task;
	struct file *file;

	if (!p)
		return -ENOMEM;
	p->from.sock = from;
	p->to.sock = to;
	if (pipe >= 0) {
		file = fget(pipe);
		if (!file)
			return -EBADF;
		p->pipe = file->private_data;
	}
	task = kthread_create(pump_thread, p, "relay");
	if (IS_ERR(task))
		return PTR_ERR(task);
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
		err = transport_set(&legs[i], 0, true, false);
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
		err = pump(legs[0].end[1].sock, legs[1].end[0].sock, cpu, -1);
	if (!err)
		err = pump(legs[1].end[0].sock, legs[0].end[1].sock, cpu, -1);
	return err;
}

/* The two sockets between the connections, with files. */
static int open_inner(struct conn *c, struct socket **inner, int *fd)
{
	struct conn legs[2] = {};
	int i, err = open_legs(c, legs);

	inner[0] = legs[0].end[1].sock;
	inner[1] = legs[1].end[0].sock;
	for (i = 0; i < 2 && !err; i++) {
		fd[i] = socket_fd(inner[i]);
		err = min(fd[i], 0);
	}
	return err;
}

int relay_open_piping(struct conn *c, unsigned int cpu, const int *pipes)
{
	struct socket *inner[2];
	int i, fd[2], err = open_inner(c, inner, fd);

	for (i = 0; i < 2 && !err; i++)
		err = pump(inner[i], inner[!i], cpu, pipes[i]);
	return err;
}

int relay_open_spliced(struct conn *c)
{
	int i, fd[2], err = open_inner(c, c->spliced, fd);

	for (i = 0; i < 2 && !err; i++)
		err = splice(c->spliced[i], fd[!i]);
	return err;
}

u64 relay_spliced_bytes(const struct conn *c)
{
	u64 bytes = 0;
	int i;

	for (i = 0; i < 2 && c->spliced[i]; i++) {
		struct sock *sk = c->spliced[i]->sk;
		const struct splice_endpoint *end;

		lock_sock(sk);
		end = transport_ulp(sk, "so_splice");
		if (end)
			bytes += end->moved;
		release_sock(sk);
	}
	return bytes;
}
