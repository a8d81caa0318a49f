// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the kernel's own sockmap selftests: what they want of test_progs, and
 * nothing else of it. Prints "ok TEST/SUBTEST" or "not ok TEST/SUBTEST" for each.
 *
 *	sockmap [TEST...]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

static bool failed;
static const char *test;
static char subtest[256];

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

static bool wanted(int argc, char **argv, const char *name)
{
	if (argc == 1)
		return true;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	bool all = true;

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
	return !all;
}
