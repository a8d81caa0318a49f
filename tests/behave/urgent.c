// SPDX-License-Identifier: GPL-2.0
/*
 * Urgent data. The first urgent byte takes the pair back to TCP. What the ring holds by then is
 * read before it.
 */
#include "behave.h"

static void talk(struct conn *k)
{
	char b[8];

	SAY(send(k->a, "onward", 6, 0));
	SAY_BUF(recv(k->b, b, 6, MSG_WAITALL), b);
	SAY(send(k->b, "and back", 8, 0));
	SAY_BUF(recv(k->a, b, 8, MSG_WAITALL), b);
}

/* Starts a pair whose bytes go by ring until the first urgent byte. */
static void start(struct conn *k)
{
	conn_start(k);
	talk(k);
	conn_proof(k);
}

static void end(struct conn *k)
{
	close(k->a);
	close(k->b);
}

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

	start(&k);
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
	end(&k);
}

static void urgent_read_first(void)
{
	struct conn k;
	char b[16];

	start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "deX", 3, MSG_OOB));
	arrive_urgent(k.b);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB | MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY(send(k.a, "fgh", 3, 0));
	SAY_BUF(recv(k.b, b, 8, MSG_WAITALL), b);
	SAY(recv(k.b, b, 8, MSG_DONTWAIT));
	end(&k);
}

static void in_line(void)
{
	struct conn k;
	char b[16];
	int on = 1;

	start(&k);
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
	end(&k);
}

/* Many bytes go before and after each urgent byte: by ring before the first. */
static void between_many_bytes(void)
{
	char *b = malloc(64 * KIB);
	uint64_t out = 0, in = 0;
	struct conn k;
	char c;

	start(&k);
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
	end(&k);
}

static void overwritten_mark(void)
{
	struct conn k;
	char b[16];

	start(&k);
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
	end(&k);
}

static void peek_stops_at_mark(void)
{
	struct conn k;
	char b[16];

	start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.a, "X", 1, MSG_OOB));
	SAY(send(k.a, "def", 3, 0));
	arrive_urgent(k.b);
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 16, MSG_PEEK | MSG_WAITALL), b);
	SAY_BUF(recv(k.b, b, 3, 0), b);
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	end(&k);
}

/* At the urgent mark, with nothing read in this call yet, a peek steps over the mark. It goes on
 * to the bytes that follow, in the ring or in TCP.
 */
static void peek_steps_over_mark(void)
{
	struct conn k;
	char b[16];

	start(&k);
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
	end(&k);
}

/* A read of no bytes takes nothing, and does not pass the mark. */
static void empty_read_stays_at_mark(void)
{
	struct conn k;
	char b[16];
	int n;

	start(&k);
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
	end(&k);
}

/* A second urgent byte arrives while bytes before the first are unread. The first joins the
 * stream, or is lost if those unread bytes are in a ring.
 */
static void two_marks_unread(void)
{
	char b[16] = "", *at = b;
	struct conn k;
	long n;

	start(&k);
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
	end(&k);
}

/* Bytes behind a mark that no reader has passed do not count as readable. */
static void readable_ends_at_mark(void)
{
	struct conn k;
	int n = -1;
	char b[16];

	start(&k);
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
	end(&k);
}

static void sigurg(void)
{
	struct conn k;
	sigset_t set;
	siginfo_t si;
	char b[8];

	start(&k);
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
	end(&k);
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

	start(&k);
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
	end(&k);
}

/* Returns once the pair is being un-paired, with the bytes of the two rings unread. Nothing that
 * is sent from then on goes by ring.
 */
static void draining(const struct conn *k, const struct pair_info *before)
{
	struct pair_info now;

	if (!env.paired)
		return;
	if (pairs_find(k->cookie[0], k->cookie[1], &now))
		fail("the pair is gone while its rings have unread bytes");
	for (int i = 0; i < 2; i++) {
		if (now.rings[i] != 3 || now.tx_ring[i] != before->tx_ring[i] + 3)
			fail("%llu unread in ring %d, %llu by ring",
			     (unsigned long long)now.rings[i], i,
			     (unsigned long long)(now.tx_ring[i] - before->tx_ring[i]));
	}
	if (!now.draining)
		fail("the pair is not being un-paired");
}

static void count(const struct conn *k, struct pair_info *info)
{
	if (env.paired && pairs_find(k->cookie[0], k->cookie[1], info))
		fail("the connection is not paired");
}

static void wait_until_gone(const struct conn *k)
{
	struct pair_info info;

	where("waiting until the pair has gone");
	while (env.paired && !pairs_find(k->cookie[0], k->cookie[1], &info))
		usleep(1000);
}

/* The sender's ring is closed before the urgent byte is sent, and the pair is un-paired in both
 * directions. Each reader has its ring's bytes first, and the mark stands behind them.
 */
static void sending_unpairs(void)
{
	struct pair_info before;
	struct conn k;
	char b[16];

	start(&k);
	count(&k, &before);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.b, "uvw", 3, 0));
	SAY(send(k.a, "deX", 3, MSG_OOB));
	SAY(send(k.a, "fgh", 3, 0));
	arrive_urgent(k.b);
	draining(&k, &before);
	say("at mark %d", mark(k.b));
	SAY_BUF(recv(k.b, b, 1, MSG_OOB | MSG_PEEK), b);
	SAY_BUF(recv(k.b, b, 3, 0), b);
	say("at mark %d", mark(k.b));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	say("at mark %d", mark(k.b));
	SAY_BUF(recv(k.b, b, 1, MSG_OOB), b);
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	SAY(send(k.b, "xyz", 3, 0));
	SAY_BUF(recv(k.a, b, 6, MSG_WAITALL), b);
	wait_until_gone(&k);
	talk(&k);
	SAY(send(k.b, "ijY", 3, MSG_OOB));
	arrive_urgent(k.a);
	SAY_BUF(recv(k.a, b, 1, MSG_OOB), b);
	SAY_BUF(recv(k.a, b, 2, MSG_WAITALL), b);
	talk(&k);
	end(&k);
}

/* A reader that asks for an urgent byte, though there is none, un-pairs as well. */
static void asking_unpairs(void)
{
	struct pair_info before;
	struct conn k;
	char b[16];

	start(&k);
	count(&k, &before);
	SAY(send(k.a, "abc", 3, 0));
	SAY(send(k.b, "uvw", 3, 0));
	SAY(recv(k.b, b, 1, MSG_OOB));
	draining(&k, &before);
	SAY_BUF(recv(k.b, b, 3, 0), b);
	SAY(recv(k.b, b, 1, MSG_OOB));
	SAY_BUF(recv(k.a, b, 3, 0), b);
	wait_until_gone(&k);
	talk(&k);
	SAY(recv(k.b, b, 1, MSG_OOB));
	end(&k);
}

/* SO_OOBINLINE alone changes nothing: the pair stays one. */
static void in_line_stays_paired(void)
{
	struct pair_info before, now;
	struct conn k;
	int on = 1;

	start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	SAY(setsockopt(k.a, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	count(&k, &before);
	talk(&k);
	count(&k, &now);
	if (env.paired && (now.draining || now.tx_ring[0] + now.tx_ring[1] !=
					   before.tx_ring[0] + before.tx_ring[1] + 14))
		fail("the ring is not used");
	end(&k);
}

/* SO_OOBINLINE: urgent bytes among random chunks and peeks leave the stream whole. */
static void mixed_stream(void)
{
	struct stream s = { .mode = STREAM_SEND | STREAM_OOB, .len = MIB };
	struct stream r = { .mode = STREAM_RECV | STREAM_PEEK, .len = MIB };
	struct conn k;
	int on = 1;

	start(&k);
	MUST(setsockopt(k.b, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	s.fd = k.a;
	r.fd = k.b;
	where("a stream with urgent bytes in line");
	stream_start(&s);
	stream_start(&r);
	stream_end(&s);
	stream_end(&r);
	say("sent %ld received %ld damaged %d", s.done, r.done, r.damaged);
	end(&k);
}

/* splice(2) does not pass the mark, which follows bytes by ring. */
static void splice_stops_at_mark(void)
{
	struct conn k;
	char b[16];
	int p[2];

	start(&k);
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
	end(&k);
}

/* SO_RCVLOWAT does not count the urgent byte. */
static void poll_at_mark(void)
{
	struct pollfd p = { .events = POLLIN };
	int low = 5;
	struct conn k;
	char b[16];

	start(&k);
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
	end(&k);
}

const struct bcase urgent_cases[] = {
	CASE(out_of_line), CASE(urgent_read_first), CASE(in_line), CASE(between_many_bytes),
	CASE(overwritten_mark), CASE(peek_stops_at_mark), CASE(peek_steps_over_mark),
	CASE(empty_read_stays_at_mark), CASE(readable_ends_at_mark), CASE(two_marks_unread),
	CASE(sigurg), CASE(sigurg_ends_recv), CASE(mixed_stream),
	CASE(splice_stops_at_mark), CASE(poll_at_mark),
	CASE_PAIR(sending_unpairs), CASE_PAIR(asking_unpairs), CASE_PAIR(in_line_stays_paired),
	{ }
};
