// SPDX-License-Identifier: GPL-2.0
/*
 * sockopt ROUNDS: what an ordinary option of SOL_SOCKET costs while calls of
 * setsockopt(SOL_SOCKET, SO_SPLICE) are redirected, against without, round by round.
 * Needs the module with so_splice=1. Prints medians; asserts on no time.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CALLS	20000
#define SWITCH	"/sys/module/socksplice/parameters/so_splice_literal"

static void literal(char c)
{
	int fd = open(SWITCH, O_WRONLY);

	if (write(fd, &c, 1) != 1) {
		perror(SWITCH);
		exit(1);
	}
	close(fd);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Nanoseconds per call. */
static double time_calls(int fd, int get)
{
	int value = 1, i;
	socklen_t len = sizeof(value);
	double start = now();

	for (i = 0; i < CALLS; i++) {
		if (get)
			getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len);
		else
			setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof(value));
	}
	return (now() - start) / CALLS;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 15, fd = socket(AF_INET, SOCK_STREAM, 0), i, get;
	double *v[2];

	if (rounds < 1 || fd < 0) {
		fprintf(stderr, "usage: sockopt ROUNDS\n");
		return 2;
	}
	v[0] = calloc(rounds, sizeof(double));
	v[1] = calloc(rounds, sizeof(double));
	for (get = 0; get < 2; get++) {
		for (i = 0; i < rounds; i++) {
			literal('0');
			v[0][i] = time_calls(fd, get);
			literal('1');
			v[1][i] = time_calls(fd, get);
		}
		double off = median(v[0], rounds), on = median(v[1], rounds);

		printf("%s(SO_KEEPALIVE): %.0f ns, redirected %.0f ns, %.2fx\n",
		       get ? "getsockopt" : "setsockopt", off, on, on / off);
	}
	return 0;
}
