// SPDX-License-Identifier: GPL-2.0
/* Sockets that are paired when they are spliced: the ring is source or sink, and the module's
 * counters show it. paired.test runs this with enroll_all=1.
 */
#include <netinet/tcp.h>
#include <sys/mman.h>

#include "sosplice.h"

#define MIB	(1 << 20)
#define RING	65536		/* the module's default */

/* The bytes that splices had moved from rings and into rings at the last call of count(). */
static uint64_t from_ring, to_ring;

static void count(uint64_t *from, uint64_t *to)
{
	uint64_t was_from = from_ring, was_to = to_ring;

	from_ring = counter("so_splice_from_ring_bytes");
	to_ring = counter("so_splice_to_ring_bytes");
	*from = from_ring - was_from;
	*to = to_ring - was_to;
}

static void went(uint64_t from, uint64_t to)
{
	uint64_t f, t;

	count(&f, &t);
	check(f == from && t == to, "%llu from a ring, %llu into one",
	      (unsigned long long)f, (unsigned long long)t);
}

/* Sends one byte each way. Once an end has read, its peer sends through the ring. */
static void open_rings(int a, int b)
{
	stream_write(a, 0, 1);
	stream_read(b, 0, 1);
	stream_write(b, 0, 1);
	stream_read(a, 0, 1);
}

static void legs_open(struct relay *r, int family, bool paired_source, bool paired_sink)
{
	uint64_t f, t;

	set_switch("enroll_all", paired_source ? "1" : "0");
	connect_pair(family, &r->c, &r->p);
	set_switch("enroll_all", paired_sink ? "1" : "0");
	connect_pair(family == AF_INET ? AF_INET6 : AF_INET, &r->q, &r->s);
	set_switch("enroll_all", "1");
	open_rings(r->c, r->p);
	open_rings(r->q, r->s);
	count(&f, &t);
}

struct writer {
	pthread_t thread;
	int fd;
	uint64_t pos;
	size_t len;
};

static void *writing(void *arg)
{
	struct writer *w = arg;

	stream_write(w->fd, w->pos, w->len);
	return NULL;
}

static void write_start(struct writer *w, int fd, uint64_t pos, size_t len)
{
	*w = (struct writer){ .fd = fd, .pos = pos, .len = len };
	check(!pthread_create(&w->thread, NULL, writing, w), "no thread");
}

/* Sent one at a time, all messages go through the rings, to the byte. Many at once fill the rings
 * and then go over TCP, in order.
 */
static void moves(int family, bool paired_source, bool paired_sink)
{
	const int rounds = 20, len = 5000;
	struct writer w;
	struct relay r;
	uint64_t f, t;
	int i;

	legs_open(&r, family, paired_source, paired_sink);
	splice_on(&r);
	for (i = 0; i < rounds; i++) {
		stream_write(r.c, i * len, len);
		stream_read(r.s, i * len, len);
	}
	wait_moved(r.p, rounds * len);
	went(paired_source ? rounds * len : 0, paired_sink ? rounds * len : 0);

	write_start(&w, r.c, rounds * len, MIB);
	stream_read(r.s, rounds * len, MIB);
	pthread_join(w.thread, NULL);
	wait_moved(r.p, rounds * len + MIB);
	count(&f, &t);
	check(!!f == paired_source && !!t == paired_sink && f <= MIB && t <= MIB,
	      "%llu from a ring, %llu into one", (unsigned long long)f, (unsigned long long)t);
}

static void ring_to_ring(void)
{
	moves(AF_INET, true, true);
}

static void ring_to_tcp(void)
{
	moves(AF_INET6, true, false);
}

static void tcp_to_ring(void)
{
	moves(AF_INET, false, true);
}

/* Bytes in the ring when the socket is spliced go first, and once. */
static void queued_in_ring(void)
{
	struct relay r;

	legs_open(&r, AF_INET, true, true);
	stream_write(r.c, 1, 50000);
	splice_on(&r);
	stream_read(r.s, 1, 50000);
	stream_write(r.c, 50001, 5000);
	stream_read(r.s, 50001, 5000);
	wait_moved(r.p, 55000);
	went(55000, 55000);
}

/* Unread bytes: first in TCP's queue, then in the ring, then in TCP's queue again. */
static void queued_in_both(void)
{
	uint64_t sent, f, t;
	struct relay r;

	set_switch("enroll_all", "1");
	relay_open(&r, AF_INET, AF_INET);
	open_rings(r.q, r.s);
	count(&f, &t);
	stream_write(r.c, 0, 3000);		/* over TCP: no task has read yet */
	stream_read(r.p, 0, 1000);		/* opens the ring */
	stream_write(r.c, 3000, 1000);
	sent = 4000 + fill(r.c, 4000);
	check(sent > RING + 4000, "%llu", (unsigned long long)sent);
	splice_on(&r);
	stream_read(r.s, 1000, sent - 1000);
	wait_moved(r.p, sent - 1000);
	count(&f, &t);
	check(f >= RING && f < sent, "%llu of %llu from the ring", (unsigned long long)f,
	      (unsigned long long)sent);
}

/* The ring's bytes follow bytes that TCP has in flight, because the reader has stopped. No byte
 * overtakes another, for the sink or, after the splice, for the reader.
 */
static void ring_out_of_reach(void)
{
	uint64_t pos = 1, read = 1, moved;
	struct relay r;
	int i;

	legs_open(&r, AF_INET, true, true);
	for (i = 0; i < 4; i++) {
		/* Read TCP's part of the bytes but for a rest. The ring may open again behind the
		 * bytes in flight, or not. In both cases the stream must be exact.
		 */
		pos += fill(r.c, pos);
		while (read + 30000 < pos) {
			size_t n = stream_take(r.p, read);

			read += n;
			if (!n)
				break;
			if (read % 3 == 0)
				pos += stream_give(r.c, pos);
		}
		pos += stream_give(r.c, pos);
		splice_fds(r.p, r.q, i % 2 ? 20000 : 0, 0);
		if (i % 2) {
			wait_error(r.p, EFBIG);
			stream_read(r.s, read, 20000);
			read += 20000;
		} else {
			stream_read(r.s, read, 10000);
			check(!socksplice_unsplice(r.p), "%s", strerror(errno));
			moved = socksplice_moved(r.p);
			stream_read(r.s, read + 10000, moved - 10000);
			read += moved;
		}
	}
	stream_read(r.p, read, pos - read);
}

/* The limit counts the ring's bytes. The rest of them stays readable at the source. */
static void limit_in_ring(void)
{
	struct relay r;

	legs_open(&r, AF_INET, true, true);
	stream_write(r.c, 1, 50000);
	splice_fds(r.p, r.q, 12345, 0);
	wait_error(r.p, EFBIG);
	check(socksplice_moved(r.p) == 12345, "%lld", (long long)socksplice_moved(r.p));
	went(12345, 12345);
	check(poll_now(r.p) & POLLIN, "%x", poll_now(r.p));
	stream_read(r.s, 1, 12345);
	stream_read(r.p, 12346, 50000 - 12345);
	stream_write(r.c, 50001, 100);
	stream_read(r.p, 50001, 100);
}

/* The end of the stream comes after the ring's bytes. */
static void eof_behind_ring(void)
{
	struct relay r;
	char c;

	legs_open(&r, AF_INET, true, true);
	stream_write(r.c, 1, 50000);
	shutdown(r.c, SHUT_WR);
	splice_on(&r);
	stream_read(r.s, 1, 50000);
	check(!read(r.p, &c, 1), "no end of file");
	check(!so_error(r.p), "an error");
	wait_moved(r.p, 50000);
	went(50000, 50000);
}

/* Bytes that the sink itself has received are for the sink's reader. */
static void sink_has_unread(void)
{
	struct relay r;

	legs_open(&r, AF_INET, true, true);
	stream_write(r.s, 1, 30000);
	splice_on(&r);
	stream_write(r.c, 1, 20000);
	stream_read(r.s, 1, 20000);
	check(poll_now(r.q) & POLLIN, "%x", poll_now(r.q));
	stream_write(r.s, 30001, 1000);
	stream_read(r.q, 1, 31000);
	wait_moved(r.p, 20000);
	went(20000, 20000);
	/* Spliced the other way, the stream continues at the same place. */
	stream_write(r.s, 31001, 5000);
	splice_fds(r.q, r.p, 0, 0);
	stream_read(r.c, 31001, 5000);
	wait_moved(r.q, 5000);
	went(5000, 5000);
}

/* The splice is ended in the middle of the ring's bytes, with a full sink. */
static void full_sink(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), n;
	uint64_t sent, moved;
	struct relay r;

	legs_open(&r, AF_INET, true, false);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev);
	splice_on(&r);
	sent = fill(r.c, 1);
	n = epoll_wait(ep, &ev, 1, 300);
	check(!n, "events %x", ev.events);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLIN, "%d events", n);
	moved = socksplice_moved(r.p);
	check(moved && moved < sent, "%llu of %llu moved", (unsigned long long)moved,
	      (unsigned long long)sent);
	stream_read(r.p, 1 + moved, sent - moved);
	stream_read(r.s, 1, moved);
}

/* The pairs are dropped while the splice moves bytes. The splice goes on over TCP, no byte stays in
 * a ring, and the sockets are free when it ends.
 */
static void pairs_dropped(void)
{
	const size_t len = 4 * MIB;
	struct writer w;
	struct relay r;
	uint64_t f, t;
	FILE *drop;

	legs_open(&r, AF_INET, true, true);
	splice_on(&r);
	write_start(&w, r.c, 1, len);
	stream_read(r.s, 1, len / 4);
	/* The command waits until the rings have been read, which this thread does. */
	drop = popen("socksplice pair drop --all", "w");
	stream_read(r.s, 1 + len / 4, len - len / 4);
	pthread_join(w.thread, NULL);
	wait_moved(r.p, len);
	check(!pclose(drop), "still paired");
	count(&f, &t);
	check(f && t, "nothing by ring");
	stream_write(r.c, 0, 5000);
	stream_read(r.s, 0, 5000);
	went(0, 0);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_write(r.c, 0, 1000);
	stream_read(r.p, 0, 1000);
}

/* After the splice, bytes in a ring wake the reader again. */
static void rings_again(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), i, n;
	uint64_t before;
	struct relay r;

	legs_open(&r, AF_INET, true, true);
	epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev);
	before = counter("ring_bytes");
	for (i = 0; i < 50; i++) {
		splice_on(&r);
		stream_write(r.c, i * 200, 100);
		stream_read(r.s, i * 200, 100);
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		stream_write(r.c, i * 200 + 100, 100);
		n = epoll_wait(ep, &ev, 1, 20000);
		check(n == 1 && ev.events & EPOLLIN, "%d events", n);
		stream_read(r.p, i * 200 + 100, 100);
	}
	went(5000, 5000);
	check(counter("ring_bytes") == before + 15000, "not all by ring");
}

static void *reading_32(void *arg)
{
	enum { READ = 3, LEN = 100 };
	struct writer *w = arg;
	void *low = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	check(low != MAP_FAILED, "%s", strerror(errno));
	w->len = call32(READ, w->fd, (int)(long)low, LEN, NULL, 0);
	return NULL;
}

/* The splice cannot interrupt a sleeping 32-bit reader, and moves bytes all the same. */
static void reader_of_32_bit(void)
{
	struct writer reader = {};
	struct relay r;

	if (!has_32_bit_calls()) {
		printf("# no 32-bit calls here\n");
		return;
	}
	legs_open(&r, AF_INET, true, true);
	reader.fd = r.p;
	check(!pthread_create(&reader.thread, NULL, reading_32, &reader), "no thread");
	sleep_ms(200);		/* if it is not asleep yet, it has less to withstand */
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	wait_moved(r.p, 1000);
	went(1000, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_write(r.c, 1000, 100);
	pthread_join(reader.thread, NULL);
	check(reader.len == 100, "%zd", (ssize_t)reader.len);
}

/* A paired connection p, c is spliced at p, goes back to TCP, and then the loop is closed at c. */
static void loop_after_unpairing(void)
{
	uint64_t before = counter("so_splice_loops");
	long start = ms();
	struct relay r;
	int err;

	legs_open(&r, AF_INET, true, false);
	splice_on(&r);
	stream_write(r.c, 0, 5000);
	stream_read(r.s, 0, 5000);
	wait_moved(r.p, 5000);
	went(5000, 0);
	check(setsockopt(r.c, IPPROTO_TCP, TCP_ULP, "socksplice-none", 15), "there is such a ULP");
	splice_fds(r.s, r.c, 0, 0);
	stream_write(r.q, 0, 1000);
	while (!(err = so_error(r.p)) && !(err = so_error(r.s))) {
		check(ms() - start < 20000, "the loop goes round and round");
		sleep_ms(2);
	}
	check(err == ELOOP, "%s", strerror(err));
	check(counter("so_splice_loops") == before + 1, "found %d times",
	      (int)(counter("so_splice_loops") - before));
}

const struct sock_case leg_cases[] = {
	{ "ring-to-ring", ring_to_ring },
	{ "ring-to-TCP", ring_to_tcp },
	{ "TCP-to-ring", tcp_to_ring },
	{ "queued-in-ring", queued_in_ring },
	{ "queued-in-ring-and-TCP", queued_in_both },
	{ "ring-out-of-reach", ring_out_of_reach },
	{ "EFBIG-in-ring", limit_in_ring },
	{ "EOF-behind-ring", eof_behind_ring },
	{ "sink-has-unread-ring", sink_has_unread },
	{ "full-sink-and-ring", full_sink },
	{ "pairs-dropped-while-spliced", pairs_dropped },
	{ "rings-again-after-splice", rings_again },
	{ "ELOOP-after-un-pairing", loop_after_unpairing },
	{ "reader-of-32-bit-asleep", reader_of_32_bit },
	{}
};
