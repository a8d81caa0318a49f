// SPDX-License-Identifier: GPL-2.0
/* sosplice [NAME...]: runs the cases, or those named, each in a process of its own. */
#include "sosplice.h"

#define CASE_SECONDS	60

static int failed;

static void run(const struct sock_case *c)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(CASE_SECONDS);
		c->run();
		exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && !WEXITSTATUS(status)) {
		printf("ok %s\n", c->name);
	} else {
		printf("not ok %s: %s\n", c->name, WIFSIGNALED(status) &&
		       WTERMSIG(status) == SIGALRM ? "hangs" : "see above");
		failed++;
	}
}

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const struct sock_case *groups[] = { call_cases, data_cases, end_cases };
	const struct sock_case *c;
	size_t i;

	(void)argc;
	signal(SIGPIPE, SIG_IGN);
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (c = groups[i]; c->name; c++)
			if (wanted(c->name, argv + 1))
				run(c);
	return !!failed;
}
