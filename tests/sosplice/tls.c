// SPDX-License-Identifier: GPL-2.0
/* SO_SPLICE with kTLS. Each case proves by the count that the splice moved it. */
#include <netinet/tcp.h>
#include <sys/syscall.h>

#include "tls.h"

#define MUCH	600000

static void move_much(int which, int version)
{
	uint64_t before = counter("so_splice_bytes");
	struct relay r;
	pid_t one, other, reader;

	tls_open(&r, which, version);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	one = write_all(r.c, MUCH);
	other = write_all(r.s, MUCH);
	reader = fork();
	if (!reader) {
		stream_read(r.c, 0, MUCH);
		_exit(0);
	}
	stream_read(r.s, 0, MUCH);
	wait_ok(one);
	wait_ok(other);
	wait_ok(reader);
	wait_moved(r.p, MUCH);
	wait_moved(r.q, MUCH);
	wait_counter("so_splice_bytes", before + 2 * MUCH);
}

static void tls_source_and_sink_tcp(void)
{
	move_much(CLIENT, TLS_1_3_VERSION);
}

static void tls12_source_and_sink_tcp(void)
{
	move_much(CLIENT, TLS_1_2_VERSION);
}

static void tls_to_tls(void)
{
	move_much(CLIENT | SERVER, TLS_1_3_VERSION);
}

static void tls12_to_tls12(void)
{
	move_much(CLIENT | SERVER, TLS_1_2_VERSION);
}

static void tls_ipv6(void)
{
	struct relay r;

	relay_open(&r, AF_INET6, AF_INET6);
	secure(r.c, r.p, TLS_1_3_VERSION);
	secure(r.q, r.s, TLS_1_2_VERSION);
	splice_on(&r);
	stream_write(r.c, 0, 100000);
	stream_read(r.s, 0, 100000);
	wait_moved(r.p, 100000);
}

static void tls_queued(void)
{
	struct relay r;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	stream_write(r.c, 0, 1000);
	stream_read(r.p, 0, 10);	/* TLS keeps the rest of the record */
	stream_write(r.c, 1000, 40000);
	splice_on(&r);
	check(socksplice_moved(r.p) == 40990, "%lld", (long long)socksplice_moved(r.p));
	stream_write(r.q, 41000, 10);	/* behind what was queued */
	stream_read(r.s, 10, 41000);
}

static void limit(int which)
{
	struct relay r;

	tls_open(&r, which, TLS_1_3_VERSION);
	splice_fds(r.p, r.q, 20001, 0);
	stream_write(r.c, 0, 50000);
	wait_error(r.p, EFBIG);
	check(socksplice_moved(r.p) == 20001, "%lld", (long long)socksplice_moved(r.p));
	stream_read(r.s, 0, 20001);
	stream_read(r.p, 20001, 9);	/* the rest of the record is the application's */
	splice_fds(r.p, r.q, 29990, 0);
	wait_error(r.p, EFBIG);
	check(socksplice_moved(r.p) == 29990, "%lld", (long long)socksplice_moved(r.p));
	stream_read(r.s, 20010, 29990);
}

static void tls_limit_source(void)
{
	limit(CLIENT);
}

static void tls_limit_sink(void)
{
	limit(SERVER);
}

static void tls_limit_both(void)
{
	limit(CLIENT | SERVER);
}

static void control_record(int version)
{
	struct relay r;

	tls_open(&r, CLIENT, version);
	splice_on(&r);
	stream_write(r.c, 0, 20000);
	send_record(r.c, ALERT, "\1\0", 2);
	stream_write(r.c, 20000, 10);
	wait_error(r.p, ENOMSG);
	check(socksplice_moved(r.p) == 20000, "%lld", (long long)socksplice_moved(r.p));
	stream_read(r.s, 0, 20000);
	/* it is still there */
	check(!try_splice(r.p, r.q), "%s", strerror(errno));
	wait_error(r.p, ENOMSG);
	want_record(r.p, ALERT, "\1\0", 2);
	splice_on(&r);
	stream_read(r.s, 20000, 10);
	send_record(r.c, HANDSHAKE, "\4abc", 4);
	wait_error(r.p, ENOMSG);
	want_record(r.p, HANDSHAKE, "\4abc", 4);
}

static void tls_control_record(void)
{
	control_record(TLS_1_3_VERSION);
}

static void tls12_control_record(void)
{
	control_record(TLS_1_2_VERSION);
}

static void tls_end_of_stream(void)
{
	struct relay r;
	char c;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	stream_write(r.c, 0, 5000);
	shutdown(r.c, SHUT_WR);
	wait_end(r.p);
	has_ended(r.p);
	check(!read(r.p, &c, 1), "not the end");
	send_record(r.q, ALERT, "\1\0", 2);
	stream_read(r.s, 0, 5000);
	want_record(r.s, ALERT, "\1\0", 2);
}

static void set_tcp(int fd, int name, int value)
{
	check(!setsockopt(fd, IPPROTO_TCP, name, &value, sizeof(value)), "%s", strerror(errno));
}

/* What TLS has of a record, and TCP has no room for, is lost at a close. The splice does not end
 * before TCP has it.
 */
static void close_at_once(int i, bool slow)
{
	const uint64_t len = slow ? 30000 + 2000 * i : 60000 + 777 * i;
	pid_t writer, reader;
	struct relay r;
	uint64_t pos;

	tls_open(&r, i % 2 ? SERVER : CLIENT | SERVER, i % 3 ? TLS_1_3_VERSION : TLS_1_2_VERSION);
	set_buf(r.q, slow ? 60000 : 4096 + 1500 * i, 0);
	if (slow)
		set_tcp(r.q, TCP_NOTSENT_LOWAT, 1);
	set_buf(slow ? r.p : r.s, 0, slow ? 100000 : 20000);
	splice_on(&r);
	writer = write_all(r.c, len);
	close(r.c);
	sleep_ms(20);		/* the sink is full */
	reader = fork();
	if (!reader) {
		char c;

		close(r.q);
		close(r.p);
		for (pos = 0; slow && pos < len; pos += 2000) {
			stream_read(r.s, pos, 2000);
			sleep_ms(10);
		}
		stream_read(r.s, pos, len - pos);
		check(!read(r.s, &c, 1), "more");
		_exit(0);
	}
	close(r.s);
	wait_ok(writer);
	wait_end(r.p);
	check(socksplice_moved(r.p) == (int64_t)len, "%lld", (long long)socksplice_moved(r.p));
	has_ended(r.p);
	close(r.q);
	close(r.p);
	wait_ok(reader);
}

static void tls_close_at_once(void)
{
	int i;

	for (i = 0; i < 20; i++)
		close_at_once(i, false);
}

/* In a namespace where packets are smaller than records, and TCP stops in the middle of one. */
static void small_packets(void)
{
	other_namespace();
	write_file("/proc/sys/net/ipv4/tcp_rmem", "4096 8192 8192");
}

static void tls_part_of_record(void)
{
	int i;

	small_packets();
	for (i = 0; i < 8; i++)
		close_at_once(i, true);
}

/* Whatever the sink does not take stays in the source. */
static void full(int which, int snd)
{
	struct relay r;
	uint64_t given, moved, got = 0;
	char buf[65536];
	long quiet;

	tls_open(&r, which, TLS_1_3_VERSION);
	set_buf(r.q, snd, 0);
	set_buf(r.s, 0, 8192);
	set_buf(r.c, 30000, 0);
	set_buf(r.p, 0, 30000);
	stream_write(r.c, 0, 1000);
	splice_fds(r.p, r.q, 0, 500);
	given = 1000 + fill(r.c, 1000);
	wait_error(r.p, ETIMEDOUT);
	moved = socksplice_moved(r.p);
	check(moved && moved < given, "%llu of %llu", (unsigned long long)moved,
	      (unsigned long long)given);
	stream_read(r.s, 0, moved);
	stream_read(r.p, moved, 100);
	splice_on(&r);
	for (quiet = ms(), got = moved + 100; ms() - quiet < 20000 && got < given; ) {
		size_t n = stream_take(r.s, got);

		got += n;
		if (!n)
			sleep_ms(2);
	}
	check(got == given, "%llu of %llu", (unsigned long long)got, (unsigned long long)given);
	check(recv(r.s, buf, 1, MSG_DONTWAIT) < 0, "more");
	wait_moved(r.p, given - moved - 100);
}

static void tls_full_sink(void)
{
	full(SERVER, 30000);
	full(CLIENT | SERVER, 4608);
}

static void tls_full_sink_tcp(void)
{
	full(CLIENT, 30000);
}

static void tls_sink_gone(void)
{
	struct relay r;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	shutdown(r.q, SHUT_WR);
	wait_error(r.p, EPIPE);

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	stream_write(r.c, 0, 100);
	stream_read(r.s, 0, 100);
	close(r.q);
	wait_error(r.p, EPIPE);
	stream_write(r.c, 100, 100);
	stream_read(r.p, 100, 100);

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	reset(r.s);
	stream_write(r.c, 0, 100);
	wait_end(r.p);
	check(so_error(r.p) != 0, "no error");
	stream_read(r.p, 0, 100);
}

static void tls_source_reset(void)
{
	struct relay r;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	reset(r.c);
	wait_error(r.p, ECONNRESET);
	wait_end(r.p);
	has_ended(r.p);
}

/* Closing and resetting any of the four, at any moment. */
static void tls_storm(void)
{
	struct relay r;
	pid_t writer;
	int i, fd;

	for (i = 0; i < 32; i++) {
		tls_open(&r, 1 + i % 3, i % 2 ? TLS_1_3_VERSION : TLS_1_2_VERSION);
		splice_on(&r);
		splice_fds(r.q, r.p, 0, 0);
		writer = fork();
		if (!writer) {
			for (;;)
				if (send(r.c, "0123456789abcdef", 16, MSG_NOSIGNAL) < 0 ||
				    send(r.s, "fedcba9876543210", 16, MSG_NOSIGNAL) < 0)
					_exit(0);
		}
		fd = (int []){ r.c, r.p, r.q, r.s }[i % 4];
		usleep(i * 997 % 20000);
		if (i % 8 > 3)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
				   sizeof(struct linger));
		if (i % 5)
			shutdown(fd, i % 3);
		kill(writer, SIGKILL);
		waitpid(writer, NULL, 0);
		close(fd);
		usleep(i * 331 % 5000);
		close(r.c);
		close(r.p);
		close(r.q);
		close(r.s);
	}
}

static void tls_bad_record(void)
{
	struct relay r;
	char bad[100] = "\27\3\3\0\x5f";

	relay_open(&r, AF_INET, AF_INET);
	if (set_ulp(r.p) == ENOENT)
		exit(SKIPPED);
	check(!set_keys(r.p, TLS_RX, TLS_1_3_VERSION, 'a'), "%s", strerror(errno));
	splice_on(&r);
	check(write(r.c, bad, sizeof(bad)) == sizeof(bad), "%s", strerror(errno));
	wait_error(r.p, EBADMSG);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
}

static void tls_hidden(void)
{
	struct relay r;
	char c;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	set_buf(r.q, 4608, 0);
	set_buf(r.s, 0, 4608);
	splice_on(&r);
	fill(r.c, 0);
	check(!(poll_now(r.p) & (POLLIN | POLLRDHUP)), "%x", poll_now(r.p));
	check(recv(r.p, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "%s", strerror(errno));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(poll_now(r.p) & POLLIN, "%x", poll_now(r.p));
	stream_read(r.p, socksplice_moved(r.p), 1);
}

static int tid;		/* of the last thread; release/acquire */

static void set_tid(void)
{
	__atomic_store_n(&tid, gettid(), __ATOMIC_RELEASE);
}

/* Waits until the last thread is asleep in this system call. */
static void wait_last_asleep(long nr)
{
	char path[64], line[64], want[16];
	int id;
	FILE *f;

	while (!(id = __atomic_load_n(&tid, __ATOMIC_ACQUIRE)))
		sleep_ms(1);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", id);
	snprintf(want, sizeof(want), "%ld 0x", nr);
	do {
		sleep_ms(1);
		f = fopen(path, "r");
		check(f && fgets(line, sizeof(line), f), "%s", strerror(errno));
		fclose(f);
	} while (strncmp(line, want, strlen(want)));
}

static void *read_one(void *arg)
{
	set_tid();
	stream_read(*(int *)arg, 1000, 1000);
	return NULL;
}

/* A reader that was asleep when the splice began reads what is left when it has ended. */
static void tls_reader_asleep(void)
{
	struct relay r;
	pthread_t t;

	tls_open(&r, CLIENT, TLS_1_3_VERSION);
	check(!pthread_create(&t, NULL, read_one, &r.p), "no thread");
	wait_last_asleep(SYS_read);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	wait_moved(r.p, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_write(r.c, 1000, 1000);
	pthread_join(t, NULL);
}

static void *read_by_recvmmsg(void *arg)
{
	static char buf[1000];
	struct iovec v = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &v, .msg_iovlen = 1 } };

	set_tid();
	check(recvmmsg(*(int *)arg, &m, 1, 0, NULL) == 1, "%s", strerror(errno));
	return NULL;
}

/* A reader that cannot be sent away may take the first record, and does not keep the splice up. */
static void tls_reader_stays(void)
{
	struct relay r;
	pthread_t t;

	tls_open(&r, CLIENT, TLS_1_3_VERSION);
	check(!pthread_create(&t, NULL, read_by_recvmmsg, &r.p), "no thread");
	wait_last_asleep(SYS_recvmmsg);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	pthread_join(t, NULL);
	stream_write(r.c, 1000, 100000);
	stream_read(r.s, 1000, 100000);
	wait_moved(r.p, 100000);
}

static void *write_for_ever(void *arg)
{
	static char zeros[1 << 20];

	set_tid();
	while (send(*(int *)arg, zeros, sizeof(zeros), MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

/* A writer asleep in the sink's TLS has its lock, for as long as the peer likes. */
static void tls_writer_asleep(void)
{
	struct relay r;
	pthread_t t;
	long start;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	set_buf(r.q, 8192, 0);
	set_buf(r.s, 0, 8192);
	check(!pthread_create(&t, NULL, write_for_ever, &r.q), "no thread");
	wait_last_asleep(SYS_sendto);
	stream_write(r.c, 0, 1000);
	start = ms();
	splice_on(&r);
	stream_write(r.c, 1000, 1000);
	sleep_ms(200);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_read(r.p, socksplice_moved(r.p), 2000 - socksplice_moved(r.p));
	check(ms() - start < 5000, "%ld ms", ms() - start);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	reset(r.s);
	pthread_join(t, NULL);
}

/* Records of the application and of the splice do not mix. */
static void tls_other_sender(void)
{
	struct relay r;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	check(send(r.q, "a", 1, MSG_MORE) == 1, "%s", strerror(errno));
	check(write(r.c, "b", 1) == 1, "%s", strerror(errno));
	want_record(r.s, DATA, "ab", 2);
	wait_moved(r.p, 1);
	send_record(r.q, HANDSHAKE, "hello", 5);
	check(write(r.c, "c", 1) == 1, "%s", strerror(errno));
	want_record(r.s, HANDSHAKE, "hello", 5);
	want_record(r.s, DATA, "c", 1);
}

/* TLS would not pass on the rest of the application's record while there is an error. The client
 * leaves what it gets encrypted, because its TLS would take a record out of TCP's way.
 */
static void tls_error_waits(void)
{
	static char buf[100000];
	ssize_t given, raw, n;
	struct relay r;

	small_packets();
	relay_open(&r, AF_INET, AF_INET);
	if (set_ulp(r.c) == ENOENT)
		exit(SKIPPED);
	check(!set_ulp(r.p) && !set_keys(r.c, TLS_TX, TLS_1_3_VERSION, 'a') &&
	      !set_keys(r.p, TLS_RX, TLS_1_3_VERSION, 'a') &&
	      !set_keys(r.p, TLS_TX, TLS_1_3_VERSION, 'b'), "%s", strerror(errno));
	set_tcp(r.p, TCP_NOTSENT_LOWAT, 1);
	given = send(r.p, buf, sizeof(buf), MSG_DONTWAIT);
	check(given > 0, "%s", strerror(errno));
	splice_on(&r);
	stream_write(r.c, 0, 100);
	stream_read(r.s, 0, 100);
	send_record(r.c, ALERT, "\1\0", 2);
	sleep_ms(100);			/* if it is not there yet, less is tested */
	raw = given + (given + RECORD - 1) / RECORD * 22;
	for (; raw; raw -= n) {
		struct pollfd p = { .fd = r.c, .events = POLLIN };

		check(poll(&p, 1, 10000) == 1, "%zd bytes of %zd to go", raw, given);
		n = recv(r.c, buf, raw, 0);
		check(n > 0, "%zd bytes of %zd to go: %s", raw, given, strerror(errno));
	}
	wait_error(r.p, ENOMSG);
	want_record(r.p, ALERT, "\1\0", 2);
}

/* An error of the reverse splice holds the splice up until it is taken. */
static void tls_error_pending(void)
{
	struct relay r;

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	send_record(r.c, ALERT, "\1\0", 2);
	while (!(poll_now(r.p) & POLLERR))
		sleep_ms(2);
	stream_write(r.s, 0, 100);
	sleep_ms(100);
	check(!socksplice_moved(r.q), "%lld", (long long)socksplice_moved(r.q));
	check(so_error(r.p) == ENOMSG, "another error");
	stream_read(r.c, 0, 100);
	wait_moved(r.q, 100);
	want_record(r.p, ALERT, "\1\0", 2);
}

static void tls_errors(void)
{
	struct relay r;
	int err;

	relay_open(&r, AF_INET, AF_INET);
	if (set_ulp(r.p) == ENOENT)
		exit(SKIPPED);
	check(!set_ulp(r.q), "%s", strerror(errno));
	check(!set_keys(r.p, TLS_TX, TLS_1_3_VERSION, 'a'), "%s", strerror(errno));
	check(!set_keys(r.q, TLS_RX, TLS_1_3_VERSION, 'a'), "%s", strerror(errno));
	check((err = try_splice(r.p, r.c)) == EINVAL, "source without TLS_RX: %s", strerror(err));
	check((err = try_splice(r.s, r.q)) == EINVAL, "sink without TLS_TX: %s", strerror(err));

	tls_open(&r, CLIENT | SERVER, TLS_1_3_VERSION);
	check((err = try_splice(r.p, r.p)) == EINVAL, "into itself: %s", strerror(err));
	splice_on(&r);
	check((err = try_splice(r.p, r.q)) == EBUSY, "%s", strerror(err));
	check((err = set_keys(r.p, TLS_RX, TLS_1_3_VERSION, 'a')) == EBUSY, "%s", strerror(err));
	check((err = set_keys(r.q, TLS_TX, TLS_1_3_VERSION, 'a')) == EBUSY, "%s", strerror(err));
	stream_write(r.c, 0, 100);
	stream_read(r.s, 0, 100);
	wait_moved(r.p, 100);

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	check((err = set_ulp(r.p)) == EBUSY && (err = set_ulp(r.q)) == EBUSY, "%s", strerror(err));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(!set_ulp(r.p) && !set_ulp(r.c), "%s", strerror(errno));
}

/* kTLS on a connection that was paired; with what is still paired the ring is used. */
static void tls_and_pairs(void)
{
	uint64_t from = counter("so_splice_from_ring_bytes");
	uint64_t to = counter("so_splice_to_ring_bytes");
	struct relay r;

	tls_open(&r, CLIENT, TLS_1_3_VERSION);
	stream_write(r.s, 0, 100);	/* so that there is a ring */
	stream_read(r.q, 0, 100);
	stream_write(r.q, 0, 100);
	stream_read(r.s, 0, 100);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	stream_write(r.c, 0, 100000);
	stream_read(r.s, 0, 100000);
	stream_write(r.s, 0, 100000);
	stream_read(r.c, 0, 100000);
	wait_moved(r.p, 100000);
	wait_moved(r.q, 100000);
	check(counter("so_splice_to_ring_bytes") > to, "not into the ring");
	check(counter("so_splice_from_ring_bytes") > from, "not from the ring");
}

const struct sock_case tls_cases[] = {
	{ "kTLS-to-TCP-and-back", tls_source_and_sink_tcp },
	{ "kTLS-1.2-to-TCP-and-back", tls12_source_and_sink_tcp },
	{ "kTLS-to-kTLS", tls_to_tls },
	{ "kTLS-1.2-to-kTLS-1.2", tls12_to_tls12 },
	{ "kTLS-of-IPv6", tls_ipv6 },
	{ "kTLS-queued-before", tls_queued },
	{ "kTLS-source-EFBIG-in-record", tls_limit_source },
	{ "kTLS-sink-EFBIG", tls_limit_sink },
	{ "kTLS-to-kTLS-EFBIG", tls_limit_both },
	{ "kTLS-ENOMSG-control-record", tls_control_record },
	{ "kTLS-1.2-ENOMSG-control-record", tls12_control_record },
	{ "kTLS-EOF", tls_end_of_stream },
	{ "kTLS-sink-closed-at-EOF", tls_close_at_once },
	{ "kTLS-part-of-record-at-EOF", tls_part_of_record },
	{ "kTLS-full-sink", tls_full_sink },
	{ "kTLS-to-full-TCP", tls_full_sink_tcp },
	{ "kTLS-EPIPE", tls_sink_gone },
	{ "kTLS-source-reset", tls_source_reset },
	{ "kTLS-storm", tls_storm },
	{ "kTLS-EBADMSG", tls_bad_record },
	{ "kTLS-source-not-readable", tls_hidden },
	{ "kTLS-reader-asleep", tls_reader_asleep },
	{ "kTLS-reader-by-recvmmsg", tls_reader_stays },
	{ "kTLS-writer-asleep-in-sink", tls_writer_asleep },
	{ "kTLS-sink-sends-too", tls_other_sender },
	{ "kTLS-error-waits-for-record", tls_error_waits },
	{ "kTLS-error-of-reverse-splice", tls_error_pending },
	{ "kTLS-EINVAL-EBUSY", tls_errors },
	{}
};

/* With the other connection paired. */
const struct sock_case tls_leg_cases[] = {
	{ "kTLS-and-ring", tls_and_pairs },
	{}
};
