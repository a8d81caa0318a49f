// SPDX-License-Identifier: GPL-2.0
/*
 * Threads of the cases: one blocking system call, or one verified stream.
 */
#include "behave.h"

#include <sched.h>
#include <stdarg.h>

static void *call_run(void *arg)
{
	struct call *c = arg;

	__atomic_store_n(&c->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	errno = 0;
	c->ret = syscall(c->nr, c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5]);
	c->err = errno;
	return NULL;
}

void call_start(struct call *c, long nr, ...)
{
	va_list ap;

	memset(c, 0, sizeof(*c));
	c->nr = nr;
	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		c->arg[i] = va_arg(ap, long);
	va_end(ap);
	if (pthread_create(&c->thread, NULL, call_run, c))
		fail("no thread");
	while (!__atomic_load_n(&c->tid, __ATOMIC_ACQUIRE))
		sched_yield();
}

/* The kernel names the call a thread sleeps in, and says "running" of one that
 * does not sleep.
 */
void call_blocked(struct call *c)
{
	char path[64], line[64];

	where("waiting for system call %ld to block", c->nr);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", c->tid);
	for (;;) {
		int fd = open(path, O_RDONLY), n = -1;

		if (fd >= 0) {
			n = read(fd, line, sizeof(line) - 1);
			close(fd);
		}
		if (n <= 0)
			fail("system call %ld returned %ld (%s) instead of blocking", c->nr,
			     c->ret, strerror(c->err));
		line[n] = 0;
		if (line[0] != 'r' && atol(line) == c->nr)
			return;
		sched_yield();
	}
}

bool call_returned(const struct call *c)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d", c->tid);
	return access(path, F_OK) != 0;
}

long call_end(struct call *c)
{
	pthread_join(c->thread, NULL);
	errno = c->err;
	return c->ret;
}

static void stream_send(struct stream *s, char *buf, size_t max)
{
	size_t left = s->len;

	while (left) {
		size_t n = 1 + rnd(&s->rng) % max;
		int flags = MSG_NOSIGNAL;
		long r;

		if (n > left)
			n = left;
		if ((s->mode & STREAM_OOB) && rnd(&s->rng) % 16 == 0)
			flags |= MSG_OOB;
		fill(buf, n, s->pos);
		r = send(s->fd, buf, n, flags);
		if (r <= 0) {
			s->err = errno;
			return;
		}
		s->pos += r;
		s->done += r;
		left -= r;
	}
}

static void stream_recv(struct stream *s, char *buf, size_t max)
{
	for (;;) {
		size_t n = 1 + rnd(&s->rng) % max;
		int flags = 0;
		long r;

		if (s->len && s->len - s->done < n)
			n = s->len - s->done;
		if (!n)
			return;
		if ((s->mode & STREAM_PEEK) && rnd(&s->rng) % 4 == 0)
			flags = MSG_PEEK;
		r = recv(s->fd, buf, n, flags);
		if (r <= 0) {
			s->err = r ? errno : 0;
			return;
		}
		if (!is_pattern(buf, r, s->pos)) {
			s->damaged = true;
			return;
		}
		if (flags)
			continue;
		s->pos += r;
		s->done += r;
	}
}

static void *stream_run(void *arg)
{
	struct stream *s = arg;
	size_t max = s->mode & STREAM_BIG ? 256 * KIB : 8 * KIB;
	char *buf = malloc(max);

	s->rng = (s->rng + env.seed) * 2654435761u | 1;
	if (s->mode & STREAM_SEND)
		stream_send(s, buf, max);
	else
		stream_recv(s, buf, max);
	free(buf);
	return NULL;
}

void stream_start(struct stream *s)
{
	s->done = 0;
	s->err = 0;
	s->damaged = false;
	if (pthread_create(&s->thread, NULL, stream_run, s))
		fail("no thread");
}

void stream_end(struct stream *s)
{
	pthread_join(s->thread, NULL);
}
