/* SPDX-License-Identifier: GPL-2.0 */
/* What the cases of SO_SPLICE share. Everything here ends the case's process, with a
 * message, when something is not as it should be.
 */
#ifndef SOSPLICE_H
#define SOSPLICE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../behave/ticks.h"
#include "socksplice.h"

#define check(cond, fmt, ...) do {					\
	if (!(cond))							\
		die("%s:%d: %s: " fmt, __FILE_NAME__, __LINE__, #cond, ##__VA_ARGS__); \
} while (0)

/* A proxy's view: the client's connection and the server's. What the client writes to
 * c arrives at p; spliced p -> q it goes on to the server at s.
 */
struct relay {
	int c, p;
	int q, s;
};

/* The exit status of a case that the kernel lacks something for. */
#define SKIPPED	77

struct sock_case {
	const char *name;
	void (*run)(void);
};

/* For unload.test: says "ready" with a thread inside the BSDs' getsockopt, in a page fault
 * that ends after a line of input.
 */
int literal_hold(void);

/* The same with a sink of UDP that has no room, and datagrams that wait for it. */
int udp_hold(void);

extern const struct sock_case call_cases[], literal_cases[], data_cases[], end_cases[];
extern const struct sock_case begin_cases[], bsd_cases[], forward_cases[], udp_cases[];
extern const struct sock_case page_cases[], page_end_cases[];
extern const struct sock_case udp_race_cases[], leg_cases[];
extern const struct sock_case tls_cases[], tls_leg_cases[];

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...);

void connect_pair(int family, int *client, int *server);
void relay_open(struct relay *r, int client_family, int server_family);

/* From now on sockets of this process are in a network namespace of its own. */
void other_namespace(void);

/* p -> q, without limits */
void splice_on(struct relay *r);
void splice_fds(int from, int to, int64_t max, long idle_ms);

/* Bytes of a stream that says where each of its bytes stands. */
void stream_write(int fd, uint64_t pos, size_t len);
void stream_read(int fd, uint64_t pos, size_t len);
/* As much as goes in, or is there, at once and at most 4096: 0 if none. */
size_t stream_give(int fd, uint64_t pos);
size_t stream_take(int fd, uint64_t pos);

/* The counter's value, from the module. */
uint64_t counter(const char *name);
/* Waits until it is at least that: it follows shortly after a socket's own count. Returns it. */
uint64_t wait_counter(const char *name, uint64_t least);

/* What is there already, such as a sysctl. */
void write_file(const char *path, const char *text);

/* Sets the module's parameter. */
void set_switch(const char *name, const char *value);

/* getsockopt(SO_ERROR) */
int so_error(int fd);
short poll_now(int fd);

/* Waits until the splice of @fd has moved @bytes, neither more. */
void wait_moved(int fd, int64_t bytes);
/* Waits until the splice of @fd has ended, as another one may begin or not. */
void wait_error(int fd, int err);
long ms(void);
void sleep_ms(long n);

/* Writes until nothing more goes in; returns how much. */
uint64_t fill(int fd, uint64_t pos);
void set_buf(int fd, int snd, int rcv);

/* Has a thread splice(2) PUMP_BYTES zeros from a pipe into p, where there is no room for
 * them until c has read what is there: the number of bytes returned.
 */
#define PUMP_BYTES	65536
uint64_t pump_start(struct relay *r);

/* A page whose first use, also by the kernel, waits until end_fault(), and finds an int there. */
struct held_page {
	int fd;
	void *page;
};
void hold_page(struct held_page *h);
void wait_for_fault(struct held_page *h);
void end_fault(struct held_page *h, int first);

/* Returns when this process's task @tid is asleep in the system call @nr. False if it has ended. */
bool wait_asleep(int tid, long nr);

/* UDP, in udp.c. The first two sockets of each pair are connected to each other. */
int udp_bound(int family);
void udp_connect(int a, int b);	/* @a to @b's address */
void udp_pair(int family, int *a, int *b);
void udp_open(struct relay *r, int client_family, int server_family);
int udp_try(int from, int to, int64_t max);	/* splices: 0 or errno */
void udp_give(int fd, char fill, size_t len);
/* Waits for the next datagram: @len bytes, all of them @fill. */
void udp_want(int fd, char fill, size_t len);
void udp_nothing(int fd);
/* getsockopt(SO_MEMINFO)'s number @i: SK_MEMINFO_DROPS and so on. */
long udp_meminfo(int fd, int i);
/* As udp_open(), with a server's device that takes almost nothing after the first few. */
void udp_open_slow(struct relay *r);

/* As a 32-bit program calls: -errno. The numbers are those of x86. */
long call32(long nr, int fd, int level, int name, void *arg, unsigned long len);
/* A kernel without them answers with SIGSEGV. A 64-bit program on arm64 cannot make one. */
bool has_32_bit_calls(void);
#ifndef MAP_32BIT
#define MAP_32BIT	0
#endif

#endif
