// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the kernel's own sockmap selftests: what they want of test_progs, and
 * nothing else of it. Prints "ok TEST/SUBTEST" or "not ok TEST/SUBTEST" for each.
 *
 *	sockmap [-s] [TEST...]
 *
 *	-s	their reads from TCP sockets become splice(2) to a pipe and a read from
 *		there; "# spliced N reads" says how many
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define X(name) void name(void);
#include "tests.h"
#undef X

static const struct {
	const char *name;
	void (*fn)(void);
} tests[] = {
#define X(name) { #name, name },
#include "tests.h"
#undef X
};

static bool splices, failed;
static const char *test;
static char subtest[256];
static atomic_int *spliced;

static void finish_subtest(void)
{
	if (subtest[0])
		printf("%s %s/%s\n", failed ? "not ok" : "ok", test, subtest);
	fflush(stdout);
	failed = false;
}

bool test__start_subtest(const char *name)
{
	finish_subtest();
	snprintf(subtest, sizeof(subtest), "%s", name);
	return true;
}

void test__fail(void)
{
	failed = true;
}

void test__skip(void)
{
}

struct netns_obj {
	int before;
};

struct netns_obj *netns_new(const char *name, bool enter)
{
	struct netns_obj *ns = malloc(sizeof(*ns));
	int sk;

	(void)name;
	(void)enter;
	ns->before = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (unshare(CLONE_NEWNET))
		return NULL;
	sk = socket(AF_INET, SOCK_DGRAM, 0);
	ioctl(sk, SIOCSIFFLAGS, &(struct ifreq){ .ifr_name = "lo", .ifr_flags = IFF_UP });
	close(sk);
	return ns;
}

void netns_free(struct netns_obj *ns)
{
	setns(ns->before, CLONE_NEWNET);
	close(ns->before);
	free(ns);
}

ssize_t __real_recv(int fd, void *buf, size_t len, int flags);

static bool is_tcp(int fd)
{
	int protocol = 0, listens = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
	       protocol == IPPROTO_TCP &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) && !listens;
}

/* A pipe for each call: what is left in one may not meet the next. */
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	int p[2], mode = fcntl(fd, F_GETFL), err;
	ssize_t n;

	if (!splices || !len || (flags & ~MSG_DONTWAIT) || !is_tcp(fd) || pipe(p))
		return __real_recv(fd, buf, len, flags);
	if (flags & MSG_DONTWAIT)
		fcntl(fd, F_SETFL, mode | O_NONBLOCK);
	n = splice(fd, NULL, p[1], NULL, len, 0);
	err = errno;
	fcntl(fd, F_SETFL, mode);
	if (n > 0 && read(p[0], buf, n) != n)
		abort();
	close(p[0]);
	close(p[1]);
	atomic_fetch_add(spliced, n > 0);
	errno = err;
	return n;
}

ssize_t __real_read(int fd, void *buf, size_t len);

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	return splices && is_tcp(fd) ? __wrap_recv(fd, buf, len, 0) : __real_read(fd, buf, len);
}

static bool wanted(int argc, char **argv, const char *name)
{
	if (optind == argc)
		return true;
	for (int i = optind; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	bool all = true;
	int opt;

	while ((opt = getopt(argc, argv, "s")) != -1)
		splices = opt == 's';
	spliced = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		int status;
		pid_t pid;

		test = tests[i].name;
		if (!wanted(argc, argv, test))
			continue;
		fflush(stdout);
		pid = fork();
		if (!pid) {
			alarm(150);
			tests[i].fn();
			finish_subtest();
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (status)
			printf("not ok %s: %s\n", test, strsignal(WTERMSIG(status)));
		all &= !status;
	}
	if (splices)
		printf("# spliced %d reads\n", atomic_load(spliced));
	return !all;
}
