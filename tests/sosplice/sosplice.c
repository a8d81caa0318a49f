// SPDX-License-Identifier: GPL-2.0
/* sosplice [NAME...]: runs the cases, or those named, each in a process of its own.
 * sosplice --hold: keeps splices, for unload.test, which ends them from outside.
 * sosplice --hold-getsockopt, --hold-udp: see literal_hold(), udp_hold().
 */
#include <sys/syscall.h>

#include "tls.h"

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
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		printf("skip %s: this kernel lacks it\n", c->name);
	} else if (WIFEXITED(status) && !WEXITSTATUS(status)) {
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

struct reader {
	pthread_t thread;
	int fd;
	int tid;	/* release/acquire */
};

static void *read_rest(void *arg)
{
	struct reader *r = arg;

	__atomic_store_n(&r->tid, gettid(), __ATOMIC_RELEASE);
	stream_read(r->fd, 1000, 1000);
	return NULL;
}

/* Returns when the reader is asleep in read(2). */
static void reader_start(struct reader *r, int fd)
{
	int tid;

	*r = (struct reader) { .fd = fd };
	check(!pthread_create(&r->thread, NULL, read_rest, r), "no thread");
	while (!(tid = __atomic_load_n(&r->tid, __ATOMIC_ACQUIRE)))
		sched_yield();
	check(wait_asleep(tid, SYS_read), "the reader has ended");
}

/* Says "ready" with splices both ways between two sockets and a third one on its own;
 * readers asleep on a socket that is source and sink, and on one that is a sink; a
 * writer that waits for room in its source; and kTLS, where there is any. After a line of
 * input all is as if the application had ended them.
 */
static int hold(void)
{
	struct reader both, sink;
	struct relay r, one, tls;
	const bool has_tls = tls_is_there();
	char line[16];

	alarm(CASE_SECONDS);
	relay_open(&r, AF_INET, AF_INET);
	pump_start(&r);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	relay_open(&one, AF_INET, AF_INET);
	splice_on(&one);
	if (has_tls) {
		tls_open(&tls, CLIENT | SERVER, TLS_1_3_VERSION);
		splice_on(&tls);
		splice_fds(tls.q, tls.p, 0, 0);
		stream_write(tls.c, 0, 1000);
		stream_read(tls.s, 0, 1000);
	}
	reader_start(&both, r.p);
	reader_start(&sink, one.q);
	printf("ready\n");
	fflush(stdout);
	check(fgets(line, sizeof(line), stdin), "no word");
	check(!so_error(r.p) && !so_error(r.q), "an error");
	check(socksplice_unsplice(r.p) && (errno == ENOTCONN || errno == ENOPROTOOPT),
	      "%s", strerror(errno));
	stream_write(r.c, 1000, 1000);
	stream_write(one.s, 1000, 1000);
	pthread_join(both.thread, NULL);
	pthread_join(sink.thread, NULL);
	stream_write(r.q, 1000, 1000);
	stream_read(r.s, 1000, 1000);
	if (has_tls) {
		stream_write(tls.c, 1000, 1000);
		stream_read(tls.p, 1000, 1000);
		stream_write(tls.q, 1000, 1000);
		stream_read(tls.s, 1000, 1000);
	}
	printf("fine\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct sock_case *groups[] = { call_cases, literal_cases, begin_cases, data_cases,
					     end_cases, bsd_cases, page_cases,
					     page_end_cases, forward_cases, udp_cases,
					     udp_race_cases, tls_cases, leg_cases,
					     tls_leg_cases };
	/* The last two groups are of paired sockets only. */
	const size_t n = sizeof(groups) / sizeof(groups[0]) - 2 * !getenv("PAIRED");
	const struct sock_case *c;
	size_t i;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "--hold"))
		return hold();
	if (argc == 2 && !strcmp(argv[1], "--hold-getsockopt")) {
		alarm(CASE_SECONDS);
		return literal_hold();
	}
	if (argc == 2 && !strcmp(argv[1], "--hold-udp")) {
		alarm(CASE_SECONDS);
		return udp_hold();
	}
	for (i = 0; i < n; i++)
		for (c = groups[i]; c->name; c++)
			if (wanted(c->name, argv + 1))
				run(c);
	return !!failed;
}
