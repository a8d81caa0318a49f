// SPDX-License-Identifier: GPL-2.0
/*
 * What people measure with OpenBSD's splicebench: a relay that forwards one TCP connection in
 * one direction, by the option of the BSDs, setsockopt(SOL_SOCKET, SO_SPLICE), or by read(2) and
 * write(2). With a sender and a receiver for it.
 *
 *	splicebench receive ADDRESS PORT	prints "BYTES SECONDS" at the end of the stream
 *	splicebench relay [-c] ADDRESS FROM-PORT TO-PORT
 *						prints "BYTES"; -c copies
 *	splicebench send ADDRESS PORT SECONDS
 *
 * A listener prints "listening PORT" first; FROM-PORT 0 lets the kernel choose. Each serves one
 * connection.
 */
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* As on OpenBSD and FreeBSD. The headers of Linux do not have it. */
#define SO_SPLICE	0x1023
struct splice {
	int		sp_fd;
	off_t		sp_max;
	struct timeval	sp_idle;
};

static char buffer[64 * 1024];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static struct addrinfo *resolve(const char *address, const char *port)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	struct addrinfo *found;
	int error = getaddrinfo(address, port, &hints, &found);

	if (error)
		errx(1, "%s port %s: %s", address, port, gai_strerror(error));
	return found;
}

static int serve(const char *address, const char *port)
{
	struct addrinfo *at = resolve(address, port);
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	int fd = socket(at->ai_family, SOCK_STREAM, 0), one = 1, s;
	char name[16];

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1) ||
	    getsockname(fd, (void *)&own, &len))
		err(1, "listen at %s port %s", address, port);
	getnameinfo((void *)&own, len, NULL, 0, name, sizeof(name), NI_NUMERICSERV);
	printf("listening %s\n", name);
	fflush(stdout);
	s = accept(fd, NULL, NULL);
	if (s < 0)
		err(1, "accept");
	close(fd);
	return s;
}

static int reach(const char *address, const char *port)
{
	struct addrinfo *at = resolve(address, port);
	int fd = socket(at->ai_family, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen))
		err(1, "connect to %s port %s", address, port);
	return fd;
}

static void receive(int from)
{
	long long bytes = 0;
	double start = 0;
	ssize_t n;

	while ((n = read(from, buffer, sizeof(buffer))) > 0) {
		if (!bytes)
			start = now();
		bytes += n;
	}
	if (n < 0)
		err(1, "read");
	printf("%lld %f\n", bytes, now() - start);
}

static void send_for(int to, double seconds)
{
	double end = now() + seconds;

	while (now() < end) {
		if (write(to, buffer, sizeof(buffer)) < 0)
			err(1, "write");
	}
	if (shutdown(to, SHUT_WR))
		err(1, "shutdown");
	/* until the relay has closed: all has arrived */
	if (read(to, buffer, sizeof(buffer)))
		errx(1, "the relay did not close in order");
}

static long long copy(int from, int to)
{
	long long bytes = 0;
	ssize_t n, done, k;

	while ((n = read(from, buffer, sizeof(buffer))) > 0) {
		for (done = 0; done < n; done += k) {
			k = write(to, buffer + done, n - done);
			if (k < 0)
				err(1, "write");
		}
		bytes += n;
	}
	if (n < 0)
		err(1, "read");
	return bytes;
}

static long long by_splice(int from, int to)
{
	const struct splice s = { .sp_fd = to };
	struct pollfd over = { .fd = from, .events = POLLIN };
	long long bytes;
	socklen_t len = sizeof(bytes);
	int error;
	socklen_t error_len = sizeof(error);

	if (setsockopt(from, SOL_SOCKET, SO_SPLICE, &s, sizeof(s)))
		err(1, "setsockopt(SOL_SOCKET, SO_SPLICE)");
	while (poll(&over, 1, -1) < 0) {
		if (errno != EINTR)
			err(1, "poll");
	}
	if (getsockopt(from, SOL_SOCKET, SO_ERROR, &error, &error_len) || error)
		errx(1, "the splice ended: %s", strerror(error));
	if (read(from, buffer, 1))
		errx(1, "the splice has left bytes");
	if (getsockopt(from, SOL_SOCKET, SO_SPLICE, &bytes, &len))
		err(1, "getsockopt(SOL_SOCKET, SO_SPLICE)");
	return bytes;
}

static void relay(const char *address, const char *from_port, const char *to_port, bool copies)
{
	int from = serve(address, from_port), to = reach(address, to_port);
	long long bytes = copies ? copy(from, to) : by_splice(from, to);

	if (shutdown(to, SHUT_WR))
		err(1, "shutdown");
	printf("%lld\n", bytes);
	/* until the receiver has closed */
	if (read(to, buffer, sizeof(buffer)))
		errx(1, "the receiver did not close in order");
	close(from);
}

int main(int argc, char **argv)
{
	bool copies = argc > 2 && !strcmp(argv[2], "-c");

	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && !strcmp(argv[1], "receive"))
		receive(serve(argv[2], argv[3]));
	else if (argc == 5 && !strcmp(argv[1], "send"))
		send_for(reach(argv[2], argv[3]), atof(argv[4]));
	else if (argc == 5 + copies && !strcmp(argv[1], "relay"))
		relay(argv[2 + copies], argv[3 + copies], argv[4 + copies], copies);
	else
		errx(2, "usage: splicebench receive ADDRESS PORT | relay [-c] ADDRESS FROM-PORT "
		     "TO-PORT | send ADDRESS PORT SECONDS");
	return 0;
}
