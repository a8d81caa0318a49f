/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two connections and what forwards between them, both ways: a kernel thread each that
 * copies, or that does what splice(2) does to and from a pipe; or SO_SPLICE, set as an
 * application sets it.
 */
#ifndef UML_BENCH_RELAY_H
#define UML_BENCH_RELAY_H

#include "transport.h"

/* Both connect as _open_tcp does; @c gets the outer ends. The threads run on @cpu. What
 * is opened is kept until the kernel ends. In process context, by a process.
 */
int relay_open_copying(struct conn *c, unsigned int cpu);
/* @pipes: a file descriptor of the caller's for each of two pipes. */
int relay_open_piping(struct conn *c, unsigned int cpu, const int *pipes);
int relay_open_spliced(struct conn *c);

/* Bytes that SO_SPLICE has forwarded, by the module's own count; 0 if threads forward. */
u64 relay_spliced_bytes(const struct conn *c);

#endif /* UML_BENCH_RELAY_H */
