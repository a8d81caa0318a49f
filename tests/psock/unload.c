// SPDX-License-Identifier: GPL-2.0
/*
 * unload MODULE.KO: rmmod while splice(2) on sockmap sockets is asleep or at
 * work. The module has to go, or to refuse: it never waits. Switched off, the feature
 * sends sleepers to the kernel's own function; bytes that nobody took meanwhile are still
 * there for the next load. Whatever else happens is in the kernel's log.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "uring.h"

static int module_fd;

static bool unload(void)
{
	return !syscall(SYS_delete_module, "socksplice", O_NONBLOCK);
}

/* rmmod, as often as it takes while calls are under way, or leave. */
static void unload_surely(void)
{
	long start = ms();

	while (!unload())
		check((errno == EAGAIN || errno == EBUSY) && ms() - start < 20000, "rmmod: %s",
		      strerror(errno));
}

static void load(void)
{
	check(!syscall(SYS_finit_module, module_fd, "splice=1", 0), "insmod: %s", strerror(errno));
}

/* Whether a thread of this process, a worker of io_uring among them, sleeps in
 * our module.
 */
static bool asleep_in_module(void)
{
	char path[300], stack[4096];
	bool found = false;
	struct dirent *d;
	DIR *tasks = opendir("/proc/self/task");

	check(tasks, "%s", strerror(errno));
	while (!found && (d = readdir(tasks))) {
		int fd, n;

		snprintf(path, sizeof(path), "/proc/self/task/%s/stack", d->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		n = read(fd, stack, sizeof(stack) - 1);
		close(fd);
		stack[n > 0 ? n : 0] = 0;
		found = strstr(stack, "[socksplice]");
	}
	closedir(tasks);
	return found;
}

/* Asleep in ours, of every kind, many times over. The end of file is what both
 * functions see.
 */
static void case_asleep(void)
{
	for (int round = 0; round < 4; round++) {
		struct sleeper s[KIND_MAX];
		struct flow f[KIND_MAX];
		int p[KIND_MAX][2];

		for (enum kind k = 0; k < KIND_MAX; k++) {
			flow_open(&f[k], k, round % 2 ? AF_INET6 : AF_INET);
			make_pipe(p[k], 0);
			sleeper_start(&s[k], f[k].rd, p[k][1]);
		}
		while (!asleep_in_module())
			sched_yield();
		check(!unload() && (errno == EAGAIN || errno == EBUSY), "rmmod: %s", strerror(errno));
		write_file(PARAM "splice", "0");
		unload_surely();
		for (enum kind k = 0; k < KIND_MAX; k++) {
			bool bytes = !through_psock(k);

			wait_asleep(s[k].tid);
			if (bytes)
				send_stream(f[k].wr, 0, 1000);
			else
				shutdown(f[k].peer, SHUT_WR);
			pthread_join(s[k].thread, NULL);
			check(s[k].ret == (bytes ? 1000 : 0), "%s: %zd %s", kind_names[k],
			      s[k].ret, strerror(s[k].err));
			close(p[k][0]);
			close(p[k][1]);
			flow_close(&f[k]);
		}
		load();
		transfer(KIND_PASS, AF_INET, 100000, 5000, 65536, 0);
	}
}

/* A worker of io_uring has no system call to enter again, so rmmod is refused. */
static void case_asleep_in_a_worker(void)
{
	struct uring u;
	struct flow f;
	int p[2], n;

	flow_open(&f, KIND_PASS, AF_INET);
	make_pipe(p, 0);
	uring_open(&u);
	uring_splice(&u, f.rd, p[1], 65536);
	while (!asleep_in_module())
		sched_yield();
	write_file(PARAM "splice", "0");
	check(!unload() && (errno == EAGAIN || errno == EBUSY), "rmmod: %s", strerror(errno));
	shutdown(f.wr, SHUT_WR);
	n = uring_wait(&u);
	check(n == 0, "%d", n);
	unload_surely();
	uring_close(&u);
	load();
	transfer(KIND_PASS, AF_INET, 100000, 5000, 65536, 0);
}

static atomic_bool enough;

/* A reader that polls and splices, module or not: what splice(2) does not see
 * in the meantime stays where it is.
 */
static void *traffic_run(void *arg)
{
	struct flow *f = arg;
	struct writer w;
	uint64_t pos = 0;
	int p[2];

	make_pipe(p, 0);
	set_nonblock(f->rd);
	while (!atomic_load(&enough)) {
		const size_t len = 100000;
		uint64_t end = pos + len;

		w = (struct writer){ .fd = f->wr, .pos = pos, .len = len, .chunk = 3000 };
		writer_go(&w);
		while (pos < end) {
			ssize_t n = splice(f->rd, NULL, p[1], NULL, end - pos, 0);

			check(n > 0 || (n < 0 && errno == EAGAIN), "%s: splice at %llu: %s",
			      kind_names[f->kind], (unsigned long long)pos,
			      n ? strerror(errno) : "end of file");
			if (n > 0) {
				drain_pipe(p[0], pos, n);
				pos += n;
			} else {
				sched_yield();
			}
		}
		pthread_join(w.thread, NULL);
	}
	return NULL;
}

static void case_at_work(void)
{
	static const enum kind kinds[] = { KIND_PASS, KIND_REDIR, KIND_MSG, KIND_HASH };
	enum { N = sizeof(kinds) / sizeof(kinds[0]) };
	struct flow f[N];
	pthread_t t[N];

	for (int i = 0; i < N; i++) {
		flow_open(&f[i], kinds[i], AF_INET);
		check(!pthread_create(&t[i], NULL, traffic_run, &f[i]), "thread");
	}
	for (int round = 0; round < 15; round++) {
		uint64_t calls = stat_get("psock_splice_calls");

		while (stat_get("psock_splice_calls") < calls + 50)
			sched_yield();
		unload_surely();
		load();
	}
	atomic_store(&enough, true);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
}

static const struct {
	const char *name;
	void (*fn)(void);
} cases[] = {
	{ "asleep", case_asleep },
	{ "asleep_in_a_worker", case_asleep_in_a_worker },
	{ "at_work", case_at_work },
};

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc != 2 || (module_fd = open(argv[1], O_RDONLY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "unload MODULE.KO\n");
		return 2;
	}
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			alarm(150);
			cases[i].fn();
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		printf("%s unload/%s%s\n", status ? "not ok" : "ok", cases[i].name, !status ? "" :
		       WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": hangs" : ": see above");
		fflush(stdout);
		failed |= status;
		/* for whatever comes next */
		if (access("/sys/module/socksplice", F_OK))
			load();
	}
	return failed ? 1 : 0;
}
