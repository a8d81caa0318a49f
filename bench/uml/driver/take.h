/* SPDX-License-Identifier: GPL-2.0 */
#ifndef UML_BENCH_TAKE_H
#define UML_BENCH_TAKE_H

#include <linux/types.h>

/* What a reader does turn by turn, without the system calls: the functions that those
 * call, on the files and the memory of the calling process.
 */
struct take {
	int fd;			/* of the socket */
	int pipe, sink;		/* -1: it reads; and it reads from the pipe */
	char __user *buf;	/* of @size bytes */
	size_t size;		/* a turn */
	u64 bytes;		/* to take at least */
	u64 __user *count;	/* of bytes taken: goes on, turn by turn */
};

/* May sleep. 0, or the error of the turn that failed; -EPIPE at the end of the file. */
int take(const struct take *t);

#endif /* UML_BENCH_TAKE_H */
