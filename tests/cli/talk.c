// SPDX-License-Identifier: GPL-2.0
/*
 * talk - TCP connections with both ends in one process, for the tests of the
 * command line.
 *
 *	talk [-l CGROUP] [-c CGROUP] [-n COUNT] ADDRESS PORT
 *
 * Listens on ADDRESS and PORT, connects to it and sends a message each way.
 * Without -n it then prints SO_COOKIE and SO_BUSY_POLL of the client and of the
 * server, and keeps the connection until its standard input ends; with -n it
 * does so COUNT times, closing each connection. -l and -c are the directories
 * of the cgroups that the listener and the client are made in: a socket belongs
 * to the cgroup of the process that makes it.
 */
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE 1000

static void enter(const char *cgroup)
{
	char path[4096];
	FILE *procs;

	if (!cgroup)
		return;
	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	procs = fopen(path, "w");
	if (!procs || fprintf(procs, "%d", getpid()) < 0 || fclose(procs))
		err(2, "%s", path);
}

static void message(int from, int to)
{
	char out[MESSAGE], in[MESSAGE];

	memset(out, 'x', sizeof(out));
	if (send(from, out, sizeof(out), 0) != sizeof(out))
		err(1, "send");
	if (recv(to, in, sizeof(in), MSG_WAITALL) != sizeof(in))
		err(1, "recv");
	if (memcmp(out, in, sizeof(in)))
		errx(1, "received something else");
}

/* What a test compares with what is shown of the socket. */
static void describe(int fd)
{
	unsigned long long cookie;
	socklen_t len = sizeof(cookie);
	int usec;

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len))
		err(1, "SO_COOKIE");
	len = sizeof(usec);
	if (getsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &usec, &len))
		err(1, "SO_BUSY_POLL");
	printf("%llu %d ", cookie, usec);
}

int main(int argc, char **argv)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	}, *ai;
	const char *listener_cgroup = NULL, *client_cgroup = NULL;
	int opt, rc, listener, one = 1, count = 0;

	while ((opt = getopt(argc, argv, "l:c:n:")) != -1) {
		switch (opt) {
		case 'l':
			listener_cgroup = optarg;
			break;
		case 'c':
			client_cgroup = optarg;
			break;
		case 'n':
			count = atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	if (argc - optind != 2)
		errx(2, "which address and port?");
	rc = getaddrinfo(argv[optind], argv[optind + 1], &hints, &ai);
	if (rc)
		errx(2, "%s: %s", argv[optind], gai_strerror(rc));

	enter(listener_cgroup);
	listener = socket(ai->ai_family, SOCK_STREAM, 0);
	if (listener < 0)
		err(1, "socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, ai->ai_addr, ai->ai_addrlen) || listen(listener, 8))
		err(1, "%s %s", argv[optind], argv[optind + 1]);
	enter(client_cgroup);

	for (int i = 0; i < count || !count; i++) {
		int client = socket(ai->ai_family, SOCK_STREAM, 0), server;

		if (client < 0 || connect(client, ai->ai_addr, ai->ai_addrlen))
			err(1, "connect");
		server = accept(listener, NULL, NULL);
		if (server < 0)
			err(1, "accept");
		/* The active side's first data may go by TCP: it is not the last. */
		for (int j = 0; j < 2; j++) {
			message(client, server);
			message(server, client);
		}
		if (!count) {
			describe(client);
			describe(server);
			puts("");
			fflush(stdout);
			while (getchar() != EOF)
				;
			return 0;
		}
		/* The client first, so that the port is free at once. */
		close(client);
		if (recv(server, &one, sizeof(one), 0) != 0)
			err(1, "no end of stream");
		close(server);
	}
	printf("%d done\n", count);
	return 0;
}
