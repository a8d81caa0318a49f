// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz [-s SEED] [-n ROUNDS]: the same random session twice, once read by read(2)
 * and once by splice(2). Each step has to give the same bytes, the same error
 * and the same count of what is left; what was sent has to come out whole.
 *
 * The steps are settled: each waits until what it sent can be read, so that a
 * session depends on its seed alone. A failure prints the seed and both logs;
 * "fuzz -s SEED -n 1" runs that session again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define STEPS_MAX	40
#define UNREAD_MAX	30000	/* all of it fits into any receive buffer */
#define SENDS_MAX	12	/* unread ones, as small ones cost much memory each */

enum what {
	SEND,		/* by the way of the session's kind */
	SEND_OWN,	/* by the reader's own connection */
	READ,		/* read(2), or splice(2) and read(2) from the pipe */
	RECV,		/* read(2) in both */
	PEEK,		/* MSG_PEEK in both */
	UNMAP,		/* the reader leaves its map; nothing is unread then */
	FIN,
	RESET,
};

static const char * const what_names[] = {
	"send", "send-own", "read", "recv", "peek", "unmap", "fin", "reset",
};

struct step {
	enum what what;
	size_t n;
};

/* What depends on the seed. */
struct session {
	uint64_t seed;
	enum kind kind;
	int family, pipe_size, fillers;
	bool zerocopy;
	int count;
	struct step steps[STEPS_MAX];
};

/* What it did; shared with the process that ran it. */
struct record {
	size_t len;
	bool done;
	char text[16384];
};

static uint64_t state;

static uint64_t rnd(uint64_t below)
{
	state += 0x9e3779b97f4a7c15ULL;
	uint64_t x = state;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return (x ^ x >> 31) % below;
}

static size_t rnd_size(void)
{
	static const size_t near[] = { 1, 2, 4095, 4096, 4097, 8192, 16384, 9000 };

	switch (rnd(4)) {
	case 0: return near[rnd(sizeof(near) / sizeof(near[0]))];
	case 1: return 1 + rnd(100);
	default: return 1 + rnd(12000);
	}
}

static bool by_records(enum kind kind)
{
	return kind == KIND_STRP || kind == KIND_STRP_REDIR;
}

static bool has_own_way(enum kind kind)
{
	return kind == KIND_TCP || kind == KIND_BASE || kind == KIND_PASS || kind == KIND_SELF ||
	       kind == KIND_HASH || kind == KIND_PULLED || kind == KIND_STRP;
}

static void plan(struct session *s, uint64_t seed)
{
	size_t unread = 0;
	int sends = 0;
	bool mapped = true;

	*s = (struct session){ .seed = seed };
	state = seed;
	s->kind = rnd(KIND_MAX);
	s->family = rnd(3) ? AF_INET : AF_INET6;
	s->pipe_size = rnd(2) ? 4096 << rnd(8) : 0;
	s->fillers = s->pipe_size ? 0 : rnd(16);
	s->zerocopy = rnd(4);
	for (int left = 5 + rnd(STEPS_MAX - 8); left > 0; left--) {
		struct step *st = &s->steps[s->count];

		switch (rnd(12)) {
		case 0 ... 3:
			st->what = SEND;
			st->n = rnd_size();
			if (by_records(s->kind))
				st->n = RECORD * (1 + st->n % 3);
			break;
		case 4:
			st->what = has_own_way(s->kind) ? SEND : SEND_OWN;
			st->n = rnd_size();
			if (by_records(s->kind))
				st->n = RECORD * (1 + st->n % 3);
			break;
		case 5 ... 8:
			st->what = READ;
			st->n = rnd_size();
			break;
		case 9:
			st->what = RECV;
			st->n = rnd_size();
			break;
		case 10:
			st->what = PEEK;
			st->n = rnd_size();
			break;
		case 11:
			/* unread bytes go with the entry, and a parser's count
			 * of what was read is off
			 */
			if (unread || !mapped || s->kind == KIND_TCP || by_records(s->kind))
				continue;
			st->what = UNMAP;
			mapped = false;
			break;
		}
		if (st->what == SEND || st->what == SEND_OWN) {
			if (!mapped && !has_own_way(s->kind))
				st->what = SEND_OWN;
			/* With a parser the kernel counts as read what is left of
			 * earlier sends; the next ones are then not announced,
			 * to a reader by read(2) either.
			 */
			if (unread + st->n > UNREAD_MAX || sends == SENDS_MAX ||
			    (unread && by_records(s->kind)))
				st->what = READ;
		}
		if (st->what == SEND || st->what == SEND_OWN) {
			unread += st->n;
			sends++;
		}
		if (st->what == READ || st->what == RECV) {
			unread -= st->n < unread ? st->n : unread;
			if (!unread)
				sends = 0;
		}
		s->count++;
	}
	s->steps[s->count++].what = rnd(6) ? FIN : RESET;
	/* all that is there, and the end twice */
	s->steps[s->count++] = (struct step){ READ, 2 * UNREAD_MAX };
	s->steps[s->count++] = (struct step){ READ, 10 };
}

struct play {
	const struct session *s;
	struct record *rec;
	struct flow f;
	int pipe[2], fillers;
	bool splices;
	size_t sent, sent_own, got;
};

static void __attribute__((format(printf, 2, 3))) note(struct play *p, const char *fmt, ...)
{
	struct record *r = p->rec;
	va_list ap;

	va_start(ap, fmt);
	r->len += vsnprintf(r->text + r->len, sizeof(r->text) - r->len, fmt, ap);
	va_end(ap);
	check(r->len < sizeof(r->text), "the log is too long");
}

static int unread(const struct play *p)
{
	int n = -1;

	check(!ioctl(p->f.rd, FIONREAD, &n), "FIONREAD: %s", strerror(errno));
	return n;
}

/* Until all that was sent can be read. */
static void settle(const struct play *p)
{
	long start = ms();

	while ((size_t)unread(p) != p->sent + p->sent_own - p->got)
		check(ms() - start < 10000, "%d bytes to read of %zu after 10 s", unread(p),
		      p->sent + p->sent_own - p->got);
}

/* The first few bytes and a sum say which they are. */
static void note_bytes(struct play *p, const unsigned char *buf, size_t n)
{
	uint64_t sum = 14695981039346656037ULL;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ buf[i]) * 1099511628211ULL;
	note(p, " %zu:%016llx", n, (unsigned long long)sum);
}

static ssize_t splice_some(struct play *p, unsigned char *buf, size_t n)
{
	ssize_t got = splice(p->f.rd, NULL, p->pipe[1], NULL, n, 0), have = 0;

	while (p->fillers && got > 0) {
		check(read(p->pipe[0], buf, 1) == 1 && *buf == '.', "filler");
		p->fillers--;
	}
	while (have < got) {
		ssize_t m = read(p->pipe[0], buf + have, got - have);

		check(m > 0, "pipe: %s", strerror(errno));
		have += m;
	}
	return got;
}

static void take(struct play *p, size_t n, bool splices)
{
	static unsigned char buf[2 * UNREAD_MAX];
	size_t have = 0;
	int err = 0;

	while (have < n) {
		ssize_t m = splices ? splice_some(p, buf + have, n - have) :
				      recv(p->f.rd, buf + have, n - have, 0);

		if (m <= 0) {
			err = m ? errno : -1;
			break;
		}
		have += m;
	}
	note_bytes(p, buf, have);
	if (err)
		note(p, " then %s", err < 0 ? "end of file" : strerrorname_np(err));
	p->got += have;
}

static void step(struct play *p, const struct step *st)
{
	static unsigned char buf[2 * UNREAD_MAX];
	struct linger lg = { 1, 0 };
	struct pollfd pfd = { .fd = p->f.rd };
	ssize_t n;

	note(p, "%s %zu", what_names[st->what], st->n);
	switch (st->what) {
	case SEND:
	case SEND_OWN: {
		bool own = st->what == SEND_OWN;
		size_t *pos = own ? &p->sent_own : &p->sent;
		int fd = own ? p->f.peer : p->f.wr;

		stream_fill(own ? 2 : 1, *pos, buf, st->n);
		check(send(fd, buf, st->n, MSG_NOSIGNAL) == (ssize_t)st->n, "send: %s", strerror(errno));
		*pos += st->n;
		settle(p);
		break;
	}
	case READ:
		take(p, st->n, p->splices);
		break;
	case RECV:
		take(p, st->n, false);
		break;
	case PEEK:
		n = recv(p->f.rd, buf, st->n, MSG_PEEK);
		if (n < 0)
			note(p, " %s", strerrorname_np(errno));
		else
			note_bytes(p, buf, n);
		break;
	case UNMAP:
		flow_unmap(&p->f);
		break;
	case FIN:
		shutdown(p->f.peer, SHUT_WR);
		pfd.events = POLLRDHUP;
		check(poll(&pfd, 1, 10000) == 1, "no end of file");
		break;
	case RESET:
		setsockopt(p->f.peer, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
		close(p->f.peer);
		check(poll(&pfd, 1, 10000) == 1, "no reset");
		break;
	}
	if (st->what != FIN && st->what != RESET)
		note(p, " left %d", unread(p));
	note(p, "\n");
}

/* Runs in a process of its own, whose exit closes everything. */
static void play(const struct session *s, struct record *rec, bool splices)
{
	struct play p = { .s = s, .rec = rec, .splices = splices };

	alarm(60);
	if (splices)
		write_file(PARAM "splice_zerocopy", s->zerocopy ? "1" : "0");
	flow_open(&p.f, s->kind, s->family);
	set_nonblock(p.f.rd);
	make_pipe(p.pipe, s->pipe_size);
	for (; p.fillers < s->fillers; p.fillers++)
		check(vmsplice(p.pipe[1], &(struct iovec){ ".", 1 }, 1, 0) == 1, "%s", strerror(errno));
	for (int i = 0; i < s->count; i++)
		step(&p, &s->steps[i]);
	check(p.got == p.sent + p.sent_own, "%zu bytes of %zu", p.got, p.sent + p.sent_own);
	rec->done = true;
}

static bool run(const struct session *s, struct record *rec, bool splices)
{
	int status;
	pid_t pid;

	memset(rec, 0, sizeof(*rec));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		play(s, rec, splices);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		printf("# killed by %s\n", strsignal(WTERMSIG(status)));
	return !status && rec->done;
}

static void show(const char *title, const struct record *rec)
{
	const char *line = rec->text;

	printf("# %s\n", title);
	while (*line) {
		int len = strcspn(line, "\n");

		printf("#   %.*s\n", len, line);
		line += len + !!line[len];
	}
}

int main(int argc, char **argv)
{
	struct record *rec = mmap(NULL, 2 * sizeof(*rec), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool full = getenv("TEST_FULL");
	uint64_t seed, before = psock_bytes();
	int rounds = full ? 3000 : amount(250), opt;
	static struct session s;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return 2;
	seed >>= 16;
	while ((opt = getopt(argc, argv, "s:n:")) != -1) {
		if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			rounds = atoi(optarg);
		else
			return 2;
	}
	flow_warm_up();
	printf("# seeds from %llu on, %d of them\n", (unsigned long long)seed, rounds);
	for (int i = 0; i < rounds; i++) {
		plan(&s, seed + i);
		if (run(&s, &rec[0], false) && run(&s, &rec[1], true) &&
		    !strcmp(rec[0].text, rec[1].text))
			continue;
		show("read(2):", &rec[0]);
		show("splice(2):", &rec[1]);
		printf("not ok fuzz: %s, IPv%d: fuzz -s %llu -n 1 runs it again\n", kind_names[s.kind],
		       s.family == AF_INET ? 4 : 6, (unsigned long long)s.seed);
		return 1;
	}
	write_file(PARAM "splice_zerocopy", "1");
	printf("# %llu bytes came through splice(2) on sockmap queues\n",
	       (unsigned long long)(psock_bytes() - before));
	if (psock_bytes() == before) {
		printf("not ok fuzz: nothing came out of a sockmap queue by splice(2)\n");
		return 1;
	}
	printf("ok fuzz\n");
	return 0;
}
