// SPDX-License-Identifier: GPL-2.0
/* sosplice [NAME...]: runs the cases, or those named, each in a process of its own.
 * sosplice --hold: keeps splices, for unload.test, which ends them from outside.
 */
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

static void *read_rest(void *arg)
{
	stream_read(*(int *)arg, 1000, 1000);
	return NULL;
}

/* Says "ready" with splices both ways, a reader that waits for one to end and a writer
 * that waits for room in its source. After a line of input all is as if the application
 * had ended them.
 */
static int hold(void)
{
	pthread_t reader;
	struct relay r;
	char line[16];

	alarm(CASE_SECONDS);
	relay_open(&r, AF_INET, AF_INET);
	pump_start(&r);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	check(!pthread_create(&reader, NULL, read_rest, &r.p), "no thread");
	printf("ready\n");
	fflush(stdout);
	check(fgets(line, sizeof(line), stdin), "no word");
	check(!so_error(r.p) && !so_error(r.q), "an error");
	check(socksplice_unsplice(r.p) && (errno == ENOTCONN || errno == ENOPROTOOPT),
	      "%s", strerror(errno));
	stream_write(r.c, 1000, 1000);
	pthread_join(reader, NULL);
	stream_write(r.q, 1000, 1000);
	stream_read(r.s, 1000, 1000);
	printf("fine\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct sock_case *groups[] = { call_cases, data_cases, end_cases };
	const struct sock_case *c;
	size_t i;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "--hold"))
		return hold();
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (c = groups[i]; c->name; c++)
			if (wanted(c->name, argv + 1))
				run(c);
	return !!failed;
}
