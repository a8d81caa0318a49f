// SPDX-License-Identifier: GPL-2.0
/* The operations. Each is made from the seed and its own number only, so that others can be left
 * out of a sequence. One that makes no sense in the state of the world does nothing.
 */
#include <netinet/tcp.h>

#include "fuzz.h"

#define OUTSTANDING_MAX	40000	/* bytes in all queues that fit into the buffers */
#define TIGHT_MAX	400000
#define KEY_UPDATE	24	/* the first byte of such a handshake record */

static uint8_t buf[TIGHT_MAX + 1];

/* A splice that may move or end at any time. */
static bool is_unsure(const struct world *w, int i)
{
	const struct end *e = &w->e[i];

	return i >= 0 && w->tight && e->out.active &&
	       (e->in.n || e->lossy || e->kind == TLS || w->e[e->out.sink].kind == TLS);
}

static void take_error(struct world *w, int i)
{
	struct end *e = &w->e[i];
	int got;

	if (!e->err || e->gone)
		return;
	got = error_of(e->fd);
	say("  SO_ERROR of %d: %s\n", i, error_name(got));
	check(e->err == ANY_ERROR || got == e->err, "SO_ERROR of %d is %s, not %s", i,
	      error_name(got), error_name(e->err));
	e->err = 0;
	e->foreign = false;
}

/* Compares what was read with what the queue has next, and takes it off. */
static void compare(struct world *w, int i, ssize_t got, int type)
{
	struct queue *q = &w->e[i].in;

	tally->reads++;
	tally->bytes += got;
	if (w->e[i].kind == UDP || type != DATA)
		check(q->n && q->c[0].len == got, "%d read %zd bytes at once, not %d", i, got,
		      q->n ? (int)q->c[0].len : -1);
	for (ssize_t k = 0; k < got; ) {
		const struct chunk c = q->c[0];
		ssize_t n = got - k < c.len ? got - k : c.len;

		check(q->n, "%d read %zd bytes more than were sent", i, got - k);
		check(c.type == type, "%d read a record of type %d, not %d", i, type, c.type);
		for (ssize_t m = 0; m < n; m++)
			check(buf[k + m] == byte_of(c.origin, c.pos + m),
			      "%d read a wrong byte for byte %llu of %d, %zd bytes on", i,
			      (unsigned long long)(c.pos + m), c.origin, k + m);
		drop_front(q, n);
		k += n;
	}
	if (!got && q->n)
		drop_front(q, 0);	/* an empty datagram */
}

/* How many bytes one read can have: a record of another type ends it. */
static size_t readable(const struct end *e)
{
	size_t sum = 0;

	if (e->in.c[0].type != DATA)
		return e->in.c[0].len;
	for (int k = 0; k < e->in.n && e->in.c[k].type == DATA; k++)
		sum += e->in.c[k].len;
	return sum;
}

static void read_nothing(struct world *w, int i)
{
	struct end *e = &w->e[i];
	int type;
	ssize_t got = receive(e, buf, sizeof(buf), &type);

	if (e->lossy)
		check(got <= 0, "%d read %zd bytes more than were sent", i, got);
	else if (e->rd_shut && e->kind == UDP)
		check(!got || got == -EAGAIN, "%d read %zd after SHUT_RD", i, got);
	else if (e->fin || e->rd_shut)
		check(!got, "%d read %zd at the end of the stream", i, got);
	else
		check(got == -EAGAIN, "%d read %zd, and nothing was sent", i, got);
}

/* Reads up to @want bytes, or a datagram or record. */
static void read_some(struct world *w, int i, size_t want)
{
	struct end *e = &w->e[i];
	const long start = ms();
	size_t done = 0;

	take_error(w, i);
	if (!e->in.n) {
		read_nothing(w, i);
		return;
	}
	if (e->kind == UDP || e->in.c[0].type != DATA)
		want = sizeof(buf);
	else if (want > readable(e))
		want = readable(e);
	while (done < want && e->in.n) {
		int type;
		ssize_t got = receive(e, buf, want - done, &type);

		if (got > 0 || (!got && e->kind == UDP)) {
			compare(w, i, got, type);
			done += got;
			if (e->kind == UDP || type != DATA)
				break;
		} else if (e->lossy && got != -EAGAIN) {
			drop_all(&e->in);
		} else if (e->lossy || w->tight) {
			break;
		} else {
			check(got == -EAGAIN && ms() - start < patience,
			      "%d has %llu bytes to read, and read %zd", i,
			      (unsigned long long)e->in.bytes, got);
			usleep(200);
		}
	}
	say("  read %zu bytes from %d\n", done, i);
}

static void op_read(struct world *w, int i)
{
	struct end *e = &w->e[i];
	int type;
	ssize_t got;

	if (e->gone || (e->unconnected && e->kind != UDP))
		return;
	if (!e->out.active) {
		read_some(w, i, pick(w, 3) ? 100000 : 1 + pick(w, 500));
	} else if (!is_unsure(w, i)) {
		got = receive(e, buf, sizeof(buf), &type);
		say("  read from the source %d: %s\n", i, error_name(-got));
		check(got == -EAGAIN, "read %zd from the source %d", got, i);
	}
}

static size_t length(struct world *w, enum kind kind)
{
	switch (pick(w, 4)) {
	case 0:
		return (kind != UDP) + pick(w, 10);
	case 1:
		return 1 + pick(w, 2000);
	case 2:
		return 1 + pick(w, 9000);
	default:
		return kind == UDP ? 1 + pick(w, 1400) : 1 + pick(w, w->tight ? 100000 : 20000);
	}
}

static bool can_send(struct world *w, int i)
{
	const struct end *e = &w->e[i];

	if (e->gone || e->dead || e->unconnected || e->doomed)
		return false;
	if (e->kind == TLS && e->wr_shut)
		return false;	/* the kernel's TLS takes it, and loses it */
	if (sends_lost(w, i) && (e->kind == UDP || w->tight || pick(w, 2)))
		return false;
	return !is_unsure(w, e->in_from);	/* else the order of the bytes would be open */
}

/* False if nothing was sent. */
static bool send_some(struct world *w, int i)
{
	struct end *e = &w->e[i];
	struct chunk c = { .origin = i, .type = DATA, .pos = e->sent };
	size_t len = length(w, e->kind);
	ssize_t got;

	if (outstanding(w) + len > (w->tight ? TIGHT_MAX : OUTSTANDING_MAX))
		return false;
	if (e->wr_shut && is_unsure(w, i))
		return false;	/* EPIPE could be the splice's error or the shutdown's */
	if (e->kind == TLS || e->wr_shut)
		take_error(w, i);
	for (size_t k = 0; k < len; k++)
		buf[k] = byte_of(i, c.pos + k);
	got = send(e->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	say("  send %zu bytes by %d: %zd %s\n", len, i, got, got < 0 ? error_name(errno) : "");
	if (e->err) {
		check(got < 0 && (e->err == ANY_ERROR || errno == e->err), "not %s, but %zd, %s",
		      error_name(e->err), got, error_name(errno));
		e->err = 0;
		e->foreign = false;
		return false;
	}
	/* The error that the end of its splice has left, or a reset. */
	if (got < 0 && errno != EAGAIN && is_unsure(w, i)) {
		check(errno == EPIPE || errno == EFBIG || errno == ELOOP || errno == ENOMSG ||
		      errno == ETIMEDOUT || errno == ECONNRESET, "%s", error_name(errno));
		splice_unspliced(w, i);
		return false;
	}
	if (e->wr_shut || (w->tight && got < 0 && errno != EPIPE)) {
		check(got < 0 && errno == (e->wr_shut ? EPIPE : EAGAIN), "%zd, %s", got,
		      error_name(errno));
		return false;
	}
	check(e->kind == UDP || w->tight ? got >= 0 : got > 0, "%s", error_name(errno));
	c.len = got;
	e->sent += got;
	send_to(w, i, &c);
	return true;
}

static void op_record(struct world *w, int i)
{
	struct end *e = &w->e[i];
	struct chunk c = { .origin = i, .type = pick(w, 2) ? ALERT : HANDSHAKE, .pos = e->sent,
			   .len = 1 + pick(w, 100) };

	if (e->kind != TLS || w->tight || e->wr_shut || sends_lost(w, i) || !can_send(w, i))
		return;
	take_error(w, i);
	for (size_t k = 0; k < c.len; k++)
		buf[k] = byte_of(i, c.pos + k);
	if (buf[0] == KEY_UPDATE)
		c.type = ALERT;		/* after a real one TLS waits for new keys */
	say("  send a record of type %d and %u bytes by %d\n", c.type, c.len, i);
	send_record(e->fd, c.type, buf, c.len);
	e->sent += c.len;
	send_to(w, i, &c);
}

/* @hurried: bytes may be on their way. */
static void op_unsplice(struct world *w, int i, bool hurried)
{
	struct end *e = &w->e[i];
	const bool unsure = hurried || is_unsure(w, i);
	int err;

	if (e->gone)
		return;
	err = socksplice_unsplice(e->fd) ? errno : 0;
	say("  unsplice %d: %s\n", i, error_name(err));
	if (unsure && err == ENOTCONN && e->out.active)
		return;		/* settle() knows whether that may be */
	check(err == (e->out.active ? 0 : ENOTCONN), "unsplice %d: %s", i, error_name(err));
	if (err)
		return;
	tally->unspliced++;
	splice_unspliced(w, i);
}

static void op_shutdown(struct world *w, int i, int how)
{
	struct end *e = &w->e[i];

	if (e->gone || e->dead || e->unconnected || e->wr_shut || e->rd_shut ||
	    (e->kind == TLS && w->tight))
		return;
	if (e->kind != UDP && tcp_state(e->fd) == TCP_CLOSE)
		return;
	say("  shutdown %d %s\n", i, how == SHUT_WR ? "WR" : "RD");
	check(!shutdown(e->fd, how), "%s", strerror(errno));
	if (how == SHUT_RD) {
		e->rd_shut = true;
		return;
	}
	e->wr_shut = true;
	if (e->kind != UDP)
		w->e[i ^ 1].fin = true;
}

/* The connection is over for the peer. */
static void leave_peer(struct world *w, int i)
{
	struct end *peer = &w->e[i ^ 1];

	tally->resets++;
	drop_all(&w->e[i].in);
	if (w->e[i].kind == UDP)
		return;
	peer->lossy = true;
	peer->fin |= !w->tight;	/* else it may come much later */
}

static void op_close(struct world *w, int i, bool hard)
{
	struct end *e = &w->e[i];
	const struct linger now = { .l_onoff = 1 };

	if (e->gone || (e->out.active && e->in.n))
		return;		/* the count of a closed source cannot be read */
	hard |= w->tight;
	say("  %s %d\n", hard ? "reset" : "close", i);
	if (hard)
		setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(e->fd);
	if (e->out.active)
		splice_ended(w, i, 0);
	e->gone = true;
	leave_peer(w, i);
}

static void op_disconnect(struct world *w, int i)
{
	const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct end *e = &w->e[i];
	int err;

	if (e->gone || e->dead || e->unconnected || (e->out.active && e->in.n))
		return;
	err = connect(e->fd, &none, sizeof(none)) ? errno : 0;
	say("  disconnect %d: %s\n", i, error_name(err));
	if (e->kind == TLS && err == EOPNOTSUPP)
		return;
	check(!err, "disconnect %d: %s", i, error_name(err));
	e->unconnected = true;
	if (e->kind == UDP) {
		tally->resets++;
		return;
	}
	if (e->out.active)
		splice_ended(w, i, 0);
	e->dead = true;
	e->err = ANY_ERROR;
	e->foreign = true;
	leave_peer(w, i);
}

/* No splice moves what comes to this end, or sends to it. Else it would be open what it had got
 * before it was closed.
 */
static bool is_end_of_chain(const struct world *w, int i)
{
	return !w->e[i].out.active && w->e[i ^ 1].in_from < 0;
}

/* Sends, and while that is on its way does something to a splice that it comes to. */
static void op_send(struct world *w, int i)
{
	const int source = i ^ 1;
	const int sink = w->e[source].out.sink;
	int victim;

	if (!can_send(w, i) || !send_some(w, i) || !w->e[source].out.active ||
	    closes_ring(w, source, sink) || pick(w, 2))
		return;
	while (!w->e[i].out.active && w->e[i].in_from < 0 && can_send(w, i) && !pick(w, 2))
		send_some(w, i);
	for (int k = 0; k < w->e[source].in.n; k++)
		if (!w->e[source].in.c[k].len)
			return;		/* nobody counts these */
	tally->hurried++;
	victim = pick(w, 2) ? sink : i;
	switch (pick(w, 8)) {
	case 0:
		op_shutdown(w, sink, SHUT_WR);
		break;
	case 1:
		op_shutdown(w, i, SHUT_WR);
		break;
	case 2:
		op_shutdown(w, source, SHUT_RD);
		break;
	case 3:
		if (is_end_of_chain(w, victim) && !pick(w, 2))
			op_close(w, victim, pick(w, 2));
		break;
	case 4:
		if (is_end_of_chain(w, victim) && !pick(w, 2))
			op_disconnect(w, victim);
		break;
	default:
		op_unsplice(w, source, true);
	}
}

static bool is_closed(const struct end *e)
{
	return e->kind == UDP ? e->unconnected : tcp_state(e->fd) == TCP_CLOSE;
}

enum { NOT_CONNECTED, OTHER_PROTOCOL, NOT_ITSELF, BUSY, REASONS };

/* Sets for which reasons so_splice(4) refuses this splice. */
static void refusals(const struct world *w, int from, int to, bool reasons[REASONS])
{
	const struct end *p = &w->e[from], *q = &w->e[to];

	reasons[NOT_CONNECTED] = (p->kind != UDP && is_closed(p)) || is_closed(q);
	reasons[OTHER_PROTOCOL] = (p->kind == UDP) != (q->kind == UDP);
	reasons[NOT_ITSELF] = from == to && p->kind != TCP;
	reasons[BUSY] = p->out.active || q->in_from >= 0;
}

/* Whether the call may have this result. Without a reason it must succeed. */
static bool may_give(const bool reasons[REASONS], int err)
{
	static const int errors[] = { ENOTCONN, EPROTONOSUPPORT, EINVAL, EBUSY };
	bool any = false;

	for (int k = 0; k < REASONS; k++) {
		if (reasons[k] && errors[k] == err)
			return true;
		any |= reasons[k];
	}
	return !err && !any;
}

/* A ring is fine if its end can be told: bytes start at one place only. */
static bool ring_is_clear(const struct world *w, int from, int to)
{
	int at = from, with_bytes = 0;

	if (!closes_ring(w, from, to))
		return true;
	if (w->tight)
		return false;
	do {
		with_bytes += w->e[at].in.n > 0;
		at = (at == from ? to : w->e[at].out.sink) ^ 1;
	} while (at != from);
	return with_bytes <= 1;
}

static bool has_empty(const struct queue *q)
{
	for (int k = 0; k < q->n; k++)
		if (!q->c[k].len)
			return true;
	return false;
}

static void op_splice(struct world *w, int from, int to)
{
	struct end *p = &w->e[from];
	struct splice s = { .sp_fd = w->e[to].fd };
	long idle = 0, began = 0;
	bool reasons[REASONS];
	int err;

	if (p->gone || w->e[to].gone || is_unsure(w, from) || is_unsure(w, w->e[to].in_from) ||
	    !ring_is_clear(w, from, to))
		return;
	if (!pick(w, 3))
		s.sp_max = 1 + pick(w, pick(w, 2) ? 100 : p->in.bytes + 3000);
	/* At the limit a splice shows its count when it ends. With kTLS that may wait for room. */
	if (w->tight && (p->kind == TLS || w->e[to].kind == TLS))
		s.sp_max = 0;
	if (!pick(w, 8) && !has_empty(&p->in)) {
		idle = 10 + pick(w, 30);
		began = tick_ms();
	}
	s.sp_idle.tv_usec = idle * 1000;
	if (!idle && !pick(w, 4))
		s.sp_idle.tv_sec = 1000;
	refusals(w, from, to, reasons);
	err = socksplice_splice(p->fd, &s) ? errno : 0;
	say("  splice %d -> %d, at most %lld, idle %ld ms: %s\n", from, to, (long long)s.sp_max,
	    idle, error_name(err));
	check(may_give(reasons, err), "splice %d -> %d: %s", from, to, error_name(err));
	tally->refused += !!err;
	if (err)
		return;
	splice_begins(w, from, to, s.sp_max, idle, began);
	check_begun(w, from);
}

static void op_refused(struct world *w, int from, int to)
{
	struct splice s = { .sp_fd = w->e[to].fd, .sp_max = -1 };

	if (w->e[from].gone || w->e[to].gone)
		return;
	if (pick(w, 2)) {
		s.sp_max = 0;
		s.sp_idle.tv_usec = pick(w, 2) ? -1 : 1000000;
	}
	check(socksplice_splice(w->e[from].fd, &s) && errno == EINVAL, "%s", strerror(errno));
	tally->refused++;
}

void step(struct world *w, int n)
{
	const uint64_t rng = w->rng;
	int i, to;

	w->rng = w->seed * 0x9e3779b97f4a7c15 + n * 0xd1342543de82ef95;
	i = pick(w, w->n);
	to = pick(w, w->n);
	say("%d\n", n);
	tally->steps++;
	switch (pick(w, 40)) {
	case 0 ... 10:
		op_send(w, i);
		break;
	case 11 ... 16:
		op_read(w, i);
		break;
	case 17 ... 26:
		op_splice(w, i, to);
		break;
	case 27 ... 29:
		op_unsplice(w, i, false);
		break;
	case 30 ... 33:
		take_error(w, i);
		break;
	case 34:
		op_refused(w, i, to);
		break;
	case 35 ... 36:
		op_record(w, i);
		break;
	case 37:
		op_shutdown(w, i, pick(w, 2) ? SHUT_WR : SHUT_RD);
		break;
	case 38:
		if (n > 15)
			op_close(w, i, pick(w, 2));
		break;
	default:
		if (n > 15)
			op_disconnect(w, i);
	}
	settle(w);
	w->rng = rng;
}

/* Reads whatever there is. True if all has come. */
static bool read_all(struct world *w)
{
	bool all = true;

	for (int i = 0; i < w->n; i++) {
		struct end *e = &w->e[i];

		if (e->gone || (e->unconnected && e->kind != UDP))
			continue;
		take_error(w, i);
		while (!e->out.active && e->in.n) {
			const uint64_t before = e->in.bytes + e->in.n;

			read_some(w, i, 100000);
			if (e->in.bytes + e->in.n == before)
				break;	/* tight: the rest is on its way */
		}
		if (e->lossy && !e->out.active)
			drop_all(&e->in);
		all = all && !e->in.n;
	}
	return all;
}

static void drain(struct world *w)
{
	uint64_t left, last = 0;
	long start = ms();

	for (;;) {
		settle(w);
		if (read_all(w))
			return;
		left = outstanding(w);
		if (left != last)
			start = ms();
		last = left;
		check(ms() - start < patience, "%llu bytes never come", (unsigned long long)left);
		usleep(500);
	}
}

void finish(struct world *w)
{
	say("all is read\n");
	drain(w);
	for (int i = 0; i < w->n; i++)
		op_unsplice(w, i, false);
	settle(w);
	for (int i = 0; i < w->n; i++) {
		struct end *e = &w->e[i];

		if (e->gone || (e->unconnected && e->kind != UDP))
			continue;
		take_error(w, i);
		check(!e->in.n, "%d has bytes left", i);
		read_nothing(w, i);
	}
}
