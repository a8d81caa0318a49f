// SPDX-License-Identifier: GPL-2.0
/*
 * psock stream|drain WAY SIZE SECONDS [CPU CPU [FILE [inside]]]: how fast a reader takes what a
 * verdict program redirects to its socket, over loopback, by calls for SIZE bytes.
 *
 *	writer -> socket with the program -> (redirected) reader's socket
 *
 *	stream	a process writes while the reader reads
 *	drain	the reader's own rate: it fills its queue itself, and what it takes to
 *		empty it again is counted
 *
 *	read	read(2)
 *	splice	splice(2) to a pipe, and read(2) from the pipe
 *	null	splice(2) to a pipe, and on to /dev/null
 *	read-check, splice-check
 *		likewise, and the reader looks at every byte
 *
 * CPU: the writer's and the reader's, else the scheduler's choice. FILE is told the
 * number of the reader's descriptor before it is used: bench/uml's driver. Which does
 * "inside" all that the reader would do by system calls. Prints
 *
 *	BYTES SECONDS CPU REF COPY
 *
 * CPU is the reader's CPU time in seconds; REF and COPY are the bytes that splice(2)
 * passed by reference and by copy, by the module's count, uncounted ones with them.
 *
 * Nothing holds back a writer whose bytes are redirected, so it looks where the
 * reader is; and the reader's buffer holds all that is on the way, since the
 * kernel looks at a full one again only after a clock tick. What goes on in the
 * first tenth of a second is not counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../tests/psock/lab.h"

#define CHUNK	(128 * 1024)	/* of the file that is written again and again */
#define PERIOD	10		/* its bytes are 0 to 9, again and again */
#define AHEAD	(1 << 20)
#define BURST	(4 << 20)
#define BUFFER	(8 << 20)
#define WARM_UP	0.1
#define LOOK	(2 << 20)	/* bytes between two looks at the clock: a system call in places */

static const struct way {
	const char *name;
	bool splice, null, check;
} ways[] = {
	{ .name = "read" },
	{ .name = "splice", .splice = true },
	{ .name = "null", .splice = true, .null = true },
	{ .name = "read-check", .check = true },
	{ .name = "splice-check", .splice = true, .check = true },
};

/* Of both processes. */
static struct shared {
	atomic_ullong taken;	/* by the reader, who alone writes it */
	atomic_bool stop;	/* the reader's, to the writer */
} *shared;

static struct flow flow;

/* The reader's. */
static struct {
	const struct way *way;
	size_t size;
	char *buf;
	int pipe[2], null;
	int driver;		/* 0: it makes system calls */
	unsigned long long bytes;
} reader;

/* What is printed. */
static unsigned long long bytes;
static double took, cpu;

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void pin(const char *to)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(to), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("CPU %s: %s", to, strerror(errno));
}

static void tell(const char *path, bool inside)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || dprintf(fd, "hook %d", flow.rd) < 0)
		die("%s: %s", path, strerror(errno));
	if (inside)
		reader.driver = fd;
	else
		close(fd);
}

static int data_file(void)
{
	int file = memfd_create("data", MFD_CLOEXEC);
	char buf[CHUNK];

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = i % PERIOD;
	if (file < 0 || write(file, buf, sizeof(buf)) != sizeof(buf))
		die("memfd: %s", strerror(errno));
	return file;
}

/* Part of the file, from @off on, which it moves; how much. */
static size_t put(int file, off_t *off)
{
	ssize_t n = sendfile(flow.wr, file, off, CHUNK - *off);

	if (n < 0 && errno != EAGAIN)
		die("sendfile: %s", strerror(errno));
	*off %= CHUNK;
	return n > 0 ? n : 0;
}

static void writer(void)
{
	unsigned long long sent = 0;
	int file = data_file();
	off_t off = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!atomic_load(&shared->stop)) {
		if (sent - atomic_load(&shared->taken) > AHEAD)
			usleep(50);
		else
			sent += put(file, &off);
	}
	/* the reader may be asleep */
	shutdown(flow.peer, SHUT_WR);
	exit(0);
}

/* It has said why. */
static void writer_died(int sig)
{
	(void)sig;
	if (!atomic_load(&shared->stop))
		_exit(1);
}

static void check(size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (reader.buf[i] != (char)((reader.bytes + i) % CHUNK % PERIOD))
			die("a wrong byte at %llu", reader.bytes + i);
}

/* One turn of the reader. */
static void take(void)
{
	const struct way *way = reader.way;
	ssize_t n, left, m;

	if (!way->splice) {
		n = read(flow.rd, reader.buf, reader.size);
	} else {
		n = splice(flow.rd, NULL, reader.pipe[1], NULL, reader.size, 0);
		for (left = n; left > 0; left -= m) {
			m = way->null ? splice(reader.pipe[0], NULL, reader.null, NULL, left, 0) :
					read(reader.pipe[0], reader.buf + n - left, left);
			if (m <= 0)
				die("pipe: %s", strerror(errno));
		}
	}
	if (!n)
		die("end of file");
	if (n < 0 && errno != EAGAIN)
		die("%s: %s", way->name, strerror(errno));
	if (n > 0 && way->check)
		check(n);
	reader.bytes += n > 0 ? n : 0;
	atomic_store(&shared->taken, reader.bytes);
}

/* Turns until @count bytes more, at least, are there. */
static void take_all(unsigned long long count)
{
	const struct way *way = reader.way;
	unsigned long long end = reader.bytes + count;

	if (!reader.driver) {
		while (reader.bytes < end)
			take();
		return;
	}
	if (dprintf(reader.driver, "take %d %d %d %lu %zu %llu %lu", flow.rd,
		    way->splice ? reader.pipe[0] : -1, way->null ? reader.null : -1,
		    (unsigned long)reader.buf, reader.size, count,
		    (unsigned long)&shared->taken) < 0)
		die("%s: %s", way->name, strerror(errno));
	reader.bytes = atomic_load(&shared->taken);
}

static void stream(double seconds, char **cpus)
{
	double start, began = 0, t;
	pid_t pid;

	/* A process, since User Mode Linux runs one thread of each at a time; and born
	 * on its CPU, which settles where the host runs it.
	 */
	if (cpus)
		pin(cpus[0]);
	signal(SIGCHLD, writer_died);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid)
		writer();
	if (cpus)
		pin(cpus[1]);
	start = now(CLOCK_MONOTONIC);
	while (!took) {
		take_all(LOOK);
		t = now(CLOCK_MONOTONIC);
		if (!began && t - start >= WARM_UP) {
			began = t;
			cpu = now(CLOCK_PROCESS_CPUTIME_ID);
			bytes = reader.bytes;
		} else if (began && t - began >= seconds) {
			took = t - began;
			cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
			bytes = reader.bytes - bytes;
		}
	}
	atomic_store(&shared->stop, true);
	waitpid(pid, NULL, 0);
}

/* Says where the rest of a burst is: with the writer's TCP, with TCP before the program, or
 * redirected and not yet with the reader. SO_MEMINFO's first is the memory of what was received.
 */
static void stands_still(int queued, int count)
{
	__u32 mem[2][SK_MEMINFO_VARS] = { 0 };
	int unacked = 0, unsent = 0, before = 0;
	socklen_t len = sizeof(mem[0]);

	ioctl(flow.wr, SIOCOUTQ, &unacked);
	ioctl(flow.wr, SIOCOUTQNSD, &unsent);
	ioctl(flow.via, FIONREAD, &before);
	getsockopt(flow.via, SOL_SOCKET, SO_MEMINFO, mem[0], &len);
	len = sizeof(mem[1]);
	getsockopt(flow.rd, SOL_SOCKET, SO_MEMINFO, mem[1], &len);
	die("%d of %d bytes are in the queue; %d unacknowledged, %d of them unsent, %d before the "
	    "program; memory %u of %u there, %u of %u at the reader", queued, count, unacked, unsent,
	    before, mem[0][SK_MEMINFO_RMEM_ALLOC], mem[0][SK_MEMINFO_RCVBUF],
	    mem[1][SK_MEMINFO_RMEM_ALLOC], mem[1][SK_MEMINFO_RCVBUF]);
}

/* Until all of a burst is in the reader's queue. */
static void wait_queued(int count)
{
	double start = now(CLOCK_MONOTONIC);
	int n;

	while (!ioctl(flow.rd, FIONREAD, &n) && n < count) {
		if (now(CLOCK_MONOTONIC) - start > 10)
			stands_still(n, count);
		usleep(100);
	}
}

static void drain(double seconds)
{
	double start = now(CLOCK_MONOTONIC), t, c;
	int file = data_file();
	off_t off = 0;

	do {
		size_t sent = 0;

		while (sent < BURST)
			sent += put(file, &off);
		wait_queued(sent);
		t = now(CLOCK_MONOTONIC);
		c = now(CLOCK_PROCESS_CPUTIME_ID);
		take_all(sent);
		if (t - start < WARM_UP)
			continue;
		took += now(CLOCK_MONOTONIC) - t;
		cpu += now(CLOCK_PROCESS_CPUTIME_ID) - c;
		bytes += sent;
	} while (!took || now(CLOCK_MONOTONIC) - start < WARM_UP + seconds);
}

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 4 ? atof(argv[4]) : 0;
	char **cpus = argc > 6 ? argv + 5 : NULL;
	unsigned long long ref, copy;
	int buffer = BUFFER;

	if (argc > 4) {
		reader.way = find_way(argv[2]);
		reader.size = strtoul(argv[3], NULL, 0);
	}
	if (!reader.way || !reader.size || reader.size > BUFFER || seconds <= 0 || argc == 6 ||
	    argc > 9 || (argc == 9 && (strcmp(argv[8], "inside") || reader.way->check)) ||
	    (strcmp(argv[1], "stream") && strcmp(argv[1], "drain"))) {
		fprintf(stderr, "see the head of bench/psock.c\n");
		return 2;
	}
	reader.null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	reader.buf = malloc(reader.size);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || reader.null < 0 || !reader.buf)
		die("%s", strerror(errno));
	if (pipe2(reader.pipe, O_CLOEXEC) || fcntl(reader.pipe[1], F_SETPIPE_SZ, 1 << 20) < 0)
		die("pipe: %s", strerror(errno));
	memset(reader.buf, 0, reader.size);
	flow_open(&flow, KIND_REDIR, AF_INET);
	if (setsockopt(flow.rd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)))
		die("SO_RCVBUFFORCE: %s", strerror(errno));
	if (argc > 7)
		tell(argv[7], argc > 8);
	ref = stat_get("psock_splice_ref_bytes");
	copy = stat_get("psock_splice_copy_bytes");
	if (!strcmp(argv[1], "drain")) {
		if (cpus)
			pin(cpus[1]);
		drain(seconds);
	} else {
		stream(seconds, cpus);
	}
	ref = stat_get("psock_splice_ref_bytes") - ref;
	copy = stat_get("psock_splice_copy_bytes") - copy;
	printf("%llu %.6f %.6f %llu %llu\n", bytes, took, cpu, ref, copy);
	return 0;
}
