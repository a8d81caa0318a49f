// SPDX-License-Identifier: GPL-2.0
/*
 * A relay as one writes it for OpenBSD, by its setsockopt(2), and with nothing else: it
 * is compiled here with `-include socksplice.h` alone. It does not copy, so it fails where
 * SOL_SOCKET with SO_SPLICE is not understood.
 *
 * openbsd LISTEN TO: as the relays in examples/.
 */
#include <sys/types.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
parse(char *text, struct sockaddr_in *sin)
{
	char *port = strchr(text, ':');

	if (port == NULL)
		errx(2, "%s: not ADDRESS:PORT", text);
	*port++ = '\0';
	memset(sin, 0, sizeof(*sin));
	sin->sin_family = AF_INET;
	sin->sin_port = htons(atoi(port));
	if (inet_pton(AF_INET, text, &sin->sin_addr) != 1)
		errx(2, "%s: not an address", text);
}

static void
relay(int client, int server)
{
	struct pollfd pfd[2];
	struct splice sp;
	off_t moved[2];
	socklen_t len;
	int i, left = 2;
	char c;

	pfd[0].fd = client;
	pfd[1].fd = server;
	for (i = 0; i < 2; i++) {
		pfd[i].events = POLLIN;
		memset(&sp, 0, sizeof(sp));
		sp.sp_fd = pfd[!i].fd;
		sp.sp_max = 1LL << 40;
		sp.sp_idle.tv_sec = 60;
		if (setsockopt(pfd[i].fd, SOL_SOCKET, SO_SPLICE, &sp, sizeof(sp)) == -1)
			err(3, "SO_SPLICE");
	}
	while (left > 0) {
		if (poll(pfd, 2, -1) == -1)
			err(1, "poll");
		for (i = 0; i < 2; i++) {
			if (pfd[i].fd == -1 || pfd[i].revents == 0)
				continue;
			/* dissolved: only an end of stream is expected */
			switch (read(pfd[i].fd, &c, 1)) {
			case -1:
				err(1, "read");
			case 0:
				break;
			default:
				errx(1, "the splice has left bytes");
			}
			len = sizeof(moved[i]);
			if (getsockopt(pfd[i].fd, SOL_SOCKET, SO_SPLICE, &moved[i], &len) == -1)
				err(1, "SO_SPLICE");
			shutdown(i == 0 ? server : client, SHUT_WR);
			pfd[i].fd = -1;
			left--;
		}
	}
	printf("up %lld spliced 0 copied down %lld spliced 0 copied\n",
	       (long long)moved[0], (long long)moved[1]);
	fflush(stdout);
	close(client);
	close(server);
}

int
main(int argc, char *argv[])
{
	struct sockaddr_in here, to;
	socklen_t len = sizeof(here);
	int s, client, server, val = -1;

	if (argc != 3)
		errx(2, "usage: openbsd LISTEN TO");
	parse(argv[1], &here);
	parse(argv[2], &to);
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (s == -1 || bind(s, (struct sockaddr *)&here, sizeof(here)) == -1 ||
	    listen(s, 5) == -1 || getsockname(s, (struct sockaddr *)&here, &len) == -1)
		err(1, "listen");
	printf("listening %s:%u\n", inet_ntoa(here.sin_addr), ntohs(here.sin_port));
	fflush(stdout);
	for (;;) {
		client = accept(s, NULL, NULL);
		server = socket(AF_INET, SOCK_STREAM, 0);
		if (client == -1 || server == -1 ||
		    connect(server, (struct sockaddr *)&to, sizeof(to)) == -1)
			err(1, "connect");
		/* nothing to dissolve yet */
		if (setsockopt(client, SOL_SOCKET, SO_SPLICE, &val, sizeof(val)) != -1)
			errx(1, "dissolved what is not spliced");
		relay(client, server);
	}
}
