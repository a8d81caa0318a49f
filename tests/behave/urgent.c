// SPDX-License-Identifier: GPL-2.0
/*
 * Urgent data. The urgent byte goes over TCP, and keeps its place between the ring's bytes.
 */
#include "behave.h"

static int mark(int fd)
{
	int n = -1;

	MUST(ioctl(fd, SIOCATMARK, &n));
	return n;
}

static void arrive_urgent(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	where("waiting for urgent data");
	MUST(poll(&p, 1, -1));
}

static void out_of_line(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(recv(k.b, b, 1, MSG_OOB));
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	SAY(send(k.a, "def", 3, 0));
	arrive_urgent(k.b);
	say_poll("poll", poll_now(k.b));
	say("at mark %d", mark(k.b));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	say("at mark %d", mark(k.b));
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(recv(k.b, b, 1, MSG_OOB));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	say("at mark %d", mark(k.b));
	say_poll("poll", poll_now(k.b));
	SAY(send(k.a, "ghi", 3, 0));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

static void urgent_read_first(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "deX", 3, MSG_OOB));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB | MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(send(k.a, "fgh", 3, 0));
	SAY_BUF(recv(k.b, b, 8, MSG_WAITALL), b);
	SAY(recv(k.b, b, 8, MSG_DONTWAIT));
	conn_end(&k);
}

static void in_line(void)
{
	struct conn k;
	char b[16];
	int on = 1;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	SAY(send(k.a, "def", 3, 0));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	say("at mark %d", mark(k.b));
	SAY(recv(k.b, b, 1, MSG_OOB));
	SAY_BUF(recv(k.b, b, 4, MSG_WAITALL), b);
	say("at mark %d", mark(k.b));
	conn_end(&k);
}

/* Many bytes go before and after the urgent byte, so that the ring has bytes on both sides. */
static void between_ring_bytes(void)
{
	char *b = malloc(64 * KIB);
	uint64_t out = 0, in = 0;
	struct conn k;
	char c;

	conn_start(&k);
	for (int i = 0; i < 3; i++) {
		send_pattern(k.a, 20 * KIB, &out, 0);
		SAY(send(k.a, "X", 1, MSG_OOB));
		send_pattern(k.a, 20 * KIB, &out, 0);
		arrive_urgent(k.b);
		for (long got = 0; got < 20 * KIB;) {
			long r = recv(k.b, b, 64 * KIB, 0);

			if (r <= 0 || !is_pattern(b, r, in))
				fail("before the mark: %ld at %llu", r, (unsigned long long)in);
			in += r;
			got += r;
			if (got > 20 * KIB)
				fail("read past the mark: %ld", got);
		}
		say("at mark %d", mark(k.b));
		SAY_BUF(recv(k.b, &c, 1, MSG_OOB), &c);
		say("after the mark %ld", recv_pattern(k.b, 20 * KIB, &in));
	}
	conn_end(&k);
}

static void overwritten_mark(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "ab", 2, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	arrive_urgent(k.b);
	arrive(k.b, 2);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(send(k.a, "cd", 2, 0));
	SAY(send(k.a, "Y", 1, MSG_OOB));
	/* The reader never took the first urgent byte. TCP makes it part of the stream or drops
	 * it.
	 */
	where("reading up to the second mark");
	do
		if (recv(k.b, b, 1, MSG_OOB | MSG_PEEK) == 1 && b[0] == 'Y')
			break;
	while (1);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(shutdown(k.a, SHUT_WR));
	for (int i = 0; i < 5; i++)
		SAY_BUF(recv(k.b, b, 1, 0), b);
	conn_end(&k);
}

static void peek_stops_at_mark(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	SAY(send(k.a, "def", 3, 0));
	arrive_urgent(k.b);
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK | MSG_WAITALL), b);
	SAY_BUF(recv(k.b, b, 3, 0), b);
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

/* At the urgent mark, with nothing read in this call yet, a peek steps over the mark. It goes on
 * to the bytes that follow, in the ring or in TCP.
 */
static void peek_steps_over_mark(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "abcX", 4, MSG_OOB));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(recv(k.b, b, 16, MSG_PEEK | MSG_DONTWAIT));
	SAY(send(k.a, "def", 3, 0));
	SAY_BUF(recv(k.b, b, 1, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 2, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(recv(k.b, b, 1, MSG_OOB));
	SAY(send(k.a, "ghY", 3, MSG_OOB));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	SAY(send(k.a, "ijklm", 5, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	SAY_BUF(recv(k.b, b, 5, MSG_PEEK | MSG_WAITALL), b);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK | MSG_WAITALL), b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

/* A read of no bytes takes nothing, and does not pass the mark. */
static void empty_read_stays_at_mark(void)
{
	struct conn k;
	char b[16];
	int n;

	conn_start(&k);
	SAY(send(k.a, "abcX", 4, MSG_OOB));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 16, 0), b);
	say("at mark %d", mark(k.b));
	SAY(recv(k.b, b, 0, MSG_DONTWAIT));
	SAY(recv(k.b, b, 0, MSG_DONTWAIT | MSG_PEEK));
	say("at mark %d", mark(k.b));
	say_poll("poll", poll_now(k.b));
	SAY(ioctl(k.b, FIONREAD, &n));
	say("readable %d", n);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(send(k.a, "def", 3, 0));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

/* A second urgent byte arrives while bytes before the first are unread. The first joins the
 * stream, or is lost if those unread bytes are in a ring.
 */
static void two_marks_unread(void)
{
	char b[16] = "", *at = b;
	struct conn k;
	long n;

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	arrive_urgent(k.b);
	SAY(send(k.a, "Y", 1, MSG_OOB));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	SAY_BUF(recv(k.b, at, 1, MSG_OOB), at);
	while ((n = recv(k.b, at, b + sizeof(b) - at, 0)) > 0)
		at += n;
	*at = 0;
	say("the stream: %d", !strcmp(b, "abcX") || (env.paired && !strcmp(b, "abc")));
	conn_end(&k);
}

/* Bytes behind a mark that no reader has passed do not count as readable. */
static void readable_ends_at_mark(void)
{
	struct conn k;
	int n = -1;
	char b[16];

	conn_start(&k);
	SAY(send(k.a, "X", 1, MSG_OOB));
	arrive_urgent(k.b);
	SAY(send(k.a, "def", 3, 0));
	SAY(ioctl(k.b, FIONREAD, &n));
	say("readable %d", n);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	SAY(send(k.a, "ghi", 3, 0));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

static void sigurg(void)
{
	struct conn k;
	sigset_t set;
	siginfo_t si;
	char b[8];

	conn_start(&k);
	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	sigprocmask(SIG_BLOCK, &set, NULL);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	where("waiting for SIGURG");
	say("SIGURG %d", sigwaitinfo(&set, &si) == SIGURG);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY_BUF(recv(k.b, b, 8, 0), b);
	conn_end(&k);
}

static int handlers_fd;
static long handlers_ret;
static int handlers_mark;
static char handlers_byte;

static void take_urgent(int sig)
{
	const int saved = errno;

	(void)sig;
	handlers_mark = -1;
	ioctl(handlers_fd, SIOCATMARK, &handlers_mark);
	handlers_ret = recv(handlers_fd, &handlers_byte, 1, MSG_OOB);
	errno = saved;
}

/* A reader that sleeps in recv(2) leaves the urgent byte to its SIGURG handler. */
static void sigurg_ends_recv(void)
{
	struct sigaction act = { .sa_handler = take_urgent };
	sigset_t set;
	struct conn k;
	struct call c;
	char b[16];

	conn_start(&k);
	handlers_fd = k.b;
	sigaction(SIGURG, &act, NULL);
	SAY(fcntl(k.b, F_SETOWN, getpid()));
	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	for (int i = 0; i < 3; i++) {
		handlers_ret = -1;
		handlers_byte = 0;
		CALL_RECV(&c, k.b, b, sizeof(b), i == 1 ? MSG_PEEK : 0);
		call_blocked(&c);
		sigprocmask(SIG_BLOCK, &set, NULL);	/* the other thread takes SIGURG */
		SAY(send(k.a, "X", 1, MSG_OOB));
		SAY(call_end(&c));
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		say("the handler: %ld, %c, at mark %d", handlers_ret, handlers_byte, handlers_mark);
		say("at mark %d", mark(k.b));
		SAY(send(k.a, "abc", 3, 0));
		SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	}
	conn_end(&k);
}

/* SO_OOBINLINE: urgent bytes among random chunks and peeks leave the stream whole. */
static void mixed_stream(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_OOB, .len = MIB };
	struct stream r = { .mode = STREAM_RECV | STREAM_PEEK, .len = MIB };
	struct conn k;
	int on = 1;

	conn_start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	s.fd = k.a;
	r.fd = k.b;
	where("a stream with urgent bytes in line");
	stream_start(&s);
	stream_start(&r);
	stream_end(&s);
	stream_end(&r);
	say("sent %ld received %ld damaged %d", s.done, r.done, r.damaged);
	conn_end(&k);
}

/* splice(2) does not pass the mark, whether ring bytes or TCP bytes follow. */
static void splice_stops_at_mark(void)
{
	struct conn k;
	char b[16];
	int p[2];

	conn_start(&k);
	MUST(pipe(p));
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	arrive_urgent(k.b);
	arrive(k.b, 3);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(read(p[0], b, 16), b);
	say("at mark %d", mark(k.b));
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	nonblock(k.b, true);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	nonblock(k.b, false);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB | MSG_PEEK), b);
	SAY(send(k.a, "def", 3, 0));
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(recv(k.b, b, 2, MSG_WAITALL), b);
	SAY(splice(k.b, NULL, p[1], NULL, 100, 0));
	SAY_BUF(read(p[0], b, 16), b);
	conn_end(&k);
}

/* SO_RCVLOWAT does not count the urgent byte. */
static void poll_at_mark(void)
{
	struct pollfd p = { .events = POLLIN };
	int low = 5;
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	SAY(send(k.a, "X", 1, MSG_OOB));
	arrive_urgent(k.b);
	SAY(send(k.a, "defg", 4, 0));
	where("four bytes behind the mark");
	while (recv(k.b, b, 16, MSG_PEEK | MSG_DONTWAIT) < 4)
		;
	say_poll("four", poll_now(k.b));
	SAY(send(k.a, "h", 1, 0));
	p.fd = k.b;
	SAY(poll(&p, 1, -1));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	/* It counts the urgent byte if other bytes precede it. */
	SAY(send(k.a, "ijkl", 4, 0));
	SAY(send(k.a, "Y", 1, MSG_OOB));
	arrive_urgent(k.b);
	SAY(poll(&p, 1, -1));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

const struct bcase urgent_cases[] = {
	CASE(out_of_line), CASE(urgent_read_first), CASE(in_line), CASE(between_ring_bytes),
	CASE(overwritten_mark), CASE(peek_stops_at_mark), CASE(peek_steps_over_mark),
	CASE(empty_read_stays_at_mark), CASE(readable_ends_at_mark), CASE(two_marks_unread),
	CASE(sigurg), CASE(sigurg_ends_recv), CASE(mixed_stream),
	CASE(splice_stops_at_mark), CASE(poll_at_mark),
	{ }
};
