/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The harness of the behaviour suite.
 *
 * A case is a function that does something to one or more TCP connections and
 * says every result that an application could see. The runner calls it once on
 * plain TCP and once with pairing on; the two texts must be equal, and the
 * second run must have moved bytes through a ring. So what a case says must
 * not depend on timing or on how TCP happens to cut the stream; where two
 * answers are right, the case says a text that covers both.
 *
 * Peers wait for each other with arrive_*(), call_blocked() and joins.
 */
#ifndef BEHAVE_H
#define BEHAVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
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
#include <unistd.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <linux/sockios.h>

#include "ticks.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define KIB 1024
#define MIB (1024 * 1024)

enum path {
	PATH_RING,	/* the paired run must move ring bytes */
	PATH_TCP,	/* it must move none: why says the reason */
	PATH_ANY,	/* either: why says the reason */
};

struct bcase {
	const char *name;
	void (*run)(void);
	enum path path;
	bool once;		/* roles do not matter: no second run with them swapped */
	bool slow;		/* waits for timers: on IPv4 within one host only, and not while
				 * pairs are dropped, unless it is asked for by name or TEST_FULL
				 * is set
				 */
	bool pair;		/* about the pair itself: not while pairs are dropped */
	const char *why;
};

#define CASE(f)			{ .name = #f, .run = f }
#define CASE_ONCE(f)		{ .name = #f, .run = f, .once = true }
#define CASE_SLOW(f)		{ .name = #f, .run = f, .once = true, .slow = true }
#define CASE_PAIR(f)		{ .name = #f, .run = f, .pair = true }
#define CASE_TCP(f, w) \
	{ .name = #f, .run = f, .path = PATH_TCP, .once = true, .why = w }
#define CASE_ANY(f, w) \
	{ .name = #f, .run = f, .path = PATH_ANY, .once = true, .why = w }

/* What this run is. */
struct env {
	int family;		/* 4, 6, or 46: v4 client, v6 listener */
	bool netns;		/* client and server in two namespaces */
	bool swap;		/* a is the accepted side */
	bool paired;
	bool storm;		/* pairs are dropped all the time */
	unsigned int seed;
};
extern struct env env;

/* child.c: the transcript and the verdict */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void where(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
long say_ret(const char *what, long ret);
long say_ret_or(const char *what, long ret, int err, const char *why);
long say_bytes(const char *what, long ret, const void *buf);
void say_poll(const char *what, int revents);
const char *sig_name(int sig);

/* Calls EXPR and says it with its result. */
#define SAY(expr)	(where("%s", #expr), errno = 0, say_ret(#expr, (expr)))
/* As SAY, and the bytes that it left in BUF. */
#define SAY_BUF(expr, buf) (where("%s", #expr), errno = 0, say_bytes(#expr, (expr), buf))
/* As SAY; failing with ERR is a documented difference of a paired socket. */
#define SAY_OR(expr, err, why) (where("%s", #expr), say_ret_or(#expr, (expr), err, why))
/* Must succeed; part of the set-up, not of what is tested. */
#define MUST(expr) ({ __typeof__(expr) r_ = (expr); \
	if (r_ < 0) \
		fail("%s:%d: %s: %s", __FILE__, __LINE__, #expr, strerror(errno)); \
	r_; })

/* net.c: connections. a and b are the two ends; roles change with env.swap. */
struct conn {
	int a, b;
	int client, server;	/* the same two */
	uint64_t cookie[2];
	uint64_t ring_base;	/* ring bytes that the warm-up took */
};

typedef void (*prep_fn)(int fd, bool listener);

int side_socket(bool server, int type_flags);
void side_sysctl(bool server, const char *name, const char *value);
int listener_open(prep_fn prep, int backlog);
struct sockaddr_storage listener_addr(int fd, socklen_t *len);
void conn_open(struct conn *k);				/* connected, not warm */
void conn_open_with(struct conn *k, prep_fn prep);
void conn_adopt(struct conn *k, int client, int server);
void conn_warm(struct conn *k);				/* a byte or two each way */
void conn_start(struct conn *k);			/* open + warm */
void conn_start_with(struct conn *k, prep_fn prep);
void conn_proof(struct conn *k);			/* note the ring bytes so far */
void conn_end(struct conn *k);				/* proof, close both */
void prep_big_buffers(int fd, bool listener);

void arrive(int fd, int n);		/* until n bytes can be read */
void arrive_fin(int fd);
void arrive_err(int fd);		/* until HUP or ERR */
void arrive_state(int fd, int state);	/* TCP_ESTABLISHED, … */
int poll_now(int fd);
void nonblock(int fd, bool on);
void reset_on_close(int fd);

void fill(void *buf, size_t len, uint64_t pos);
/* A new buffer of the pattern from 0 on. Before the connection: what takes seconds leaves an
 * idle pair behind, whose first bytes go by TCP.
 */
void *filled(size_t len);
uint64_t sum(const void *buf, size_t len);
bool is_pattern(const void *buf, size_t len, uint64_t pos);
long send_pattern(int fd, size_t len, uint64_t *pos, int flags);
long send_until_eagain(int fd, uint64_t *pos, size_t limit);
long recv_pattern(int fd, size_t len, uint64_t *pos);	/* until len or EOF */
uint64_t rnd(uint64_t *state);

/* call.c: one system call in a thread of its own */
struct call {
	long nr, arg[6], ret;
	int err, tid;
	pthread_t thread;
};

void call_start(struct call *c, long nr, ...);	/* always six arguments */
void call_blocked(struct call *c);		/* until it sleeps in the call */
bool call_returned(const struct call *c);	/* and so call_end() does not wait */
long call_end(struct call *c);			/* its result, errno set */
#define CALL_RECV(c, fd, buf, len, flags) \
	call_start(c, SYS_recvfrom, (long)(fd), (long)(buf), (long)(len), (long)(flags), 0L, 0L)
#define CALL_SEND(c, fd, buf, len, flags) \
	call_start(c, SYS_sendto, (long)(fd), (long)(buf), (long)(len), (long)(flags), 0L, 0L)
/* Without a time limit. arm64 has the calls with a signal mask only. */
#ifdef SYS_poll
#define CALL_POLL(c, pfd) call_start(c, SYS_poll, (long)(pfd), 1L, -1L, 0L, 0L, 0L)
#define CALL_SELECT(c, n, set) call_start(c, SYS_select, (long)(n), (long)(set), 0L, 0L, 0L, 0L)
#else
#define CALL_POLL(c, pfd) call_start(c, SYS_ppoll, (long)(pfd), 1L, 0L, 0L, 0L, 0L)
#define CALL_SELECT(c, n, set) call_start(c, SYS_pselect6, (long)(n), (long)(set), 0L, 0L, 0L, 0L)
#endif
#define CALL_EPOLL(c, ep, ev) \
	call_start(c, SYS_epoll_pwait, (long)(ep), (long)(ev), 1L, -1L, 0L, 0L)

/* start.c: a connection that stays in SYN_SENT until slow_accept(): the listener's queue of
 * one is taken by another.
 */
struct slow {
	int l, c, first;
};
void slow_connect(struct slow *s);
void slow_accept(struct slow *s, struct conn *k);

/* fault.c: a page whose first access waits for uffd_release_bytes() */
struct uffd {
	int fd;
	char *page;
};
void uffd_open(struct uffd *u);
void uffd_caught(struct uffd *u);	/* until a thread waits in the page's fault */
void uffd_release_bytes(struct uffd *u, const void *content, size_t len);

/* uring.c: a receive by io_uring, and its result */
long uring_recv(int fd, void *buf, unsigned int len);

/* A thread that streams: sends or receives a pattern. */
struct stream {
	int fd;
	size_t len;
	uint64_t pos, rng;
	int mode;		/* STREAM_* */
	long done;
	int err;
	bool damaged;
	pthread_t thread;
};
enum {
	STREAM_SEND = 1,
	STREAM_RECV = 2,
	STREAM_PEEK = 4,	/* with RECV: peeks now and then */
	STREAM_OOB = 8,		/* with SEND: urgent bytes now and then */
	STREAM_BIG = 16,	/* chunks up to 256 KiB, else 8 KiB */
};
void stream_start(struct stream *s);
void stream_end(struct stream *s);

/* pairs.c: the module's own account, by generic netlink */
struct pair_info {
	bool found;
	uint32_t id;
	uint64_t tx_ring[2], tx_tcp[2], rings[2];
	int closed[2];
	int draining;		/* it is being un-paired */
};
int pairs_open(void);
int pairs_find(uint64_t cookie_a, uint64_t cookie_b, struct pair_info *info);
int pairs_drop(uint32_t id);			/* 0 or a negative error */
void pairs_drop_all(void);

/* child.c, for net.c */
void proof_record(bool found, uint64_t ring, uint64_t tcp);

extern const struct bcase io_cases[], ready_cases[], edge_cases[], wait_cases[], flags_cases[],
	urgent_cases[], cmsg_cases[], fault_cases[], share_cases[], shut_cases[], close_cases[],
	window_cases[], splice_cases[], uring_cases[], start_cases[], bulk_cases[], later_cases[],
	again_cases[], drop_cases[], early_cases[];

#endif
