/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the torture share; torture.c says what it is. */
#ifndef TORTURE_H
#define TORTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define PARAMS		"/sys/module/socksplice/parameters/"
#define MAX_WORKERS	32
#define BUF		(160 * 1024)

struct shared {
	atomic_uint beat[MAX_WORKERS];	/* rounds done, for the watchdog */
	atomic_ulong rounds, bytes, refused, no_page, dumps, unloads, bad;
	atomic_ulong ring_bytes, pairs;
	atomic_bool stop;
	atomic_bool draining;	/* the unloader waits for the last pair: nobody enrols sockets */
};

extern struct shared *sh;
extern const char *module;
extern bool with_faults;
extern unsigned int seed;

uint32_t rnd(void);
uint32_t below(uint32_t n);
void reseed(uint64_t salt);
void __attribute__((format(printf, 1, 2))) bad(const char *fmt, ...);
bool stopped(void);
int put(const char *path, const char *text);

/* Two ends of one new connection; false where the kernel was short of memory. */
bool connection(int fd[2]);

/* What neither takes nor adds a byte. */
void pester(int fd);

/* One system call of whatever kind; @buf has BUF bytes. */
void chaos_op(int fd, uint8_t *buf);

/* One round each. */
void ordered(uint64_t salt);
void chaos(uint64_t salt);
void fault(uint64_t salt);

/* Processes beside the workers. */
void dumper(void);
void toggler(void);
void unloader(void);

#endif /* TORTURE_H */
