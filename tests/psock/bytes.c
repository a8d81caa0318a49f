// SPDX-License-Identifier: GPL-2.0
/* Every byte comes out once and in order, and no memory stays charged afterwards. */
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
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"
#include "harness.h"

void case_bytes_1(void) { transfer_kinds(AF_INET, 1, 1, 65536, 0); }
void case_bytes_small(void) { transfer_kinds(AF_INET, amount(3001), 1, 65536, 0); }
void case_bytes_odd(void) { transfer_kinds(AF_INET, amount(300007), 4093, 9973, 0); }
void case_bytes_1m(void) { transfer_kinds(AF_INET, amount(1 << 20), 65536, 65536, 0); }
void case_bytes_16m(void) { transfer_kinds(AF_INET, amount(16 << 20), 65536, 1 << 20, 1 << 20); }
void case_bytes_v6(void) { transfer_kinds(AF_INET6, amount(1 << 20), 65536, 65536, 0); }
void case_pipe_one_slot(void) { transfer_kinds(AF_INET, amount(300007), 7001, 65536, 4096); }
void case_chunk_one_byte(void) { transfer_kinds(AF_INET, amount(3000), 700, 1, 0); }

/* A pipe with one free slot: bytes that do not fit stay queued. */
void case_pipe_nearly_full(void)
{
	for (enum kind k = KIND_PASS; k < KIND_MAX; k++) {
		uint64_t pos = 0;
		struct flow f;
		int p[2], i, taken;

		flow_open(&f, k, AF_INET);
		set_timeo(f.rd, 5000);
		send_stream(f.wr, 0, 60000);
		make_pipe(p, 0);
		for (taken = 0; taken < 15; taken++)
			check(vmsplice(p[1], &(struct iovec){ "x", 1 }, 1, 0) == 1, "%s", strerror(errno));
		while (pos < 60000) {
			ssize_t n = splice(f.rd, NULL, p[1], NULL, 60000, 0);
			char x;

			check(n > 0, "%s: splice at %llu: %s", kind_names[k],
			      (unsigned long long)pos, n ? strerror(errno) : "end of file");
			for (i = 0; i < taken; i++)
				check(read(p[0], &x, 1) == 1 && x == 'x', "filler");
			taken = 0;
			drain_pipe(p[0], pos, n);
			pos += n;
		}
		check(uncharged(f.rd), "still charged");
		close(p[0]);
		close(p[1]);
		close(f.wr);
		close(f.rd);
	}
}

/* The pipe has no reader: EPIPE and SIGPIPE, and the bytes stay in the socket. */
void case_pipe_no_reader(void)
{
	struct flow f;
	int p[2];

	signal(SIGPIPE, SIG_IGN);
	for (enum kind k = KIND_PASS; k < KIND_MAX; k++) {
		flow_open(&f, k, AF_INET);
		send_stream(f.wr, 0, 10000);
		wait_readable(f.rd);
		make_pipe(p, 0);
		close(p[0]);
		check(splice(f.rd, NULL, p[1], NULL, 4096, 0) == -1 && errno == EPIPE, "%s", strerror(errno));
		close(p[1]);
		splice_stream(f.rd, 0, 10000, 65536, 0);
		close(f.wr);
		close(f.rd);
	}
}

/* One reader receives redirected bytes and TCP's own. Each stream is whole and in order. If
 * both are queued, the redirected bytes come first.
 */
void case_mixed_queues(void)
{
	static const enum kind kinds[] = {
		KIND_REDIR_BASE, KIND_MSG, KIND_MSG_VERDICT, KIND_REDIR,
	};

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t others = 0, own = 0;
		char buf[65536];
		struct flow f;
		int p[2];

		flow_open(&f, kinds[i], AF_INET);
		make_pipe(p, 0);
		set_timeo(f.rd, 5000);
		/* Redirected bytes are lower-case letters, the connection's own are upper-case. */
		for (int r = 0; r < 200; r++) {
			for (int j = 0; j < 300; j++)
				buf[j] = 'a' + (300 * r + j) % 26;
			check(send(f.wr, buf, 300, 0) == 300, "send");
			for (int j = 0; j < 300; j++)
				buf[j] = 'A' + (300 * r + j) % 26;
			check(send(f.peer, buf, 300, 0) == 300, "send");
			if (r == 0 && kinds[i] == KIND_MSG) {
				int both = 0;

				/* Without a verdict program TCP's bytes stay in TCP's queue. */
				while (both < 600)
					check(!ioctl(f.rd, FIONREAD, &both), "FIONREAD");
				check(splice(f.rd, NULL, p[1], NULL, 100, 0) == 100, "splice");
				check(read(p[0], buf, 100) == 100 && buf[0] == 'a' &&
				      buf[99] == 'a' + 99 % 26,
				      "the ingress queue comes first");
				others += 100;
			}
		}
		while (others + own < 120000) {
			ssize_t n = splice(f.rd, NULL, p[1], NULL, 7001, 0);

			check(n > 0, "%s: splice: %s", kind_names[kinds[i]], n ? strerror(errno) : "end of file");
			check(read(p[0], buf, n) == n, "pipe");
			for (int j = 0; j < n; j++) {
				if (buf[j] >= 'a')
					check(buf[j] == (char)('a' + others++ % 26), "others' byte %zu", others);
				else
					check(buf[j] == (char)('A' + own++ % 26), "own byte %zu", own);
			}
		}
		check(others == 60000 && own == 60000, "%zu and %zu", others, own);
		close(f.rd);
		close(f.wr);
	}
}

/* read(2), splice(2) and MSG_PEEK take turns. */
void case_read_and_splice(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		const size_t len = amount(512000);	/* whole records */
		char buf[8192];
		uint64_t pos = 0;
		struct writer w;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		writer_start(&w, &f, len, 1777, true);
		for (int turn = 0; pos < len; turn++) {
			ssize_t n;

			if (turn % 3 == 2) {
				n = splice(f.rd, NULL, p[1], NULL, 1 + turn % 5000, 0);
				check(n > 0, "%s: splice: %s", kind_names[k], strerror(errno));
				drain_pipe(p[0], pos, n);
				pos += n;
				continue;
			}
			n = recv(f.rd, buf, 1 + turn % 3000, turn % 3 ? MSG_PEEK : 0);
			if (n < 0 && errno == EAGAIN) {
				wait_readable(f.rd);
				continue;
			}
			check(n > 0, "%s: recv: %s", kind_names[k], strerror(errno));
			check(stream_check(SEED, pos, buf, n) == (size_t)n, "%s: recv at %llu",
			      kind_names[k], (unsigned long long)pos);
			if (turn % 3 == 0)
				pos += n;
			atomic_store(&consumed, pos);
		}
		pthread_join(w.thread, NULL);
		check(uncharged(f.rd), "still charged");
		close(f.rd);
		close(f.wr);
	}
}

struct sharer {
	pthread_t thread;
	int fd;
	bool splices;
	uint64_t bytes, sum;
};

static void *sharer_run(void *arg)
{
	struct sharer *s = arg;
	unsigned char buf[16384];
	int p[2];

	make_pipe(p, 0);
	while (1) {
		ssize_t n;

		if (s->splices) {
			n = splice(s->fd, NULL, p[1], NULL, sizeof(buf), 0);
			if (n > 0)
				check(read(p[0], buf, n) == n, "pipe");
		} else {
			n = recv(s->fd, buf, sizeof(buf), 0);
		}
		if (n < 0 && errno == EAGAIN)
			continue;
		check(n >= 0, "%s", strerror(errno));
		if (!n)
			break;
		s->bytes += n;
		atomic_fetch_add(&consumed, n);
		for (int i = 0; i < n; i++)
			s->sum += buf[i];
	}
	close(p[0]);
	close(p[1]);
	return NULL;
}

/* Threads splice from and read from one socket: no byte comes twice, and none is lost. */
void case_threads(void)
{
	static const enum kind kinds[] = { KIND_PASS, KIND_SELF, KIND_STRP, KIND_HASH };

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const size_t len = amount(4000000);
		uint64_t bytes = 0, sum = 0, want = 0;
		unsigned char *all = malloc(len);
		struct sharer s[6];
		struct writer w;
		struct flow f;

		stream_fill(SEED, 0, all, len);
		for (size_t j = 0; j < len; j++)
			want += all[j];
		flow_open(&f, kinds[i], AF_INET);
		/* The second thread finds nothing, and must not sleep past the end of the test. */
		set_timeo(f.rd, 100);
		for (int j = 0; j < 6; j++) {
			s[j] = (struct sharer){ .fd = f.rd, .splices = j % 2 };
			check(!pthread_create(&s[j].thread, NULL, sharer_run, &s[j]), "thread");
		}
		writer_start(&w, &f, len, 30011, true);
		pthread_join(w.thread, NULL);
		shutdown(f.wr, SHUT_WR);
		for (int j = 0; j < 6; j++) {
			pthread_join(s[j].thread, NULL);
			bytes += s[j].bytes;
			sum += s[j].sum;
		}
		check(bytes == len && sum == want, "%s: %llu bytes of %zu", kind_names[kinds[i]],
		      (unsigned long long)bytes, len);
		close(f.rd);
		close(f.wr);
		free(all);
	}
}

/* tee(2) onward, and splice(2) onward to a file and to another socket. */
void case_onward(void)
{
	for (enum kind k = 0; k < KIND_MAX; k++) {
		int p[2], p2[2], out[2], file = memfd_create("onward", 0);
		const size_t len = 60000;
		uint64_t pos = 0;
		char buf[65536];
		struct flow f;
		loff_t off = 0;
		ssize_t n;

		flow_open(&f, k, AF_INET);
		tcp_pair(AF_INET, &out[0], &out[1]);
		make_pipe(p, 0);
		make_pipe(p2, 0);
		send_stream(f.wr, 0, len);
		while (pos < len) {
			n = splice(f.rd, NULL, p[1], NULL, 16384, 0);
			check(n > 0, "%s: %s", kind_names[k], strerror(errno));
			check(tee(p[0], p2[1], n, 0) == n, "tee: %s", strerror(errno));
			check(splice(p[0], NULL, out[0], NULL, n, 0) == n, "onward: %s", strerror(errno));
			for (ssize_t left = n; left;) {
				ssize_t m = splice(p2[0], NULL, file, &off, left, 0);

				check(m > 0, "to a file: %s", strerror(errno));
				left -= m;
			}
			for (ssize_t got = 0; got < n;) {
				ssize_t m = recv(out[1], buf, n - got, 0);

				check(m > 0 && stream_check(SEED, pos + got, buf, m) == (size_t)m, "socket");
				got += m;
			}
			pos += n;
		}
		for (pos = 0; pos < len; pos += n) {
			n = pread(file, buf, sizeof(buf), pos);
			check(n > 0 && stream_check(SEED, pos, buf, n) == (size_t)n, "file");
		}
		close(file);
		close(f.rd);
		close(f.wr);
	}
}

/* Bytes in the pipe outlive the map entry, the socket and the programs, and
 * nothing overwrites them.
 */
void case_pipe_outlives_socket(void)
{
	for (enum kind k = KIND_PASS; k < KIND_MAX; k++) {
		size_t in = 0;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 1 << 20);
		send_stream(f.wr, 0, 200000);
		while (in < 100000) {
			ssize_t n = splice(f.rd, NULL, p[1], NULL, 100000 - in, 0);

			check(n > 0, "%s: %s", kind_names[k], strerror(errno));
			in += n;
		}
		flow_unmap(&f);
		close(f.rd);
		close(f.wr);
		close(f.peer);
		/* Send other data, which may reuse the freed memory. */
		transfer(KIND_PASS, AF_INET, amount(1000000), 65536, 65536, 0);
		transfer(KIND_MSG, AF_INET, amount(1000000), 65536, 65536, 0);
		drain_pipe(p[0], 0, in);
		close(p[0]);
		close(p[1]);
	}
}

/* The receive window keeps moving: far more bytes than the buffers hold, a small receive
 * buffer, a reader that starts late. If the window did not open, the sender would wait for
 * probes. The buffer is small from the start. Had the window once been larger, TCP itself
 * would wait for a probe with every segment.
 */
void case_window(void)
{
	char before[64] = "";
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_rmem", "r");

	check(file && fgets(before, sizeof(before), file), "tcp_rmem");
	fclose(file);
	write_file("/proc/sys/net/ipv4/tcp_rmem", "4096 32768 32768");
	for (enum kind k = 0; k < KIND_MAX; k++) {
		bool strp = k == KIND_STRP || k == KIND_STRP_REDIR;
		const size_t len = strp ? 200000 : amount(2000000);
		struct writer w;
		struct flow f;
		long start = ms();

		flow_open(&f, k, AF_INET);
		writer_start(&w, &f, len, 65536, false);
		wait_readable(f.rd);
		splice_stream(f.rd, 0, len, 65536, 0);
		pthread_join(w.thread, NULL);
		printf("# %s: %ld ms\n", kind_names[k], ms() - start);
		check(ms() - start < 60000, "%s: %ld ms", kind_names[k], ms() - start);
		close(f.rd);
		close(f.wr);
	}
	write_file("/proc/sys/net/ipv4/tcp_rmem", before);
}
