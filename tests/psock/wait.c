// SPDX-License-Identifier: GPL-2.0
/* When there is nothing: sleep, time out, be interrupted, end, fail as on TCP. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"
#include "harness.h"
#include "uring.h"

/* Blocking: asleep until bytes come. */
void case_block(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		struct sleeper s;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		sleeper_start(&s, f.rd, p[1]);
		send_stream(f.wr, 0, 1000);
		pthread_join(s.thread, NULL);
		check(s.ret == 1000, "%s: %zd %s", kind_names[k], s.ret, strerror(s.err));
		drain_pipe(p[0], 0, 1000);
	}
}

void case_nonblock(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		struct flow f;
		int p[2];
		ssize_t n;

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		set_nonblock(f.rd);
		n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
		check(n == -1 && errno == EAGAIN, "%s: %zd %s", kind_names[k], n, strerror(errno));
		send_stream(f.wr, 0, 1000);
		wait_readable(f.rd);
		/* readable may come before the bytes where a parser waits for a record */
		while ((n = splice(f.rd, NULL, p[1], NULL, 65536, 0)) == -1 && errno == EAGAIN)
			sched_yield();
		check(n == 1000, "%s: %zd %s", kind_names[k], n, strerror(errno));
		n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
		check(n == -1 && errno == EAGAIN, "%s: %zd %s", kind_names[k], n, strerror(errno));
		drain_pipe(p[0], 0, 1000);
	}
}

/* SPLICE_F_NONBLOCK is about the pipe; the socket's own flag decides, as on TCP.
 * The clock that ends a sleep catches up after the VM stood still, so one sleep
 * may be too short, but not each.
 */
void case_flag_nonblock(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		long took = 0;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		set_timeo(f.rd, 200);
		for (int i = 0; i < 5 && took < 190; i++) {
			long start = ms();
			ssize_t n = splice(f.rd, NULL, p[1], NULL, 65536, SPLICE_F_NONBLOCK);

			check(n == -1 && errno == EAGAIN, "%s: %zd %s", kind_names[k], n, strerror(errno));
			took = ms() - start;
		}
		check(took >= 190, "%s: returned after %ld ms", kind_names[k], took);
	}
}

static void on_signal(int sig)
{
	(void)sig;
}

void case_signal(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	for (enum kind k = 0; k < KIND_MAX; k++) {
		for (int restart = 0; restart < 2; restart++) {
			struct sleeper s;
			struct flow f;
			int p[2];

			sa.sa_flags = restart ? SA_RESTART : 0;
			sigaction(SIGUSR1, &sa, NULL);
			flow_open(&f, k, AF_INET);
			make_pipe(p, 0);
			sleeper_start(&s, f.rd, p[1]);
			pthread_kill(s.thread, SIGUSR1);
			if (restart) {
				wait_asleep(s.tid);
				send_stream(f.wr, 0, 1000);
			}
			pthread_join(s.thread, NULL);
			if (restart)
				check(s.ret == 1000, "%s: %zd %s", kind_names[k], s.ret, strerror(s.err));
			else
				check(s.ret == -1 && s.err == EINTR, "%s: %zd %s", kind_names[k], s.ret, strerror(s.err));

			/* with a timeout there is no restart */
			if (restart) {
				set_timeo(f.rd, 10000);
				sleeper_start(&s, f.rd, p[1]);
				pthread_kill(s.thread, SIGUSR1);
				pthread_join(s.thread, NULL);
				check(s.ret == -1 && s.err == EINTR, "%s: %zd %s", kind_names[k], s.ret, strerror(s.err));
			}
			close(p[0]);
			close(p[1]);
			close(f.rd);
			close(f.wr);
		}
	}
}

/* The end of file: before any byte, after bytes, and with the last of them. */
void case_fin(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		for (int where = 0; where < 3; where++) {
			struct flow f;
			int p[2], on = 1;
			ssize_t n;

			flow_open(&f, k, AF_INET);
			make_pipe(p, 0);
			set_timeo(f.rd, 5000);
			if (where == 2)
				setsockopt(f.wr, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
			if (where)
				send_stream(f.wr, 0, 1000);
			/* redirected bytes and the FIN of the reader's own
			 * connection come by different ways
			 */
			if (where && !flow_own(&f))
				wait_readable(f.rd);
			shutdown(f.wr, SHUT_WR);
			shutdown(f.peer, SHUT_WR);
			if (where) {
				n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
				check(n == 1000, "%s/%d: %zd %s", kind_names[k], where, n, strerror(errno));
				drain_pipe(p[0], 0, n);
			}
			for (int i = 0; i < 3; i++) {
				n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
				check(n == 0, "%s/%d: %zd %s", kind_names[k], where, n, strerror(errno));
			}
			check(recv(f.rd, &on, 1, 0) == 0, "%s/%d: read(2) after it", kind_names[k], where);
			close(f.rd);
			close(f.wr);
		}
	}
}

/* A sleeper finds the end of file. */
void case_fin_asleep(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		struct sleeper s;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		sleeper_start(&s, f.rd, p[1]);
		shutdown(f.peer, SHUT_WR);
		pthread_join(s.thread, NULL);
		check(s.ret == 0, "%s: %zd %s", kind_names[k], s.ret, strerror(s.err));
	}
}

/* A reset: the bytes first, then ECONNRESET once, then the end of file. */
void case_reset(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		for (int bytes = 0; bytes < 2; bytes++) {
			struct linger lg = { 1, 0 };
			struct pollfd pfd;
			struct flow f;
			int p[2];
			ssize_t n;

			flow_open(&f, k, AF_INET);
			make_pipe(p, 0);
			set_timeo(f.rd, 5000);
			if (bytes) {
				send_stream(f.wr, 0, 1000);
				wait_readable(f.rd);
			}
			setsockopt(f.peer, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
			close(f.peer);
			pfd = (struct pollfd){ .fd = f.rd };
			check(poll(&pfd, 1, 5000) == 1 && (pfd.revents & POLLERR), "no reset arrived");
			if (bytes) {
				n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
				check(n == 1000, "%s: %zd %s", kind_names[k], n, strerror(errno));
				drain_pipe(p[0], 0, n);
			}
			n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
			check(n == -1 && errno == ECONNRESET, "%s/%d: %zd %s", kind_names[k], bytes, n, strerror(errno));
			n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
			check(n == 0, "%s/%d: %zd %s", kind_names[k], bytes, n, strerror(errno));
		}
	}
}

/* Taken out of the map while a splice(2) sleeps, and while bytes flow. */
void case_unmap_asleep(void)
{
	static const enum kind kinds[] = {
		KIND_BASE, KIND_PASS, KIND_SELF, KIND_HASH, KIND_STRP, KIND_STRP,
	};

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct sleeper s;
		struct flow f;
		int p[2];

		flow_open(&f, kinds[i], AF_INET);
		make_pipe(p, 0);
		sleeper_start(&s, f.rd, p[1]);
		/* the last once more: the psock keeps a program that its map has not */
		if (i == sizeof(kinds) / sizeof(kinds[0]) - 1)
			flow_detach(&f);
		flow_unmap(&f);
		send_stream(f.wr, 0, 1000);
		pthread_join(s.thread, NULL);
		check(s.ret == 1000, "%s: %zd %s", kind_names[kinds[i]], s.ret, strerror(s.err));
		drain_pipe(p[0], 0, 1000);
	}
}

/* splice(2) by io_uring, from a task and from a worker that sleeps. */
void case_io_uring(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		for (int late = 0; late < 2; late++) {
			struct uring u;
			struct flow f;
			int n, p[2];

			flow_open(&f, k, AF_INET);
			make_pipe(p, 0);
			uring_open(&u);
			if (!late) {
				send_stream(f.wr, 0, 1000);
				wait_readable(f.rd);
			}
			uring_splice(&u, f.rd, p[1], 65536);
			if (late)
				send_stream(f.wr, 0, 1000);
			n = uring_wait(&u);
			check(n == 1000, "%s: %d", kind_names[k], n);
			drain_pipe(p[0], 0, 1000);
			uring_close(&u);
		}
	}
}

/* A listening socket is no source, in a map or not. */
void case_listener(void)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int p[2], l = socket(AF_INET, SOCK_STREAM, 0);

	make_pipe(p, 0);
	check(!bind(l, (void *)&sin, sizeof(sin)) && !listen(l, 1), "%s", strerror(errno));
	set_nonblock(l);
	check(splice(l, NULL, p[1], NULL, 1, 0) == -1 && errno == ENOTCONN, "%s", strerror(errno));
}
