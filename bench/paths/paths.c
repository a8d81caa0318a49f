// SPDX-License-Identifier: GPL-2.0
/*
 * One path through the sockets of a connection, again and again, for who counts its
 * instructions (plugin.c): mark_on() and mark_off() stand around what counts.
 *
 *	paths tcp|unix PATH BYTES COUNT
 *
 * Both ends of the connection are in this process, or in it and a child. Prints how many
 * times the path was taken. Everything is to run on one CPU.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* At addresses that no other program has: see the linker's options in bench/paths/run. */
#define MARK	__attribute__((noinline, noipa, section(".marks")))

MARK void mark_on(void) { __asm__ volatile("" ::: "memory"); }
MARK void mark_off(void) { __asm__ volatile("" ::: "memory"); }
MARK void mark_done(void) { __asm__ volatile("" ::: "memory"); }

#define MAX_BYTES	(1 << 16)
#define BATCH_BYTES	(1 << 14)	/* sent before any is read: fits into a ring, a window */

static char buf[MAX_BYTES];

static void send_one(int fd, size_t len)
{
	if (send(fd, buf, len, 0) != (ssize_t)len)
		err(1, "send");
}

static void recv_one(int fd, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, buf, len, 0);

		if (n <= 0)
			err(1, "recv");
		len -= n;
	}
}

static unsigned int batch_of(size_t len)
{
	unsigned int n = BATCH_BYTES / len;

	return n < 1 ? 1 : n > 16 ? 16 : n;
}

/* A message to a reader that is not there; or its reading. */
static unsigned int batches(int a, int b, size_t len, unsigned int count, bool sends)
{
	unsigned int done = 0, batch = batch_of(len);

	for (; done < count; done += batch) {
		if (sends)
			mark_on();
		for (unsigned int i = 0; i < batch; i++)
			send_one(a, len);
		if (sends)
			mark_off();
		else
			mark_on();
		for (unsigned int i = 0; i < batch; i++)
			recv_one(b, len);
		if (!sends)
			mark_off();
	}
	return done;
}

static unsigned int path_send(int a, int b, size_t len, unsigned int count)
{
	return batches(a, b, len, count, true);
}

static unsigned int path_recv(int a, int b, size_t len, unsigned int count)
{
	return batches(a, b, len, count, false);
}

static unsigned int path_recv_nothing(int a, int b, size_t len, unsigned int count)
{
	(void)a;
	mark_on();
	for (unsigned int i = 0; i < count; i++)
		if (recv(b, buf, len, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
			err(1, "recv of nothing");
	mark_off();
	return count;
}

static unsigned int polls(int b, unsigned int count, short expected)
{
	struct pollfd p = { .fd = b, .events = POLLIN };

	mark_on();
	for (unsigned int i = 0; i < count; i++)
		if (poll(&p, 1, 0) < 0 || (p.revents & POLLIN) != expected)
			err(1, "poll");
	mark_off();
	return count;
}

static unsigned int path_poll_nothing(int a, int b, size_t len, unsigned int count)
{
	(void)a;
	(void)len;
	return polls(b, count, 0);
}

static unsigned int path_poll_ready(int a, int b, size_t len, unsigned int count)
{
	send_one(a, len);
	return polls(b, count, POLLIN);
}

/* A child does @serve with the other end until that is at its end. */
static void with_child(int a, int b, void (*serve)(int fd, size_t len), size_t len)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid) {
		close(b);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(a);
	serve(b, len);
	_exit(0);
}

static void echo(int fd, size_t len)
{
	for (;;) {
		size_t left = len;

		while (left) {
			ssize_t n = recv(fd, buf, left, 0);

			if (n <= 0)
				return;
			left -= n;
		}
		send_one(fd, len);
	}
}

static unsigned int path_rr(int a, int b, size_t len, unsigned int count)
{
	with_child(a, b, echo, len);
	for (unsigned int i = 0; i < count + 16; i++) {
		if (i == 16)
			mark_on();
		send_one(a, len);
		recv_one(a, len);
	}
	mark_off();
	return count;
}

static void wait_for(int epoll)
{
	struct epoll_event e;

	if (epoll_wait(epoll, &e, 1, -1) != 1)
		err(1, "epoll_wait");
}

static int epoll_of(int fd, uint32_t events)
{
	struct epoll_event e = { .events = events };
	int epoll = epoll_create1(0);

	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e))
		err(1, "epoll");
	return epoll;
}

static void echo_epoll(int fd, size_t len)
{
	int epoll = epoll_of(fd, EPOLLIN);
	size_t got = 0;

	for (;;) {
		ssize_t n;

		wait_for(epoll);
		n = recv(fd, buf, len, MSG_DONTWAIT);
		if (n <= 0)
			return;
		got += n;
		if (got == len) {
			send_one(fd, len);
			got = 0;
		}
	}
}

/* As event loops do: wait for the socket, read what is there without blocking. */
static unsigned int path_rr_epoll(int a, int b, size_t len, unsigned int count)
{
	int epoll;

	with_child(a, b, echo_epoll, len);
	epoll = epoll_of(a, EPOLLIN);
	for (unsigned int i = 0; i < count + 16; i++) {
		size_t got = 0;

		if (i == 16)
			mark_on();
		send_one(a, len);
		while (got < len) {
			ssize_t n;

			wait_for(epoll);
			n = recv(a, buf, len - got, MSG_DONTWAIT);
			if (n <= 0)
				err(1, "recv");
			got += n;
		}
	}
	mark_off();
	return count;
}

static void swallow(int fd, size_t len)
{
	(void)len;
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	send_one(fd, 1);
}

/* Sends one after the other to a reader beside it; the last one is read when it ends. */
static unsigned int path_stream(int a, int b, size_t len, unsigned int count)
{
	with_child(a, b, swallow, len);
	for (unsigned int i = 0; i < 64; i++)
		send_one(a, len);
	mark_on();
	for (unsigned int i = 0; i < count; i++)
		send_one(a, len);
	if (shutdown(a, SHUT_WR))
		err(1, "shutdown");
	recv_one(a, 1);
	mark_off();
	return count;
}

static void swallow_epoll(int fd, size_t len)
{
	int epoll = epoll_of(fd, EPOLLIN);
	ssize_t n;

	(void)len;
	do {
		wait_for(epoll);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	send_one(fd, 1);
}

/* The same by two event loops: a sender that finds no room asks epoll for it. */
static unsigned int path_stream_epoll(int a, int b, size_t len, unsigned int count)
{
	int epoll;

	with_child(a, b, swallow_epoll, len);
	epoll = epoll_of(a, EPOLLOUT);
	for (unsigned int i = 0; i < count + 64; i++) {
		size_t sent = 0;

		if (i == 64)
			mark_on();
		while (sent < len) {
			ssize_t n = send(a, buf, len - sent, MSG_DONTWAIT);

			if (n > 0)
				sent += n;
			else if (errno == EAGAIN)
				wait_for(epoll);
			else
				err(1, "send");
		}
	}
	if (shutdown(a, SHUT_WR))
		err(1, "shutdown");
	recv_one(a, 1);
	mark_off();
	return count;
}

static const struct path {
	const char *name;
	unsigned int (*run)(int a, int b, size_t len, unsigned int count);
} paths[] = {
	{ "send", path_send }, { "recv", path_recv }, { "recv-nothing", path_recv_nothing },
	{ "poll-nothing", path_poll_nothing }, { "poll-ready", path_poll_ready },
	{ "rr", path_rr }, { "rr-epoll", path_rr_epoll }, { "stream", path_stream },
	{ "stream-epoll", path_stream_epoll },
};

static void connect_tcp(int fd[2])
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(to);
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (l < 0 || fd[0] < 0 || bind(l, (struct sockaddr *)&to, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&to, &len) ||
	    connect(fd[0], (struct sockaddr *)&to, len) ||
	    (fd[1] = accept(l, NULL, NULL)) < 0)
		err(1, "connection");
	close(l);
	for (int i = 0; i < 2; i++)
		if (setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
			err(1, "TCP_NODELAY");
}

/* A pair's ring opens once its reader has come, and begins with the next send. */
static void warm_up(const int fd[2], size_t len)
{
	for (int i = 0; i < 2; i++)
		if (recv(fd[i], buf, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
			err(1, "recv of nothing");
	for (int i = 0; i < 64; i++) {
		send_one(fd[i % 2], len);
		recv_one(fd[1 - i % 2], len);
	}
}

int main(int argc, char **argv)
{
	unsigned int count, done;
	size_t len;
	int fd[2];

	if (argc != 5)
		errx(2, "usage: paths tcp|unix PATH BYTES COUNT");
	len = strtoul(argv[3], NULL, 10);
	count = strtoul(argv[4], NULL, 10);
	if (len < 1 || len > MAX_BYTES || count < 1)
		errx(2, "1 to %d bytes, and more than none of them", MAX_BYTES);
	for (const struct path *p = paths; p < paths + sizeof(paths) / sizeof(*paths); p++) {
		if (strcmp(p->name, argv[2]))
			continue;
		if (strcmp(argv[1], "unix"))
			connect_tcp(fd);
		else if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
			err(1, "socketpair");
		warm_up(fd, len);
		done = p->run(fd[0], fd[1], len, count);
		mark_done();
		printf("%u\n", done);
		return 0;
	}
	errx(2, "no such path: %s", argv[2]);
}
