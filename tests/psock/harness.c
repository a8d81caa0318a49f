// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

bool on_debug_kernel(void)
{
	const char *kernel = getenv("VM_KERNEL");

	return kernel && (!strcmp(kernel, "kasan") || !strcmp(kernel, "lockdep"));
}

size_t amount(size_t n)
{
	return on_debug_kernel() ? (n + 7) / 8 : n;
}

long ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void alive(void)
{
	alarm(120);
}

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	check(fd >= 0 && write(fd, text, strlen(text)) > 0, "%s: %s", path, strerror(errno));
	close(fd);
}

void set_timeo(int fd, long millis)
{
	struct timeval tv = { millis / 1000, millis % 1000 * 1000 };

	check(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), "%s", strerror(errno));
}

void set_nonblock(int fd)
{
	check(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "%s", strerror(errno));
}

void wait_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	check(poll(&pfd, 1, 10000) == 1, "nothing to read after 10 s");
}

void make_pipe(int p[2], int size)
{
	alive();
	check(!pipe2(p, O_CLOEXEC), "%s", strerror(errno));
	if (size)
		check(fcntl(p[1], F_SETPIPE_SZ, size) > 0, "%s", strerror(errno));
}

/* Waits until a task sleeps in the kernel, by the state that /proc shows. */
void wait_asleep(pid_t tid)
{
	char path[64], buf[512];
	int n, asleep = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	while (asleep < 20) {
		int fd = open(path, O_RDONLY);

		check(fd >= 0, "no task %d", tid);
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
		check(n > 0, "task %d is gone", tid);
		buf[n] = 0;
		asleep = strrchr(buf, ')')[2] == 'S' ? asleep + 1 : 0;
		sched_yield();
	}
}

void send_stream(int fd, uint64_t pos, size_t len)
{
	static __thread char buf[65536];

	while (len) {
		size_t n = len < sizeof(buf) ? len : sizeof(buf);
		ssize_t ret;

		stream_fill(SEED, pos, buf, n);
		ret = send(fd, buf, n, MSG_NOSIGNAL);
		/* a redirecting sender does not wait for the reader's memory */
		if (ret < 0 && errno == ENOMEM) {
			sched_yield();
			continue;
		}
		check(ret > 0, "send: %s", strerror(errno));
		pos += ret;
		len -= ret;
	}
}

/* Bytes of the stream that the reader has had, for writers with a window. */
atomic_ullong consumed;

/* Reads len bytes of the stream out of a pipe and checks them. */
void drain_pipe(int fd, uint64_t pos, size_t len)
{
	char buf[65536];

	while (len) {
		ssize_t n = read(fd, buf, len < sizeof(buf) ? len : sizeof(buf));

		check(n > 0, "pipe: %s", n ? strerror(errno) : "end of file");
		check(stream_check(SEED, pos, buf, n) == (size_t)n, "wrong byte at %llu of the stream",
		      (unsigned long long)(pos + stream_check(SEED, pos, buf, n)));
		pos += n;
		len -= n;
		atomic_store(&consumed, pos);
		alive();
	}
}

/* Splices len bytes of the stream from a blocking socket and checks them. */
void splice_stream(int fd, uint64_t pos, size_t len, size_t chunk, int pipe_size)
{
	int p[2];

	make_pipe(p, pipe_size);
	while (len) {
		ssize_t n = splice(fd, NULL, p[1], NULL, len < chunk ? len : chunk, 0);

		check(n > 0, "splice at %llu, %zu to go: %s", (unsigned long long)pos, len,
		      n ? strerror(errno) : "end of file");
		drain_pipe(p[0], pos, n);
		pos += n;
		len -= n;
	}
	close(p[0]);
	close(p[1]);
}

uint64_t psock_bytes(void)
{
	return stat_get("psock_splice_ref_bytes") + stat_get("psock_splice_copy_bytes");
}

bool through_psock(enum kind kind)
{
	return kind != KIND_TCP && kind != KIND_BASE;
}

uint32_t meminfo(int fd, int which)
{
	uint32_t mem[SK_MEMINFO_VARS];
	socklen_t len = sizeof(mem);

	check(!getsockopt(fd, SOL_SOCKET, SO_MEMINFO, mem, &len), "%s", strerror(errno));
	return mem[which];
}

bool uncharged(int fd)
{
	long start = ms();

	while (meminfo(fd, SK_MEMINFO_RMEM_ALLOC))
		if (ms() - start > 10000)
			return false;
	return true;
}

static bool writer_waits(const struct writer *w)
{
	uint64_t read = atomic_load(&consumed);

	if (w->drained)
		return read < w->pos / RECORD * RECORD;
	return w->window && w->pos - read > w->window;
}

static void *writer_run(void *arg)
{
	struct writer *w = arg;

	while (w->len) {
		size_t n = w->len < w->chunk ? w->len : w->chunk;

		while (writer_waits(w))
			sched_yield();
		send_stream(w->fd, w->pos, n);
		w->pos += n;
		w->len -= n;
	}
	return NULL;
}

void writer_go(struct writer *w)
{
	check(!pthread_create(&w->thread, NULL, writer_run, w), "thread");
}

/* A parser charges each record with the whole buffer that it is cut from. Bulk
 * data of small records overruns the receive buffer, and the kernel then loses
 * its way, with read(2) as well: the writer stays a few records ahead only.
 *
 * With a parser the kernel counts as read what is left of earlier packets. read(2) then takes
 * copied_seq past bytes that the parser waits for, and nothing wakes it again, without our module
 * too. So where read(2) takes part, the next bytes follow once all records are read.
 */
void writer_start(struct writer *w, const struct flow *f, size_t len, size_t chunk, bool reads)
{
	*w = (struct writer){ .fd = f->wr, .len = len, .chunk = chunk };
	if (f->kind == KIND_STRP || f->kind == KIND_STRP_REDIR) {
		w->window = 4000;
		w->chunk = chunk < 4000 ? chunk : 4000;
		w->drained = reads && f->kind == KIND_STRP;
	}
	atomic_store(&consumed, 0);
	writer_go(w);
}

/* len bytes through each kind, and what the counters and the socket's memory
 * accounting say afterwards.
 */
void transfer(enum kind kind, int family, size_t len, size_t send_chunk, size_t chunk,
	      int pipe_size)
{
	uint64_t before = psock_bytes();
	struct flow f;
	struct writer w;

	flow_open(&f, kind, family);
	if (kind == KIND_STRP || kind == KIND_STRP_REDIR)
		len = (len < 200000 ? len + RECORD - 1 : 200000) / RECORD * RECORD;
	writer_start(&w, &f, len, send_chunk, false);
	splice_stream(f.rd, 0, len, chunk, pipe_size);
	pthread_join(w.thread, NULL);
	if (through_psock(kind))
		check(psock_bytes() - before == len, "%s: %llu of %zu bytes came through here",
		      kind_names[kind], (unsigned long long)(psock_bytes() - before), len);
	check(uncharged(f.rd), "%s: %u bytes still charged",
	      kind_names[kind], meminfo(f.rd, SK_MEMINFO_RMEM_ALLOC));
	/* What TCP received has been counted as read. */
	if (kind == KIND_PASS || kind == KIND_HASH || kind == KIND_PULLED || kind == KIND_STRP) {
		int left = -1;

		flow_unmap(&f);
		check(!ioctl(f.rd, FIONREAD, &left) && !left, "%s: TCP counts %d unread bytes",
		      kind_names[kind], left);
		send_stream(f.wr, len, 5000);
		splice_stream(f.rd, len, 5000, 65536, 0);
	}
	close(f.wr);
	close(f.rd);
}

void transfer_kinds(int family, size_t len, size_t send_chunk, size_t chunk, int pipe_size)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		long start = ms();
		pid_t pid = fork();
		int status;

		/* a process each: a die() then names the kind */
		if (!pid) {
			alive();
			transfer(k, family, len, send_chunk, chunk, pipe_size);
			_exit(0);
		}
		alarm(0);	/* it has its own */
		waitpid(pid, &status, 0);
		alive();
		check(!status, "%s with %s", WIFSIGNALED(status) ? "killed" : "failed",
		      kind_names[k]);
		if (ms() - start > 5000)
			printf("# %s took %ld ms\n", kind_names[k], ms() - start);
	}
}

static void *reader_run(void *arg)
{
	struct reader *r = arg;

	splice_stream(r->fd, r->pos, r->len, 65536, 0);
	return NULL;
}

void reader_go(struct reader *r, int fd, uint64_t pos, size_t len)
{
	*r = (struct reader){ .fd = fd, .pos = pos, .len = len };
	check(!pthread_create(&r->thread, NULL, reader_run, r), "thread");
}

void expect_eof(int fd)
{
	int p[2];

	make_pipe(p, 0);
	for (int i = 0; i < 3; i++) {
		ssize_t n = splice(fd, NULL, p[1], NULL, 65536, 0);

		check(n == 0, "%zd %s", n, strerror(errno));
	}
	close(p[0]);
	close(p[1]);
}

static void *sleeper_run(void *arg)
{
	struct sleeper *s = arg;
	long start = ms();

	atomic_store(&s->tid, gettid());
	s->ret = splice(s->fd, NULL, s->pipe, NULL, 65536, 0);
	s->err = errno;
	s->took = ms() - start;
	return NULL;
}

void sleeper_start(struct sleeper *s, int fd, int pipe)
{
	*s = (struct sleeper){ .fd = fd, .pipe = pipe };
	check(!pthread_create(&s->thread, NULL, sleeper_run, s), "thread");
	while (!atomic_load(&s->tid))
		sched_yield();
	wait_asleep(s->tid);
}
