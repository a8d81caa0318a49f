// SPDX-License-Identifier: GPL-2.0
/*
 * psock [-l] [CASE...]: splice(2) on sockmap sockets. Runs all cases, or those
 * whose name begins with an argument, each in a process of its own; prints TAP
 * lines and fails if one fails. With the module loaded, what a plain kernel does is
 * looked at only by its full name.
 *
 * Wherever bytes come out of a sockmap's queue, the module's counters have to
 * say so: a case that passed by way of TCP's own queue would prove nothing.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "harness.h"

static const struct {
	const char *name;
	void (*fn)(void);
	bool stock;
} cases[] = {
#define X(name) { #name, case_##name, false },
	CASES(X)
#undef X
	{ "stock_loses", case_stock_loses, true },
};

static int run_case(unsigned int i)
{
	long start = ms();
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alive();
		cases[i].fn();
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (!status)
		printf("ok %s (%.1f s)\n", cases[i].name, (ms() - start) / 1000.0);
	else if (WIFSIGNALED(status))
		printf("not ok %s: %s\n", cases[i].name,
		       WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
	else
		printf("not ok %s: see above\n", cases[i].name);
	fflush(stdout);
	return !!status;
}

int main(int argc, char **argv)
{
	bool loaded = !access("/sys/module/socksplice", F_OK);
	int failed = 0;

	if (argc < 2 || strcmp(argv[1], "-l"))
		flow_warm_up();
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool wanted = argc < 2, named = false;

		if (argc > 1 && !strcmp(argv[1], "-l")) {
			puts(cases[i].name);
			continue;
		}
		for (int a = 1; a < argc; a++) {
			wanted |= !strncmp(cases[i].name, argv[a], strlen(argv[a]));
			named |= !strcmp(cases[i].name, argv[a]);
		}
		if (wanted && (named || cases[i].stock != loaded))
			failed += run_case(i);
	}
	return failed ? 1 : 0;
}
