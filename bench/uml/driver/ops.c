// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/splice.h>
#include <net/inet_common.h>

#include "ops.h"

/* The module's; by name, since older ones have none. */
typedef ssize_t splice_read_t(struct socket *, loff_t *, struct pipe_inode_info *,
			      size_t, unsigned int);
extern splice_read_t sks_hook_splice_read;

/* Of all sockets that were told to splice so; written before the first of them. */
static struct proto_ops module_ops, kernel_ops;

static ssize_t splice_by_copy(struct socket *sock, loff_t *ppos,
			      struct pipe_inode_info *pipe, size_t len,
			      unsigned int flags)
{
	return copy_splice_read(sock->file, ppos, pipe, len, flags);
}

int ops_hook(int fd, bool by_module)
{
	struct proto_ops *ops = by_module ? &module_ops : &kernel_ops;
	struct socket *sock;
	int err;

	if (!ops->splice_read) {
		*ops = inet_stream_ops;
		ops->splice_read = by_module ? symbol_get(sks_hook_splice_read) :
					       splice_by_copy;
	}
	if (!ops->splice_read)
		return -EOPNOTSUPP;
	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return err;
	if (READ_ONCE(sock->ops) == &inet_stream_ops)
		WRITE_ONCE(sock->ops, ops);
	else
		err = -EINVAL;
	sockfd_put(sock);
	return err;
}
