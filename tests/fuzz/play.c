// SPDX-License-Identifier: GPL-2.0
/*
 * Plays a program: opens the connection, does one operation after the other, and
 * lets all come to rest in between.
 */
#include "fuzz.h"

#include <sched.h>

struct side side[2];
struct conn conn;
bool big, mutate;

static long base[2];		/* see in_tcp() */

int other(int end)
{
	return 1 - end;
}

static struct tcp_info info_of(int fd)
{
	struct tcp_info i = { };
	socklen_t len = sizeof(i);

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len));
	return i;
}

/*
 * Bytes and FINs that this end has given to TCP and TCP has not yet received at the
 * other. What a ring carries is there at once. Not readable bytes, since a thread may
 * hold those in a call that goes on; nor SIOCOUTQ, since ACKs are delayed.
 */
static long in_tcp(int end)
{
	struct tcp_info before, after;
	int queued;

	do {
		before = info_of(side[end].fd);
		MUST(ioctl(side[end].fd, SIOCOUTQ, &queued));
		after = info_of(side[end].fd);
	} while (before.tcpi_bytes_acked != after.tcpi_bytes_acked);
	return (long)(after.tcpi_bytes_acked + queued -
		      info_of(side[other(end)].fd).tcpi_bytes_received) - base[end];
}

static int phase_of(const struct side *s)
{
	switch (info_of(s->fd).tcpi_state) {
	case 1:		/* ESTABLISHED */
		return PHASE_OPEN;
	case 4:		/* FIN_WAIT1: until a delayed ACK */
	case 5:		/* FIN_WAIT2 */
		return PHASE_SENT_FIN;
	case 8:		/* CLOSE_WAIT */
		return PHASE_GOT_FIN;
	case 7:		/* CLOSE; TIME_WAIT is no state of a socket that is still open */
		return PHASE_END;
	default:	/* on its way */
		return -1;
	}
}

static bool settled(void)
{
	struct side *a = &side[0], *b = &side[1], *left;

	for (int i = 0; i < 2; i++) {
		if (side[i].fd >= 0)
			side[i].phase = phase_of(&side[i]);
	}
	if (a->fd >= 0 && b->fd >= 0) {
		static const int match[] = {
			[PHASE_OPEN] = PHASE_OPEN, [PHASE_SENT_FIN] = PHASE_GOT_FIN,
			[PHASE_GOT_FIN] = PHASE_SENT_FIN, [PHASE_END] = PHASE_END,
		};

		if (a->phase < 0 || b->phase != match[a->phase])
			return false;
		return a->phase == PHASE_END || (!in_tcp(0) && !in_tcp(1));
	}
	if (a->fd < 0 && b->fd < 0)
		return true;
	left = a->fd >= 0 ? a : b;
	return left->phase == PHASE_END || (left->phase == PHASE_GOT_FIN && !left->condemned);
}

/* Until all that was sent has arrived: bytes, FIN or reset. */
void settle(void)
{
	while (!settled())
		sched_yield();
}

void settle_fin(int fd)
{
	while (info_of(fd).tcpi_state == 4)	/* FIN_WAIT1 */
		sched_yield();
}

bool at_end(const struct side *s)
{
	return s->shut_rd || s->phase == PHASE_GOT_FIN || s->phase == PHASE_END;
}

bool wait_is_over(const struct side *s)
{
	if (!s->target)
		return poll_now(s->fd) & (s->pollfd.events | POLLERR | POLLHUP);
	return at_end(s) || s->avail >= s->target;
}

/* Reads all that is left, also past an urgent byte. */
void drain(int end, const char *why)
{
	static char buf[64 * KIB];
	struct side *s = &side[end];
	uint64_t hash = 0;
	long total = 0, r;
	int err;

	for (;;) {
		r = recv(s->fd, buf, sizeof(buf), MSG_DONTWAIT);
		err = errno;
		if (r <= 0)
			break;
		for (long i = 0; i < r; i++)
			hash = (hash ^ (unsigned char)buf[i]) * 0x100000001b3ULL;
		total += r;
	}
	say("  %c %s: %ld, sum %016llx, then %s", 'A' + end, why, total, (unsigned long long)hash,
	    r ? strerrorname_np(err) : "end of file");
	s->avail = 0;
	s->urgent = false;
}

/* All of what can be seen of an end at rest. */
static void say_rest(void)
{
	char text[80] = "  ";

	for (int i = 0; i < 2; i++) {
		struct side *s = &side[i];
		int n = -1;

		/* A sleeping reader may or may not have taken bytes off already. */
		if (s->fd < 0 || s->asleep)
			continue;
		ioctl(s->fd, FIONREAD, &n);
		sprintf(text + strlen(text), "%c: %d unread, poll %x  ", 'A' + i, n, poll_now(s->fd));
	}
	say("%s", text);
}

static void after_op(const char *text)
{
	where("%s: waiting until all has arrived", text);
	settle();
	for (int i = 0; i < 2; i++) {
		if (!side[i].asleep)
			continue;
		if (wait_is_over(&side[i]))
			wait_end(i);
		else	/* again, if it was woken to see nothing, before there is more to see */
			call_blocked(&side[i].call);
	}
	say_rest();
}

static void prep(int fd, bool listener)
{
	int on = 1;

	(void)listener;
	/* ACKs are delayed where nothing answers: Nagle's algorithm would wait for them */
	MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
	if (big)
		prep_big_buffers(fd, listener);
}

static void prep_deferred(int fd, bool listener)
{
	int sec = 5;

	prep(fd, listener);
	if (listener)
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &sec, sizeof(sec)));
}

/* A connection with bytes that came before its accept. */
static void open_early(const struct program *p)
{
	int l = listener_open(p->defer ? prep_deferred : prep, 8), c = side_socket(false, 0);
	struct sockaddr_storage ss;
	uint64_t pos = 0;
	socklen_t len;

	where("connecting, with early bytes");
	ss = listener_addr(l, &len);
	prep(c, false);
	MUST(connect(c, (void *)&ss, len));
	MUST(send_pattern(c, p->early, &pos, 0));
	conn_adopt(&conn, c, MUST(accept(l, NULL, NULL)));
	close(l);
	arrive(conn.server, p->early);
}

static void begin(const struct program *p)
{
	env.family = p->family;
	env.swap = p->swap;
	env.seed = p->seed;
	big = p->big;
	calls_init();
	if (p->early)
		open_early(p);
	else
		conn_open_with(&conn, prep);
	memset(side, 0, sizeof(side));
	side[p->swap ? 0 : 1].avail = p->early;
	side[0].fd = conn.a;
	side[1].fd = conn.b;
	for (int i = 0; i < 2; i++) {
		side[i].lowat = 1;
		side[i].pos = i * 1000003;
	}
	for (int i = 0; i < 2; i++)
		base[i] = in_tcp(i);
	if (!p->cold)
		conn_warm(&conn);
	settle();
}

/* Whatever the program has left: threads that sleep, bytes that nobody has read. */
static void end(void)
{
	where("the end");
	conn_proof(&conn);
	for (int i = 0; i < 2; i++) {
		if (!side[i].asleep)
			continue;
		say("%c ends its sleeper", 'A' + i);
		interrupt(&side[i]);
		wait_end(i);
	}
	for (int i = 0; i < 2; i++) {
		if (side[i].fd >= 0)
			drain(i, "what is left");
	}
	for (int i = 0; i < 2; i++) {
		if (side[i].fd >= 0)
			close(side[i].fd);
	}
}

static bool ends_pair(const struct op *op)
{
	return op->what == CLOSE || op->what == ABORT || op->what == DISCONNECT ||
	       op->what == DROP || op->what == STREAM || op->what == SHUT;
}

void play(const void *program)
{
	const struct program *p = program;
	int pipes = 0;

	begin(p);
	for (int i = 0; i < p->count; i++) {
		char text[100];

		op_text(&p->op[i], text, sizeof(text));
		where("%s", text);
		say("%s", text);
		/* The pair may be gone afterwards. */
		if (ends_pair(&p->op[i]))
			conn_proof(&conn);
		op_play(&p->op[i]);
		after_op(text);
		if (*sigpipes != pipes)
			say("  SIGPIPE %d", *sigpipes - pipes);
		pipes = *sigpipes;
	}
	end();
}
