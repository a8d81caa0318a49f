// SPDX-License-Identifier: GPL-2.0
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/pipe_fs_i.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "take.h"

/* As read(2) does it. */
static ssize_t read_to(struct file *file, char __user *buf, size_t len)
{
	struct iov_iter iter;
	struct kiocb kiocb;

	init_sync_kiocb(&kiocb, file);
	iov_iter_ubuf(&iter, ITER_DEST, buf, len);
	return file->f_op->read_iter(&kiocb, &iter);
}

/* As splice(2) does it, where the pipe has room for @len. */
static ssize_t splice_to(struct file *sock, struct file *pipe, size_t len)
{
	struct pipe_inode_info *info = pipe->private_data;
	loff_t pos = 0;
	ssize_t n;

	pipe_lock(info);
	n = sock->f_op->splice_read(sock, &pos, info, len, 0);
	pipe_unlock(info);
	return n;
}

static ssize_t empty_pipe(struct file *pipe, struct file *sink, char __user *buf, size_t len)
{
	loff_t pos = 0;

	return sink ? sink->f_op->splice_write(pipe->private_data, sink, &pos, len, 0) :
		      read_to(pipe, buf, len);
}

static ssize_t turn(struct file *sock, struct file *pipe, struct file *sink,
		    char __user *buf, size_t size)
{
	ssize_t n, m, left;

	if (!pipe)
		return read_to(sock, buf, size);
	n = splice_to(sock, pipe, size);
	for (left = n; left > 0; left -= m) {
		m = empty_pipe(pipe, sink, buf + n - left, left);
		if (m <= 0)
			return m ? m : -EPIPE;
	}
	return n;
}

int take(const struct take *t)
{
	struct file *sock = fget(t->fd);
	struct file *pipe = t->pipe < 0 ? NULL : fget(t->pipe);
	struct file *sink = t->sink < 0 ? NULL : fget(t->sink);
	u64 count, end;
	ssize_t n = 0;

	if (!sock || (t->pipe >= 0 && !pipe) || (t->sink >= 0 && !sink))
		n = -EBADF;
	else if (get_user(count, t->count))
		n = -EFAULT;
	for (end = count + t->bytes; !n && count < end;) {
		n = turn(sock, pipe, sink, t->buf, t->size);
		if (!n)
			n = -EPIPE;
		/* The kernel's recvmsg for such sockets now and then, after a wait. */
		if (n == -EAGAIN && !signal_pending(current))
			n = 0;
		if (n > 0) {
			count += n;
			n = put_user(count, t->count);
		}
	}
	if (sock)
		fput(sock);
	if (pipe)
		fput(pipe);
	if (sink)
		fput(sink);
	return n;
}
