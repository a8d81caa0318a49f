// SPDX-License-Identifier: GPL-2.0
/*
 * held MODULE.KO [CASE...]: rmmod while a task is in a function of the module for as long as
 * its user likes: in a page fault that userfaultfd holds, waiting for the lock of a socket
 * whose owner is in one, or asleep for a peer that says nothing. rmmod is refused at once, or
 * ends; it never hangs, and works once the task has left.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "held.h"

#define PAGE		65536	/* a multiple of any machine's */
#ifndef MAP_32BIT
#define MAP_32BIT	0	/* x86 alone has it, and 32-bit callers beside 64-bit ones */
#endif
#define CASE_SECONDS	120

static int module_fd, uffd;
static char *pages;
static int pages_used;

void die(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

long ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void set_param(const char *name, const char *value)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "/sys/module/socksplice/parameters/%s", name);
	fd = open(path, O_WRONLY);
	check(fd >= 0 && write(fd, value, strlen(value)) > 0, "%s: %s", path, strerror(errno));
	close(fd);
}

static void faults_init(void)
{
	struct uffdio_register reg = {
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_api api = { .api = UFFD_API };

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	check(uffd >= 0 && !ioctl(uffd, UFFDIO_API, &api), "userfaultfd: %s", strerror(errno));
	pages = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	check(pages != MAP_FAILED, "%s", strerror(errno));
	/* mmap(2) aligns to the machine's own page */
	pages += -(unsigned long)pages & (PAGE - 1);
	reg.range.start = (unsigned long)pages;
	reg.range.len = PAGES * PAGE;
	check(!ioctl(uffd, UFFDIO_REGISTER, &reg), "register: %s", strerror(errno));
}

void *fault_page(void)
{
	check(pages_used < PAGES, "out of pages");
	return pages + PAGE * pages_used++;
}

void fault_wait(const void *page)
{
	struct uffd_msg msg;

	check(read(uffd, &msg, sizeof(msg)) == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT &&
	      (msg.arg.pagefault.address & -PAGE) == (unsigned long)page, "another fault");
}

void fault_end(void *page)
{
	struct uffdio_zeropage zero = { .range = { (unsigned long)page, PAGE } };

	check(!ioctl(uffd, UFFDIO_ZEROPAGE, &zero), "zeropage: %s", strerror(errno));
}

void fault_end_read(void *page, int value)
{
	static char from[PAGE] __attribute__((aligned(PAGE)));
	struct uffdio_copy copy = {
		.dst = (unsigned long)page, .src = (unsigned long)from, .len = PAGE,
		.mode = UFFDIO_COPY_MODE_WP,
	};

	memcpy(from, &value, sizeof(value));
	check(!ioctl(uffd, UFFDIO_COPY, &copy), "copy: %s", strerror(errno));
}

void fault_end_write(void *page)
{
	struct uffdio_writeprotect wp = { .range = { (unsigned long)page, PAGE } };

	check(!ioctl(uffd, UFFDIO_WRITEPROTECT, &wp), "writeprotect: %s", strerror(errno));
}

static void *call_run(void *arg)
{
	struct call *c = arg;

	atomic_store(&c->tid, (int)syscall(SYS_gettid));
	errno = 0;
	c->ret = c->run(c);
	c->err = errno;
	atomic_store(&c->done, true);
	return NULL;
}

void call_start(struct call *c)
{
	check(!pthread_create(&c->thread, NULL, call_run, c), "thread");
}

void call_end(struct call *c)
{
	pthread_join(c->thread, NULL);
}

bool call_is_inside(struct call *c, const char *function)
{
	char path[100], stack[4096] = "";
	int fd, n, tid = atomic_load(&c->tid);

	if (!tid)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stack", tid);
	fd = open(path, O_RDONLY);
	check(fd >= 0, "%s: %s", path, strerror(errno));
	n = read(fd, stack, sizeof(stack) - 1);
	close(fd);
	stack[n > 0 ? n : 0] = 0;
	return strstr(stack, "[socksplice]") && strstr(stack, function);
}

void call_wait_inside(struct call *c, const char *function)
{
	long start = ms();

	while (!call_is_inside(c, function)) {
		check(!atomic_load(&c->done), "the call did not wait: %ld, %s", c->ret,
		      strerror(c->err));
		check(ms() - start < 20000, "the call does not sleep in %s", function);
		sched_yield();
	}
}

/* By a process of its own: should it hang, this one ends its case, and with it the fault. */
static int rmmod(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(syscall(SYS_delete_module, "socksplice", O_NONBLOCK) ? errno : 0);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "rmmod");
	return WEXITSTATUS(status);
}

void unload_is_refused(const char *what)
{
	int err = rmmod();

	check(err == EAGAIN || err == EBUSY, "rmmod during %s: %s", what,
	      err ? strerror(err) : "it went");
}

void unload(void)
{
	long start = ms();
	int err;

	/* ENOENT: one that hung in a case before has ended since. */
	while ((err = rmmod()) && err != ENOENT) {
		check(err == EAGAIN || err == EBUSY, "rmmod: %s", strerror(err));
		check(ms() - start < 30000, "the module is still in use");
		usleep(20000);
	}
}

void load(const char *params)
{
	check(!syscall(SYS_finit_module, module_fd, params, 0), "insmod: %s", strerror(errno));
}

bool may_attach(void)
{
	return !system("socksplice feature show | grep -q '^ *splice_hook: *installed'");
}

void wait_may_attach(void)
{
	long start = ms();

	while (!may_attach())
		check(ms() - start < 60000, "the module attaches to no socket");
}

int log_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	check(fd >= 0 && lseek(fd, 0, SEEK_END) >= 0, "/dev/kmsg: %s", strerror(errno));
	return fd;
}

void log_wait(int fd, const char *text)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char line[8192];
	int n;

	do {
		check(poll(&p, 1, 60000) == 1, "the log does not say: %s", text);
		n = read(fd, line, sizeof(line) - 1);
		line[n > 0 ? n : 0] = 0;
	} while (!strstr(line, text));
	close(fd);
}

static bool run(const struct held_case *c)
{
	int status;
	pid_t pid;

	unload();
	load("enroll_all=1 so_splice=1");
	wait_may_attach();
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(CASE_SECONDS);
		faults_init();
		c->run();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	/* What the case left behind may still hold it. */
	unload();
	load("");
	printf("%s held/%s%s\n", status ? "not ok" : "ok", c->name, !status ? "" :
	       WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": hangs" : ": see above");
	fflush(stdout);
	return !status;
}

int main(int argc, char **argv)
{
	const char *kernel = getenv("VM_KERNEL");
	const bool kasan = kernel && !strcmp(kernel, "kasan");
	const struct held_case *c;
	bool good = true;
	int i;

	if (argc < 2 || (module_fd = open(argv[1], O_RDONLY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "held MODULE.KO [CASE...]\n");
		return 2;
	}
	for (c = held_cases; c->name; c++) {
		for (i = 2; i < argc && strcmp(argv[i], c->name); i++)
			;
		if (argc > 2 && i == argc)
			continue;
		if (kasan && c->bad_copy)
			printf("skip held/%s: KASAN reports a copy whose failure x86 catches\n", c->name);
		else
			good &= run(c);
	}
	return !good;
}
