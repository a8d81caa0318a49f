/* SPDX-License-Identifier: GPL-2.0 */
/* One splice(2) at a time by io_uring, which leaves it to a worker thread. */
#ifndef URING_H
#define URING_H

#include <stddef.h>

struct uring {
	int fd;
	char *sq, *cq;
	void *sqes;
	unsigned int *sq_array, *sq_tail, *cq_head, *cq_tail;
	char *cqes;
	unsigned int mask;
	size_t sq_len, cq_len, sqes_len;
};

void uring_open(struct uring *u);
void uring_close(struct uring *u);
/* Hands one splice(2) to the kernel. */
void uring_splice(struct uring *u, int from, int to, unsigned int len);
/* Waits for it; returns what splice(2) would, or a negative error. */
int uring_wait(struct uring *u);

#endif
