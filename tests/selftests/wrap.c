// SPDX-License-Identifier: GPL-2.0
/*
 * What the linker puts in the place of recv, recvmsg and read of the kernel's selftests
 * (--wrap). With SPLICE_READS in the environment their reads from TCP sockets become
 * splice(2) to a pipe and a read from there; "# spliced N reads" says how many, at the
 * end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIPE_SIZE	(1 << 20)
#define READ_FLAGS	(MSG_DONTWAIT | MSG_NOSIGNAL)	/* with others nothing is spliced */

static atomic_int *spliced;	/* shared with all that are forked; NULL: nothing is spliced */
static pid_t first;

__attribute__((constructor)) static void begin(void)
{
	if (!getenv("SPLICE_READS"))
		return;
	first = getpid();
	spliced = mmap(NULL, sizeof(*spliced), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (spliced == MAP_FAILED)
		abort();
}

__attribute__((destructor)) static void end(void)
{
	if (spliced && getpid() == first)
		printf("# spliced %d reads\n", atomic_load(spliced));
}

static bool is_tcp(int fd)
{
	int protocol = 0, listens = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
	       protocol == IPPROTO_TCP &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) && !listens;
}

/* A pipe for each call: what is left in one may not meet the next. */
static ssize_t by_splice(int fd, const struct iovec *iov, int n_iov, size_t len, bool nonblock)
{
	int p[2], mode = fcntl(fd, F_GETFL), err;
	ssize_t n;

	if (pipe(p))
		abort();
	fcntl(p[1], F_SETPIPE_SZ, PIPE_SIZE);
	if (nonblock)
		fcntl(fd, F_SETFL, mode | O_NONBLOCK);
	n = splice(fd, NULL, p[1], NULL, len, 0);
	err = errno;
	fcntl(fd, F_SETFL, mode);
	if (n > 0 && readv(p[0], iov, n_iov) != n)
		abort();
	close(p[0]);
	close(p[1]);
	atomic_fetch_add(spliced, n > 0);
	errno = err;
	return n;
}

ssize_t __real_recv(int fd, void *buf, size_t len, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_read(int fd, void *buf, size_t len);

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	if (!spliced || !len || (flags & ~READ_FLAGS) || !is_tcp(fd))
		return __real_recv(fd, buf, len, flags);
	return by_splice(fd, &(struct iovec){ buf, len }, 1, len, flags & MSG_DONTWAIT);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	size_t len = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	if (!spliced || !len || msg->msg_control || (flags & ~READ_FLAGS) || !is_tcp(fd))
		return __real_recvmsg(fd, msg, flags);
	msg->msg_flags = 0;
	return by_splice(fd, msg->msg_iov, msg->msg_iovlen, len, flags & MSG_DONTWAIT);
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	return spliced && is_tcp(fd) ? __wrap_recv(fd, buf, len, 0) : __real_read(fd, buf, len);
}
