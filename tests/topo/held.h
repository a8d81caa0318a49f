/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HELD_H
#define HELD_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define PAGES	16	/* of a case, at most */

void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
#define check(ok, ...)	do { if (!(ok)) die(__VA_ARGS__); } while (0)

long ms(void);
void set_param(const char *name, const char *value);

/* A page that is not there: a task that touches it sleeps until fault_end(). */
void *fault_page(void);
void fault_wait(const void *page);	/* until a task does */
void fault_end(void *page);

/* The first ends a fault for a page that begins with @value: a task that writes to it sleeps
 * until the second.
 */
void fault_end_read(void *page, int value);
void fault_end_write(void *page);

/* A system call that may sleep, in a thread of its own. */
struct call {
	long (*run)(struct call *c);
	int fd, other;
	void *page;
	pthread_t thread;
	atomic_int tid;
	atomic_bool done;
	long ret;	/* what it returned; valid after call_end() */
	int err;
};

void call_start(struct call *c);
void call_end(struct call *c);

/* Whether it sleeps in a function of the module, with @function on its stack. */
bool call_is_inside(struct call *c, const char *function);
void call_wait_inside(struct call *c, const char *function);

void load(const char *params);
void unload_is_refused(const char *what);
void unload(void);	/* as often as it takes while a grace period ends */

/* Other architectures than x86 attach to no socket before calls from before load() have left. */
bool may_attach(void);
void wait_may_attach(void);

/* What the kernel logs from log_open() on. */
int log_open(void);
void log_wait(int fd, const char *text);

struct held_case {
	const char *name;
	void (*run)(void);
	bool bad_copy;	/* TCP may copy from a bad address, which KASAN reports and x86 catches */
};
extern const struct held_case held_cases[];	/* held_cases.c; ends with an empty one */

#endif
