/* SPDX-License-Identifier: GPL-2.0 */
/* What the cases share: writers, sleepers, and transfers that are checked byte
 * for byte and against the counters. Everything here ends the process, with a
 * message, when something is not as it should be.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lab.h"

#define SEED	42
/* Where the other direction's stream begins. */
#define BACK	(1ULL << 40)
#define PARAM	"/sys/module/socksplice/parameters/"

#define check(cond, fmt, ...) do {					\
	if (!(cond))							\
		die("%s:%d: %s: " fmt, __FILE_NAME__, __LINE__, #cond, ##__VA_ARGS__); \
} while (0)

struct writer {
	pthread_t thread;
	int fd;
	uint64_t pos;
	size_t len, chunk, window;
	bool drained;	/* waits until all whole records are read */
};

struct reader {
	pthread_t thread;
	int fd;
	uint64_t pos;
	size_t len;
};

struct sleeper {
	pthread_t thread;
	atomic_int tid;
	int fd, pipe;
	ssize_t ret;
	int err;
	long took;
};

long ms(void);

/* Whether this is one of the debug kernels, where everything takes ten times as long; and how
 * much of something is enough: @n, and there an eighth of that.
 */
bool on_debug_kernel(void);
size_t amount(size_t n);

/* A case that gets on is slow at worst: only one that has not for two minutes
 * hangs.
 */
void alive(void);

void write_file(const char *path, const char *text);
void set_timeo(int fd, long millis);
void set_nonblock(int fd);
void wait_readable(int fd);
void make_pipe(int p[2], int size);

/* Waits until a task sleeps in the kernel, by the state that /proc shows. */
void wait_asleep(pid_t tid);

void send_stream(int fd, uint64_t pos, size_t len);

/* Bytes of the stream that the reader has had, for writers with a window. */
extern atomic_ullong consumed;

/* Reads len bytes of the stream out of a pipe and checks them. */
void drain_pipe(int fd, uint64_t pos, size_t len);
/* Splices len bytes of the stream from a blocking socket and checks them. */
void splice_stream(int fd, uint64_t pos, size_t len, size_t chunk, int pipe_size);

/* What the module's counters say came out of sockmap queues. */
uint64_t psock_bytes(void);
/* Whether a kind's bytes do, rather than out of TCP's own queue. */
bool through_psock(enum kind kind);

uint32_t meminfo(int fd, int which);	/* SO_MEMINFO */
/* Nothing is charged to the socket: soon, as the kernel's worker gives up what it
 * redirected only after the reader may have read it.
 */
bool uncharged(int fd);

/* A thread that sends what @w says, or all of @len by the way of the flow. @reads: the reader
 * uses read(2) as well as splice(2).
 */
void writer_go(struct writer *w);
void writer_start(struct writer *w, const struct flow *f, size_t len, size_t chunk, bool reads);

/* A thread that splices @len bytes and checks them. */
void reader_go(struct reader *r, int fd, uint64_t pos, size_t len);
/* splice(2) says end of file, more than once. */
void expect_eof(int fd);

/* A thread in splice(2), asleep when this returns. */
void sleeper_start(struct sleeper *s, int fd, int pipe);

/* len bytes through a kind, or through each in a process of its own. */
void transfer(enum kind kind, int family, size_t len, size_t send_chunk, size_t chunk,
	      int pipe_size);
void transfer_kinds(int family, size_t len, size_t send_chunk, size_t chunk, int pipe_size);

#endif
