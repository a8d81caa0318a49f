/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's parameters: values that an administrator may change at any time, in
 * /sys/module/socksplice/parameters. params.c has their bounds, defaults and descriptions. They
 * are written with WRITE_ONCE() and read with READ_ONCE().
 */
#ifndef SOCKSPLICE_PARAMS_H
#define SOCKSPLICE_PARAMS_H

#include <linux/types.h>

/* Bytes. The command line accepts no larger cap. */
#define SOCKSPLICE_MEMORY_CAP_MAX	(1ULL << 40)

extern bool sks_pairing;
extern bool sks_shadow;
extern bool sks_unprivileged_splice;
extern unsigned int sks_splice_cpu_percent;
extern unsigned int sks_path_timeout;	/* seconds */
extern unsigned int sks_ring_idle;	/* seconds, 0: never */
extern unsigned int sks_short_wait;	/* µs */
extern unsigned int sks_ring_size;	/* bytes */
extern unsigned int sks_ring_max;	/* bytes; 0: rings do not grow */
extern u64 sks_memory_cap;		/* bytes, 0: no limit */

/* True if a ring may have @size bytes: a power of two, between the bounds of uapi/. */
bool sks_ring_size_valid(u32 size);

/* Sets the defaults that depend on the machine. */
void sks_params_init(void);

#endif /* SOCKSPLICE_PARAMS_H */
