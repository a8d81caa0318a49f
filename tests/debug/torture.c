// SPDX-License-Identifier: GPL-2.0
/*
 * torture [-t SECONDS] [-w WORKERS] [-s SEED] [-m MODULE.ko] [-f] [-o]
 *
 * Does to paired sockets, from many threads and processes at once, whatever the
 * system calls allow, so that a debug kernel finds what breaks. Each worker
 * makes connections to itself, over and over:
 *
 *   ordered	one writer and one reader per direction and others that pester;
 *		every byte has to arrive, once and in order
 *   chaos	nothing is forbidden: disconnect, TCP_REPAIR, resets, kill -9, …
 *   fault	send(2) and recv(2) block on userfaultfd pages while the peer goes
 *
 * Beside them others dump the pairs and counters by netlink, switch the module's
 * parameters, and with -m remove and load the module. With -f the workers ask
 * for the kernel's allocation failures (/proc/self/make-it-fail; tests/debug/run
 * sets the rest up). With -o only "ordered" runs.
 *
 * Timeouts on all sockets end every call, so a worker that stands still for a
 * minute is a failure. What there is to see is in the kernel's log.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"

struct shared *sh;
const char *module;
bool with_faults;
static bool only_ordered;
unsigned int seed = 1;
static __thread uint64_t rng;

uint32_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng >> 16;
}

uint32_t below(uint32_t n)
{
	return rnd() % n;
}

void reseed(uint64_t salt)
{
	rng = (seed * 0x9e3779b97f4a7c15ull) ^ (salt * 0xbf58476d1ce4e5b9ull) ^ 0x1234567;
}

void bad(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("# ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	fflush(stdout);
	atomic_fetch_add(&sh->bad, 1);
}

bool stopped(void)
{
	return atomic_load(&sh->stop);
}

int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -1;
	ret = write(fd, text, strlen(text)) < 0 ? -1 : 0;
	close(fd);
	return ret;
}

static void timeouts(int fd)
{
	struct timeval tv = { .tv_usec = 20000 + below(200000) };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

bool connection(int fd[2])
{
	bool v6 = below(2);
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr *a = v6 ? (void *)&a6 : (void *)&a4;
	socklen_t len = v6 ? sizeof(a6) : sizeof(a4);
	int l = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	fd[0] = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fd[1] = -1;
	if (l < 0 || fd[0] < 0)
		goto out;
	timeouts(l);
	timeouts(fd[0]);
	if (bind(l, a, len) || listen(l, 4) || getsockname(l, a, &len) ||
	    connect(fd[0], a, len))
		goto out;
	fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (fd[1] >= 0)
		timeouts(fd[1]);
out:
	if (l >= 0)
		close(l);
	if (fd[1] >= 0)
		return true;
	if (fd[0] >= 0)
		close(fd[0]);
	atomic_fetch_add(&sh->refused, 1);
	return false;
}

static void lo_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	ioctl(fd, SIOCSIFFLAGS, &ifr);
	close(fd);
}

static void one_round(uint64_t salt)
{
	if (with_faults)
		put("/proc/self/make-it-fail", "1");
	switch (only_ordered ? 0 : below(4)) {
	case 0: ordered(salt); break;
	case 1: fault(salt); break;
	default: chaos(salt); break;
	}
	if (with_faults)
		put("/proc/self/make-it-fail", "0");
	atomic_fetch_add(&sh->rounds, 1);
}

static void worker(int nr)
{
	uint64_t round;

	signal(SIGPIPE, SIG_IGN);
	for (round = 0; !stopped(); round++) {
		uint64_t salt = ((uint64_t)nr << 32) + round * 64;
		pid_t pid = -1;

		reseed(salt);
		/* now and then in a namespace of its own, which dies with it */
		if (!below(16))
			pid = fork();
		if (pid == 0) {
			if (!unshare(CLONE_NEWNET)) {
				lo_up();
				one_round(salt);
			}
			_exit(0);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
		else
			one_round(salt);
		atomic_fetch_add(&sh->beat[nr], 1);
	}
}

static pid_t spawn(void (*fn)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		fn();
		_exit(0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	unsigned int last[MAX_WORKERS] = { 0 }, still[MAX_WORKERS] = { 0 };
	int seconds = 60, workers = 4, opt, i, n = 0, stuck = 0;
	pid_t pid[MAX_WORKERS + 3];
	time_t end;

	while ((opt = getopt(argc, argv, "t:w:s:m:fo")) != -1) {
		switch (opt) {
		case 't': seconds = atoi(optarg); break;
		case 'w': workers = atoi(optarg); break;
		case 's': seed = atoi(optarg); break;
		case 'm': module = optarg; break;
		case 'f': with_faults = true; break;
		case 'o': only_ordered = true; break;
		default: return 2;
		}
	}
	if (workers < 1 || workers > MAX_WORKERS)
		return 2;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED || put(PARAMS "enroll_all", "1")) {
		printf("not ok torture: no %senroll_all\n", PARAMS);
		return 1;
	}
	for (i = 0; i < workers; i++) {
		pid[n] = fork();
		if (pid[n] == 0) {
			worker(i);
			_exit(0);
		}
		n++;
	}
	pid[n++] = spawn(dumper);
	if (!only_ordered)
		pid[n++] = spawn(toggler);
	if (module)
		pid[n++] = spawn(unloader);

	end = time(NULL) + seconds;
	while (time(NULL) < end && !stuck) {
		sleep(1);
		for (i = 0; i < workers; i++) {
			unsigned int beat = atomic_load(&sh->beat[i]);

			still[i] = beat == last[i] ? still[i] + 1 : 0;
			last[i] = beat;
			if (still[i] > 120) {
				bad("worker %d has stood still for two minutes", i);
				stuck = 1;
			}
		}
	}
	atomic_store(&sh->stop, true);
	if (stuck)
		put("/proc/sysrq-trigger", "w");
	for (i = 0; i < n && !stuck; i++)
		waitpid(pid[i], NULL, 0);

	printf("# rounds %lu, bytes %lu, connections refused %lu, splices without a page %lu, dumps %lu, unloads %lu; pairs %lu, ring bytes %lu\n",
	       atomic_load(&sh->rounds), atomic_load(&sh->bytes), atomic_load(&sh->refused),
	       atomic_load(&sh->no_page), atomic_load(&sh->dumps), atomic_load(&sh->unloads),
	       atomic_load(&sh->pairs), atomic_load(&sh->ring_bytes));
	if (!atomic_load(&sh->ring_bytes))
		bad("no byte went through a ring");
	if (module && !atomic_load(&sh->unloads))
		bad("the module was never unloaded");
	if (atomic_load(&sh->bad)) {
		printf("not ok torture: %lu complaints\n", atomic_load(&sh->bad));
		return 1;
	}
	printf("ok torture\n");
	return 0;
}
