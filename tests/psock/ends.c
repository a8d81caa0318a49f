// SPDX-License-Identifier: GPL-2.0
/* Both ends in the map, and how a stream ends: FIN and RST in each position. Also sockets that
 * leave the map while a reader sleeps or reads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "cases.h"
#include "harness.h"

/* Waits until @n bytes can be read. */
static void await_bytes(int fd, int n)
{
	long start = ms();
	int have = 0;

	while (have != n) {
		check(!ioctl(fd, FIONREAD, &have), "FIONREAD");
		check(ms() - start < 10000, "%d bytes to read of %d after 10 s", have, n);
	}
}

/* Both directions, at once and in turn. Each end is in the map and is spliced from. */
void case_both_ends(void)
{
	for (int way = 0; way < 2; way++) {
		for (int family = 0; family < 2; family++) {
			const size_t len = 2000000;
			uint64_t before = psock_bytes();
			struct reader ra, rb;
			struct writer wa, wb;
			struct flow f;

			both_open(&f, way, family ? AF_INET6 : AF_INET);
			wa = (struct writer){ .fd = f.wr, .len = len, .chunk = 40000 };
			wb = (struct writer){ .fd = f.rd, .pos = BACK, .len = len, .chunk = 30000 };
			reader_go(&ra, f.rd, 0, len);
			reader_go(&rb, f.wr, BACK, len);
			writer_go(&wa);
			writer_go(&wb);
			pthread_join(wa.thread, NULL);
			pthread_join(wb.thread, NULL);
			pthread_join(ra.thread, NULL);
			pthread_join(rb.thread, NULL);

			for (int i = 0; i < 300; i++) {
				size_t n = 1 + i * 37;

				send_stream(f.wr, len, n);
				splice_stream(f.rd, len, n, 65536, 0);
				send_stream(f.rd, BACK + len, n);
				splice_stream(f.wr, BACK + len, n, 65536, 0);
			}
			/* One direction ends, the other goes on. */
			shutdown(f.wr, SHUT_WR);
			expect_eof(f.rd);
			send_stream(f.rd, BACK, 5000);
			splice_stream(f.wr, BACK, 5000, 65536, 0);
			shutdown(f.rd, SHUT_WR);
			expect_eof(f.wr);
			check(psock_bytes() - before >= 2 * len, "%llu of %zu bytes came through here",
			      (unsigned long long)(psock_bytes() - before), 2 * len);
			flow_close(&f);
		}
	}
}

/* A socket's own sends come back through its psock queue, and its peer's through TCP's queue. */
void case_own_queue(void)
{
	for (int family = 0; family < 2; family++) {
		uint64_t before = psock_bytes(), pos = 0;
		struct flow f;

		own_open(&f, family ? AF_INET6 : AF_INET);
		set_timeo(f.rd, 10000);
		for (int i = 0; i < 50; i++) {
			size_t n = 1 + i * 1177;

			send_stream(f.wr, pos, n);
			splice_stream(f.rd, pos, n, 9973, 0);
			send_stream(f.peer, BACK + pos, n);
			splice_stream(f.rd, BACK + pos, n, 65536, 0);
			pos += n;
		}
		check(psock_bytes() - before == pos, "%llu of %llu bytes came through here",
		      (unsigned long long)(psock_bytes() - before), (unsigned long long)pos);
		check(uncharged(f.rd), "still charged");
		shutdown(f.peer, SHUT_WR);
		expect_eof(f.rd);
		flow_close(&f);
	}
}

/* Returns the result of one call: the bytes, or minus the error. On a socket in a map recv(2)
 * returns EAGAIN when anything but bytes woke it, and may do so for ever.
 */
static int take(const struct flow *f, bool by_splice, int pipe)
{
	int tries = 3;
	char buf[4096];
	ssize_t n;

	do {
		n = by_splice ? splice(f->rd, NULL, pipe, NULL, sizeof(buf), 0) :
				recv(f->rd, buf, sizeof(buf), 0);
	} while (n < 0 && errno == EAGAIN && !by_splice && tries--);
	return n < 0 ? -errno : n;
}

/* Three calls after a parser has failed. The last two come after the FIN. */
static void give_up(int results[3], bool by_splice)
{
	struct flow f;
	int p[2];

	flow_open(&f, KIND_STRP, AF_INET);
	make_pipe(p, 0);
	send_stream(f.wr, 0, 1000);
	splice_stream(f.rd, 0, 1000, 65536, 0);
	flow_parse(&f, -EPROTO);
	send_stream(f.wr, 1000, 1000);
	for (int i = 0; i < 3; i++) {
		results[i] = take(&f, by_splice, p[1]);
		if (!i)
			shutdown(f.wr, SHUT_WR);
	}
	flow_close(&f);
	close(p[0]);
	close(p[1]);
}

void case_parser_gives_up(void)
{
	int by_read[3], by_splice[3];

	give_up(by_read, false);
	give_up(by_splice, true);
	for (int i = 0; i < 3; i++)
		check(by_splice[i] == by_read[i] || by_read[i] == -EAGAIN,
		      "call %d: splice(2) %d, read(2) %d", i, by_splice[i], by_read[i]);
	check(by_splice[0] == -EPROTO && !by_splice[1] && !by_splice[2], "%d, then %d and %d",
	      by_splice[0], by_splice[1], by_splice[2]);
}

/* Bytes that TCP queued before the socket was added to the map, and bytes that came later. */
void case_queued_before(void)
{
	static const enum kind kinds[] = {
		KIND_BASE, KIND_PASS, KIND_SELF, KIND_HASH, KIND_PULLED, KIND_STRP,
	};

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct flow f;

		flow_open(&f, kinds[i], AF_INET);
		set_timeo(f.rd, 10000);
		flow_unmap(&f);
		send_stream(f.wr, 0, 3000);
		await_bytes(f.rd, 3000);
		flow_map(&f);
		send_stream(f.wr, 3000, 2000);
		splice_stream(f.rd, 0, 5000, 701, 0);
		check(uncharged(f.rd), "%s: still charged", kind_names[kinds[i]]);
		shutdown(f.wr, SHUT_WR);
		expect_eof(f.rd);
		flow_close(&f);
	}
}

/* Waits until the other end's kernel has acknowledged every byte. */
static void await_acked(int fd)
{
	int n;

	do
		check(!ioctl(fd, SIOCOUTQ, &n), "%s", strerror(errno));
	while (n);
}

/* Records of two batches are unread when the program is detached. TCP has the bytes that came
 * after them.
 */
void case_unmap_between_records(void)
{
	struct flow f;

	flow_open(&f, KIND_STRP, AF_INET);
	set_timeo(f.rd, 10000);
	flow_map_too(&f);
	for (uint64_t pos = 0; pos < 2000; pos += 1000) {
		send_stream(f.wr, pos, 1000);
		await_acked(f.wr);
	}
	flow_unmap(&f);
	send_stream(f.wr, 2000, 1500);
	await_acked(f.wr);
	splice_stream(f.rd, 0, 2000, 2000, 0);
	splice_stream(f.rd, 2000, 1500, 65536, 0);
	shutdown(f.wr, SHUT_WR);
	expect_eof(f.rd);
	flow_close(&f);
}

/* A program that empties a message leaves pieces without bytes in it. These hold no reference on
 * their pages. The pages are the sender's, which goes on to use them.
 */
void case_emptied_messages(void)
{
	static char buf[40000];
	uint64_t pos = 0;
	struct flow f;

	flow_open(&f, KIND_MSG, AF_INET);
	set_timeo(f.rd, 10000);
	for (int i = 0; i < 100; i++) {
		flow_empty(&f, true);
		check(send(f.wr, buf, sizeof(buf), 0) > 0, "%s", strerror(errno));
		flow_empty(&f, false);
		send_stream(f.wr, pos, 5000);
		splice_stream(f.rd, pos, 5000, 65536, 0);
		pos += 5000;
	}
	flow_close(&f);
}

/* The FIN after no, two or four messages. The chunks end before, at and after the last byte. The
 * pipe may be full at that point.
 */
void case_fin_positions(void)
{
	static const size_t pieces[] = { 700, 1, 4096, 300 };
	static const size_t chunks[] = { 700, 701, 5097, 65536 };

	for (enum kind k = 0; k < KIND_MAX; k++) {
		for (unsigned int n = 0; n <= 4; n += 2) {
			for (unsigned int c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c++) {
				bool strp = k == KIND_STRP || k == KIND_STRP_REDIR;
				size_t len = 0;
				struct flow f;

				flow_open(&f, k, AF_INET);
				set_timeo(f.rd, 10000);
				for (unsigned int i = 0; i < n; i++) {
					size_t piece = strp ? 1000 : pieces[i];

					send_stream(f.wr, len, piece);
					len += piece;
				}
				await_bytes(f.rd, len);
				shutdown(f.peer, SHUT_WR);
				splice_stream(f.rd, 0, len, chunks[c], c % 2 ? 4096 : 0);
				expect_eof(f.rd);
				check(recv(f.rd, &(char){ 0 }, 1, 0) == 0, "%s: read(2) after it",
				      kind_names[k]);
				flow_close(&f);
			}
		}
	}
}

/* One and a half records, then the FIN: on the reader's own connection or on another one. */
static void end_in_record(enum kind kind, int results[3], bool by_splice)
{
	struct flow f;
	int p[2];

	flow_open(&f, kind, AF_INET);
	make_pipe(p, 0);
	set_timeo(f.rd, 10000);
	send_stream(f.wr, 0, 1500);
	shutdown(f.wr, SHUT_WR);
	results[0] = take(&f, by_splice, p[1]);
	if (!flow_own(&f))
		set_nonblock(f.rd);
	for (int i = 1; i < 3; i++)
		results[i] = take(&f, by_splice, p[1]);
	flow_close(&f);
	close(p[0]);
	close(p[1]);
}

void case_fin_in_record(void)
{
	static const enum kind kinds[] = { KIND_STRP, KIND_STRP_REDIR };

	for (int k = 0; k < 2; k++) {
		int by_read[3], by_splice[3];

		end_in_record(kinds[k], by_read, false);
		end_in_record(kinds[k], by_splice, true);
		for (int i = 0; i < 3; i++)
			check(by_splice[i] == by_read[i], "%s, call %d: splice(2) %d, read(2) %d",
			      kind_names[kinds[k]], i, by_splice[i], by_read[i]);
		check(by_splice[0] == 1000, "%s: %d", kind_names[kinds[k]], by_splice[0]);
	}
}

/* Bytes and the FIN of another connection, then bytes on the reader's own. The message of the FIN
 * stays queued. A reader with a verdict program gets end of file, for good. Without one, the
 * kernel's read(2) returns EFAULT, for good, and splice(2) returns end of file.
 */
static void end_elsewhere(enum kind kind, int results[4], bool by_splice)
{
	struct flow f;
	int p[2];

	flow_open(&f, kind, AF_INET);
	flow_redirect_fin(&f);
	make_pipe(p, 0);
	set_timeo(f.rd, 10000);
	send_stream(f.wr, 0, 1000);
	results[0] = take(&f, by_splice, p[1]);
	shutdown(f.wr, SHUT_WR);
	for (int i = 1; i < 3; i++)
		results[i] = take(&f, by_splice, p[1]);
	send_stream(f.peer, BACK, 500);
	results[3] = take(&f, by_splice, p[1]);
	flow_close(&f);
	close(p[0]);
	close(p[1]);
}

void case_fin_redirected(void)
{
	static const enum kind kinds[] = { KIND_REDIR, KIND_REDIR_BASE };

	for (int k = 0; k < 2; k++) {
		int by_read[4], by_splice[4];

		end_elsewhere(kinds[k], by_read, false);
		end_elsewhere(kinds[k], by_splice, true);
		for (int i = 0; i < 4; i++) {
			check(by_splice[i] == by_read[i] || (k && i && by_read[i] == -EFAULT),
			      "%s, call %d: splice(2) %d, read(2) %d", kind_names[kinds[k]], i,
			      by_splice[i], by_read[i]);
			check(by_splice[i] == (i ? 0 : 1000), "%s, call %d: %d",
			      kind_names[kinds[k]], i, by_splice[i]);
		}
	}
}

/* A reset wakes a sleeping reader. Bytes in the pipe stay. */
void case_reset_asleep(void)
{
	struct linger lg = { 1, 0 };

	for (enum kind k = 0; k < KIND_MAX; k++) {
		struct sleeper s;
		struct flow f;
		int p[2];

		flow_open(&f, k, AF_INET);
		make_pipe(p, 0);
		send_stream(f.wr, 0, 3000);
		await_bytes(f.rd, 3000);
		check(splice(f.rd, NULL, p[1], NULL, 65536, 0) == 3000, "%s: %s", kind_names[k],
		      strerror(errno));
		sleeper_start(&s, f.rd, p[1]);
		setsockopt(f.peer, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
		close(f.peer);
		pthread_join(s.thread, NULL);
		check(s.ret == -1 && s.err == ECONNRESET, "%s: %zd %s", kind_names[k], s.ret,
		      strerror(s.err));
		close(f.rd);
		drain_pipe(p[0], 0, 3000);
		close(p[0]);
		close(p[1]);
	}
}

/* The socket enters and leaves the map again and again, with no unread bytes. Each time a reader
 * sleeps, and its bytes then come through the other queue.
 */
void case_unmap_again(void)
{
	static const enum kind kinds[] = { KIND_BASE, KIND_PASS, KIND_SELF, KIND_HASH };

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct flow f;
		int p[2];

		flow_open(&f, kinds[i], AF_INET);
		make_pipe(p, 0);
		for (int round = 0; round < 100; round++) {
			struct sleeper s;

			sleeper_start(&s, f.rd, p[1]);
			flow_unmap(&f);
			send_stream(f.wr, 0, 1000);
			pthread_join(s.thread, NULL);
			check(s.ret == 1000, "%s, out: %zd %s", kind_names[kinds[i]], s.ret,
			      strerror(s.err));
			drain_pipe(p[0], 0, 1000);
			flow_map(&f);
			send_stream(f.wr, 1000, 1000);
			splice_stream(f.rd, 1000, 1000, 65536, 0);
		}
		check(uncharged(f.rd), "still charged");
		flow_close(&f);
	}
}

struct flipper {
	pthread_t thread;
	struct flow *f;
	atomic_bool stop;
	int flips;
};

static void *flipper_run(void *arg)
{
	struct flipper *x = arg;

	while (!atomic_load(&x->stop)) {
		flow_unmap(x->f);
		flow_map(x->f);
		x->flips++;
	}
	return NULL;
}

/* As case_unmap_again(), at full speed. When a socket leaves the map, the kernel drops its unread
 * bytes, with read(2) as well. So the number of bytes that arrive is not fixed. The reader never
 * gets more than was sent, and nothing may break.
 */
void case_unmap_flowing(void)
{
	static const enum kind kinds[] = { KIND_PASS, KIND_HASH, KIND_BASE };

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct flow f;
		struct flipper x = { .f = &f };
		size_t sent = 0, got = 0;
		char buf[65536] = "";
		int p[2];

		flow_open(&f, kinds[i], AF_INET);
		make_pipe(p, 0);
		set_nonblock(f.rd);
		set_nonblock(f.wr);
		check(!pthread_create(&x.thread, NULL, flipper_run, &x), "thread");
		for (long start = ms(); ms() - start < 2000;) {
			ssize_t n = send(f.wr, buf, 20000, MSG_NOSIGNAL);

			if (n > 0)
				sent += n;
			n = splice(f.rd, NULL, p[1], NULL, sizeof(buf), 0);
			check(n > 0 || (n < 0 && errno == EAGAIN), "%s: %zd %s", kind_names[kinds[i]], n,
			      strerror(errno));
			if (n > 0) {
				check(read(p[0], buf, n) == n, "pipe");
				got += n;
			}
		}
		atomic_store(&x.stop, true);
		pthread_join(x.thread, NULL);
		check(got <= sent && x.flips, "%zu bytes of %zu", got, sent);
		flow_close(&f);
	}
}
