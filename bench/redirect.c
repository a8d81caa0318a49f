// SPDX-License-Identifier: GPL-2.0
/*
 * redirect OBJECT PORT TO-PORT: a proxy on 127.0.0.1 that has a sockmap's verdict program
 * forward, for comparison with SO_SPLICE. Good for a benchmark only: it waits for the
 * client's first message, since nothing redirects what came before its socket was in the
 * map, and supposes that the client then waits for an answer; it passes on an end of
 * stream after a pause, since nothing says when the kernel has sent what it redirected.
 *
 * Prints "listening PORT"; at SIGTERM the bytes that the program has redirected.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redirect.h"

static struct sockaddr_in target;
static int sinks;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "redirect: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

/* What @from receives is sent by @to. */
static void join(int from, int to)
{
	struct sockaddr_in local, remote;
	socklen_t len = sizeof(local);
	__u64 value = to;
	struct end key;

	if (getsockname(from, (void *)&local, &len) || getpeername(from, (void *)&remote, &len))
		die("getsockname: %s", strerror(errno));
	key.local = ntohs(local.sin_port);
	key.remote = ntohs(remote.sin_port);
	if (bpf_map_update_elem(sinks, &key, &value, BPF_ANY))
		die("sockmap: %s", strerror(errno));
}

static void *serve(void *arg)
{
	int fd[2] = { (long)arg, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	struct pollfd p[2];
	int i, one = 1, left = 2;
	char first[65536];
	ssize_t n;

	if (connect(fd[1], (void *)&target, sizeof(target)))
		die("connect: %s", strerror(errno));
	for (i = 0; i < 2; i++) {
		setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		p[i] = (struct pollfd){ .fd = fd[i], .events = POLLRDHUP };
	}
	n = read(fd[0], first, sizeof(first));
	if (n > 0) {
		join(fd[0], fd[1]);
		join(fd[1], fd[0]);
		if (send(fd[1], first, n, MSG_NOSIGNAL) != n)
			die("send: %s", strerror(errno));
	}
	while (n > 0 && left && poll(p, 2, -1) > 0) {
		for (i = 0; i < 2; i++) {
			if (!p[i].revents)
				continue;
			usleep(20000);
			shutdown(fd[!i], SHUT_WR);
			p[i].fd = -1;
			left--;
		}
	}
	close(fd[0]);
	close(fd[1]);
	return NULL;
}

static void *accepts(void *arg)
{
	int listener = (long)arg;

	for (;;) {
		long fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pthread_t t;

		if (fd >= 0 && (pthread_create(&t, NULL, serve, (void *)fd) || pthread_detach(t)))
			die("thread");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in here = { .sin_family = AF_INET };
	struct bpf_object *obj;
	struct bpf_program *prog;
	struct bpf_map *bss;
	int listener, one = 1, sig;
	__u64 redirected;
	__u32 zero = 0;
	sigset_t end;
	pthread_t t;

	if (argc != 4) {
		fprintf(stderr, "see the head of bench/redirect.c\n");
		return 2;
	}
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	target = here;
	here.sin_port = htons(atoi(argv[2]));
	target.sin_port = htons(atoi(argv[3]));
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end, NULL);

	obj = bpf_object__open_file(argv[1], NULL);
	if (!obj || bpf_object__load(obj))
		die("cannot load %s", argv[1]);
	prog = bpf_object__find_program_by_name(obj, "verdict");
	sinks = bpf_object__find_map_fd_by_name(obj, "sinks");
	bss = bpf_object__find_map_by_name(obj, ".bss");
	if (!prog || sinks < 0 || !bss ||
	    bpf_prog_attach(bpf_program__fd(prog), sinks, BPF_SK_SKB_STREAM_VERDICT, 0))
		die("cannot attach the program: %s", strerror(errno));
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener < 0 || bind(listener, (void *)&here, sizeof(here)) || listen(listener, 64))
		die("port %s: %s", argv[2], strerror(errno));
	if (pthread_create(&t, NULL, accepts, (void *)(long)listener))
		die("thread");
	printf("listening %s\n", argv[2]);
	fflush(stdout);
	sigwait(&end, &sig);
	if (bpf_map_lookup_elem(bpf_map__fd(bss), &zero, &redirected))
		die(".bss: %s", strerror(errno));
	printf("%llu\n", (unsigned long long)redirected);
	return 0;
}
