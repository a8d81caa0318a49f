// SPDX-License-Identifier: GPL-2.0
/*
 * callbacks ROUNDS: relays that are spliced, move, and come to an end in one of five ways, while
 * strange_caller.ko calls the callbacks of their sockets without a lock. Every byte looked at.
 */
#include <sys/socket.h>

#include "sosplice.h"

#define PARAMETERS	"/sys/module/strange_caller/parameters/"
#define CHUNK		3000

static unsigned long spliced_calls(void)
{
	FILE *f = fopen(PARAMETERS "spliced_calls", "r");
	unsigned long n;

	check(f && fscanf(f, "%lu", &n) == 1, "%s", strerror(errno));
	fclose(f);
	return n;
}

/* The module calls the callbacks of these two from now on. */
static void have_called(int a, int b)
{
	char text[32];

	snprintf(text, sizeof(text), "%d %d", a, b);
	write_file(PARAMETERS "sockets", text);
}

/* Until it has done so @n times while they had a splice. */
static void wait_called(unsigned long n)
{
	const unsigned long until = spliced_calls() + n;

	while (spliced_calls() < until)
		;
}

static void move(const struct relay *r, uint64_t pos)
{
	stream_write(r->c, pos, CHUNK);
	stream_write(r->s, pos, CHUNK);
	stream_read(r->s, pos, CHUNK);
	stream_read(r->c, pos, CHUNK);
}

static void splice_both(const struct relay *r)
{
	splice_fds(r->p, r->q, 0, 0);
	splice_fds(r->q, r->p, 0, 0);
}

static void end_of_file(int fd)
{
	char byte;

	check(!read(fd, &byte, 1), "more than was sent");
}

static void one(unsigned int how)
{
	struct relay r;

	relay_open(&r, how % 2 ? AF_INET : AF_INET6, AF_INET);
	have_called(r.p, r.q);
	splice_both(&r);
	wait_called(4);
	move(&r, 0);
	switch (how % 5) {
	case 0:		/* unspliced, and again */
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		check(!socksplice_unsplice(r.q), "%s", strerror(errno));
		splice_both(&r);
		move(&r, CHUNK);
		break;
	case 1:		/* the client closes */
		shutdown(r.c, SHUT_WR);
		end_of_file(r.p);
		shutdown(r.q, SHUT_WR);
		end_of_file(r.s);
		break;
	case 2:		/* the source is closed */
		close(r.p);
		r.p = -1;
		wait_error(r.q, EPIPE);
		break;
	case 3:		/* the source is reset */
		check(!setsockopt(r.c, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
				  sizeof(struct linger)), "%s", strerror(errno));
		close(r.c);
		r.c = -1;
		break;
	case 4:		/* all are closed at once */
		break;
	}
	close(r.q);
	close(r.p);
	close(r.c);
	close(r.s);
}

int main(int argc, char **argv)
{
	const unsigned int rounds = argc > 1 ? atoi(argv[1]) : 0;
	unsigned int i;

	if (!rounds) {
		fprintf(stderr, "usage: callbacks ROUNDS\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	for (i = 0; i < rounds; i++)
		one(i);
	printf("# %lu rounds of calls met a splice\n", spliced_calls());
	printf("ok callbacks-without-a-lock\n");
	return 0;
}
