// SPDX-License-Identifier: GPL-2.0
/*
 * How long a message takes to a server and back.
 *
 *	pingpong server [ADDRESS:]PORT
 *	pingpong client ADDRESS:PORT [--rounds N] [--size BYTES] [--out FILE]
 *
 * The server answers each message of a connection with as many bytes, for one connection
 * after another; it prints "listening PORT". The client sends N messages (10000) of BYTES
 * (64, up to 1 MiB), each when the last has been answered, and times them by
 * CLOCK_MONOTONIC. The first, which finds everything cold, is not counted. Prints the
 * distribution in microseconds; --out keeps every time, in nanoseconds, a line each, for
 * bench/pingpong, which draws and compares. Both take --cpu N, to run there only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE_MAX_BYTES	(1 << 20)

static char buf[SIZE_MAX_BYTES];

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "pingpong: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static bool write_all(int fd, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = send(fd, buf + done, len - done, MSG_NOSIGNAL);

		if (n < 0)
			return false;
		done += n;
	}
	return true;
}

static void no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int open_socket(char *where, bool server)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = server ? AI_PASSIVE : 0 };
	char *port = strrchr(where, ':'), *host = NULL;
	struct addrinfo *found;
	int one = 1, err, fd;

	if (port) {
		*port++ = 0;
		host = where;
	} else if (server) {
		port = where;
	} else {
		die("%s is not ADDRESS:PORT", where);
	}
	err = getaddrinfo(host, port, &hints, &found);
	if (err)
		die("port %s: %s", port, gai_strerror(err));
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket: %s", strerror(errno));
	if (server) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 16))
			die("port %s: %s", port, strerror(errno));
	} else if (connect(fd, found->ai_addr, found->ai_addrlen)) {
		die("port %s: %s", port, strerror(errno));
	}
	freeaddrinfo(found);
	return fd;
}

__attribute__((noreturn)) static void serve(int listener)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	getsockname(listener, (void *)&ss, &len);
	/* the port lies at one place in both families */
	printf("listening %u\n", ntohs(((struct sockaddr_in *)&ss)->sin_port));
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		ssize_t n;

		if (fd < 0)
			continue;
		no_delay(fd);
		do
			n = read(fd, buf, sizeof(buf));
		while (n > 0 && write_all(fd, n));
		close(fd);
	}
}

static int later(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void ask(int fd, long rounds, size_t size, const char *path)
{
	static const double at[] = { 0, 1, 5, 25, 50, 75, 90, 95, 99, 99.9, 100 };
	uint64_t *took = malloc(rounds * sizeof(*took)), start;
	FILE *out = path ? fopen(path, "w") : NULL;
	size_t got, i;
	ssize_t n;
	long r;

	if (!took || (path && !out))
		die("%s: %s", path ? path : "memory", strerror(errno));
	no_delay(fd);
	for (r = -1; r < rounds; r++) {
		start = now();
		if (!write_all(fd, size))
			die("send: %s", strerror(errno));
		for (got = 0; got < size; got += n) {
			n = read(fd, buf, sizeof(buf));
			if (n <= 0)
				die("read: %s", n ? strerror(errno) : "end of file");
		}
		if (r >= 0)
			took[r] = now() - start;
	}
	for (r = 0; out && r < rounds; r++)
		fprintf(out, "%llu\n", (unsigned long long)took[r]);
	if (out && fclose(out))
		die("%s: %s", path, strerror(errno));
	qsort(took, rounds, sizeof(*took), later);
	printf("%ld rounds of %zu bytes, us:", rounds, size);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		printf("  p%g %.1f", at[i], took[(long)(at[i] / 100 * (rounds - 1) + 0.5)] / 1e3);
	printf("\n");
	free(took);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "size", required_argument, NULL, 's' },
		{ "out", required_argument, NULL, 'o' },
		{ "cpu", required_argument, NULL, 'c' },
		{ }
	};
	long rounds = 10000, size = 64;
	const char *out = NULL;
	cpu_set_t cpus;
	bool server;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'r':
			rounds = atol(optarg);
			break;
		case 's':
			size = atol(optarg);
			break;
		case 'o':
			out = optarg;
			break;
		case 'c':
			CPU_ZERO(&cpus);
			CPU_SET(atoi(optarg), &cpus);
			if (sched_setaffinity(0, sizeof(cpus), &cpus))
				die("CPU %s: %s", optarg, strerror(errno));
			break;
		default:
			return 2;
		}
	}
	server = argc - optind == 2 && !strcmp(argv[optind], "server");
	if (argc - optind != 2 || (!server && strcmp(argv[optind], "client")) || rounds < 1 ||
	    size < 1 || size > SIZE_MAX_BYTES) {
		fprintf(stderr, "usage: pingpong server [ADDRESS:]PORT | client ADDRESS:PORT"
			" [--rounds N] [--size BYTES] [--out FILE]; [--cpu N]\n");
		return 2;
	}
	if (server)
		serve(open_socket(argv[optind + 1], true));
	ask(open_socket(argv[optind + 1], false), rounds, size, out);
	return 0;
}
