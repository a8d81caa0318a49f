// SPDX-License-Identifier: GPL-2.0
/*
 * psock read|splice|null SECONDS: how fast a reader takes what a verdict program
 * redirects to its socket, over loopback. Prints "BYTES SECONDS".
 *
 *	writer -> socket with the program -> (redirected) reader's socket
 *
 *	read	read(2)
 *	splice	splice(2) to a pipe, and read(2) from the pipe
 *	null	splice(2) to a pipe, and on to /dev/null
 *
 * Nothing holds back a writer whose bytes are redirected, so it looks where the
 * reader is; and the reader's buffer holds all that is on the way, since the
 * kernel looks at a full one again only after a clock tick. What goes on in the
 * first tenth of a second is not counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../tests/psock/lab.h"

#define CHUNK	(128 * 1024)
#define AHEAD	(1 << 20)
#define BUFFER	(8 << 20)
#define WARM_UP	0.1

static struct flow flow;
static atomic_ullong taken;
static atomic_bool stop;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void *writer(void *arg)
{
	int file = memfd_create("data", MFD_CLOEXEC);
	unsigned long long sent = 0;

	(void)arg;
	if (file < 0 || ftruncate(file, CHUNK))
		die("memfd: %s", strerror(errno));
	while (!atomic_load(&stop)) {
		off_t off = 0;
		ssize_t n;

		if (sent - atomic_load(&taken) > AHEAD) {
			usleep(50);
			continue;
		}
		n = sendfile(flow.wr, file, &off, CHUNK);
		if (n < 0 && errno != EAGAIN)
			die("sendfile: %s", strerror(errno));
		sent += n > 0 ? n : 0;
	}
	/* the reader may be asleep */
	shutdown(flow.peer, SHUT_WR);
	return NULL;
}

/* One turn of the reader; its bytes, or 0 at the end. */
static ssize_t take(const char *how, int pipe[2], int null, char *buf)
{
	ssize_t n, left, m;

	if (!strcmp(how, "read")) {
		n = read(flow.rd, buf, CHUNK);
	} else {
		n = splice(flow.rd, NULL, pipe[1], NULL, CHUNK, 0);
		for (left = n; left > 0; left -= m) {
			m = !strcmp(how, "null") ? splice(pipe[0], NULL, null, NULL, left, 0) :
						   read(pipe[0], buf, left);
			if (m <= 0)
				die("pipe: %s", strerror(errno));
		}
	}
	if (n < 0 && errno != EAGAIN)
		die("%s: %s", how, strerror(errno));
	return n;
}

int main(int argc, char **argv)
{
	double began = 0, start, seconds = argc == 3 ? atof(argv[2]) : 0, took = 0;
	int p[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	unsigned long long first = 0, bytes = 0;
	char *buf = malloc(CHUNK);
	int buffer = BUFFER;
	pthread_t thread;

	if (seconds <= 0 || (strcmp(argv[1], "read") && strcmp(argv[1], "splice") &&
			     strcmp(argv[1], "null"))) {
		fprintf(stderr, "see the head of bench/psock.c\n");
		return 2;
	}
	if (pipe2(p, O_CLOEXEC) || fcntl(p[1], F_SETPIPE_SZ, 1 << 20) < 0 || null < 0 || !buf)
		die("pipe: %s", strerror(errno));
	memset(buf, 0, CHUNK);
	flow_open(&flow, KIND_REDIR, AF_INET);
	if (setsockopt(flow.rd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)))
		die("SO_RCVBUFFORCE: %s", strerror(errno));
	if (pthread_create(&thread, NULL, writer, NULL))
		die("thread");
	start = now();
	while (!took) {
		ssize_t n = take(argv[1], p, null, buf);

		if (!n)
			die("end of file");
		bytes += n > 0 ? n : 0;
		atomic_store(&taken, bytes);
		if (!began && now() - start >= WARM_UP) {
			began = now();
			first = bytes;
		} else if (began && now() - began >= seconds) {
			took = now() - began;
			bytes -= first;
		}
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("%llu %.6f\n", bytes, took);
	return 0;
}
