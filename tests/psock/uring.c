// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "uring.h"

static void *map(const struct uring *u, size_t len, off_t off)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, off);

	check(p != MAP_FAILED, "%s", strerror(errno));
	return p;
}

void uring_open(struct uring *u)
{
	struct io_uring_params par = { 0 };

	u->fd = syscall(SYS_io_uring_setup, 4, &par);
	check(u->fd >= 0, "io_uring_setup: %s", strerror(errno));
	u->sq_len = par.sq_off.array + 4 * par.sq_entries;
	u->cq_len = par.cq_off.cqes + par.cq_entries * sizeof(struct io_uring_cqe);
	u->sqes_len = par.sq_entries * sizeof(struct io_uring_sqe);
	u->sq = map(u, u->sq_len, IORING_OFF_SQ_RING);
	u->cq = map(u, u->cq_len, IORING_OFF_CQ_RING);
	u->sqes = map(u, u->sqes_len, IORING_OFF_SQES);
	u->sq_array = (unsigned int *)(u->sq + par.sq_off.array);
	u->sq_tail = (unsigned int *)(u->sq + par.sq_off.tail);
	u->cq_head = (unsigned int *)(u->cq + par.cq_off.head);
	u->cq_tail = (unsigned int *)(u->cq + par.cq_off.tail);
	u->cqes = u->cq + par.cq_off.cqes;
	u->mask = par.cq_entries - 1;
}

void uring_close(struct uring *u)
{
	munmap(u->sqes, u->sqes_len);
	munmap(u->sq, u->sq_len);
	munmap(u->cq, u->cq_len);
	close(u->fd);
}

void uring_splice(struct uring *u, int from, int to, unsigned int len)
{
	struct io_uring_sqe *sqe = u->sqes;
	unsigned int tail = *u->sq_tail;

	*sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_SPLICE, .fd = to, .splice_fd_in = from,
		.splice_off_in = -1ULL, .off = -1ULL, .len = len,
	};
	u->sq_array[tail % 4] = 0;
	__atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
	check(syscall(SYS_io_uring_enter, u->fd, 1, 0, 0, NULL, 0) == 1, "io_uring_enter: %s",
	      strerror(errno));
}

int uring_wait(struct uring *u)
{
	unsigned int head = *u->cq_head;
	int res;

	while (__atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE) == head)
		check(!syscall(SYS_io_uring_enter, u->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) ||
		      errno == EINTR, "io_uring_enter: %s", strerror(errno));
	res = ((struct io_uring_cqe *)u->cqes)[head & u->mask].res;
	__atomic_store_n(u->cq_head, head + 1, __ATOMIC_RELEASE);
	return res;
}
