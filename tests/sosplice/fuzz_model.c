// SPDX-License-Identifier: GPL-2.0
/*
 * The model: what the splices have moved, what each of them must do next, and whether the
 * sockets agree.
 */
#include <netinet/tcp.h>

#include "fuzz.h"

/* What the model expects of a splice. */
enum want {
	REST,		/* nothing to move */
	MOVE,		/* its bytes must move on */
	PERHAPS,	/* they move if the sink has room */
	END,
};

uint64_t outstanding(const struct world *w)
{
	uint64_t sum = 0;

	for (int i = 0; i < w->n; i++)
		sum += w->e[i].in.bytes + w->e[i].in.n;
	return sum;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Nobody can read what this end sends. */
bool sends_lost(struct world *w, int from)
{
	const struct end *peer = &w->e[from ^ 1];

	return peer->gone || peer->unconnected;
}

void send_to(struct world *w, int from, const struct chunk *c)
{
	struct end *e = &w->e[from];

	if (!sends_lost(w, from)) {
		push(&w->e[from ^ 1].in, c, e->kind != UDP);
	} else if (e->kind == UDP) {
		e->err = ECONNREFUSED;
		e->foreign = true;
	} else {
		e->doomed = true;
	}
}

static bool lives(const struct world *w, uint32_t id)
{
	for (int i = 0; i < w->n; i++)
		if (w->e[i].out.active && w->e[i].out.id == id)
			return true;
	return false;
}

/* A datagram that was sent by a splice counts as new once that splice has ended. */
static int hops_of(const struct world *w, const struct chunk *c)
{
	return c->by && lives(w, c->by) ? c->hops : 0;
}

/* Moves what the count says and the source has. False if it has nothing for that. */
static bool move_some(struct world *w, int from)
{
	struct end *e = &w->e[from];
	struct splicing *s = &e->out;
	struct chunk c = e->in.c[0];

	if (!e->in.n || c.type != DATA)
		return false;
	if (e->kind == UDP) {
		if (c.len > s->surplus)
			return false;
		c.hops = hops_of(w, &c) + 1;
		c.by = s->id;
		tally->datagrams++;
	} else {
		c.len = least(c.len, s->surplus);
	}
	drop_front(&e->in, c.len);
	s->surplus -= c.len;
	s->moved += c.len;
	s->traced = true;
	s->loops = false;	/* another splice of the ring had ended first */
	tally->moved += c.len;
	send_to(w, s->sink, &c);
	return true;
}

static void move_all(struct world *w)
{
	bool again;

	do {
		again = false;
		for (int i = 0; i < w->n; i++)
			while (w->e[i].out.active && w->e[i].out.surplus && move_some(w, i))
				again = true;
	} while (again);
}

/* Reads all counts at one point of time: they only grow, so two equal readings are one. */
static void learn(struct world *w)
{
	int64_t now[ENDS_MAX], last[ENDS_MAX];
	bool same = false;

	for (bool first = true; !same; first = false) {
		same = !first;
		for (int i = 0; i < w->n; i++) {
			now[i] = w->e[i].out.active ? moved_of(w->e[i].fd) : 0;
			same = same && now[i] == last[i];
			last[i] = now[i];
		}
	}
	for (int i = 0; i < w->n; i++) {
		struct splicing *s = &w->e[i].out;

		if (!s->active)
			continue;
		check(now[i] >= s->moved, "the count of %d went from %lld to %lld", i,
		      (long long)s->moved, (long long)now[i]);
		check(!s->max || now[i] <= s->max, "%d moved %lld of at most %lld", i,
		      (long long)now[i], (long long)s->max);
		s->surplus = now[i] - s->moved;
	}
	move_all(w);
}

void splice_begins(struct world *w, int from, int to, int64_t max, long idle, long began)
{
	struct end *e = &w->e[from];

	e->out = (struct splicing) {
		.active = true, .sink = to, .id = ++w->ids, .max = max, .idle = idle,
		.began = began,
	};
	e->count = 0;
	w->e[to].in_from = from;
	tally->splices++;
	if (closes_ring(w, from, to))
		for (int i = 0; i < w->n; i++)
			w->e[i].out.ringed = true;
}

void splice_ended(struct world *w, int from, int err)
{
	struct end *e = &w->e[from];

	say("  splice %d -> %d has ended after %lld bytes: %s\n", from, e->out.sink,
	    (long long)e->out.moved, error_name(err));
	e->out.active = false;
	e->count = e->out.moved;
	if (w->e[e->out.sink].in_from == from)
		w->e[e->out.sink].in_from = -1;
	if (err > 0)
		tally->ended[err]++;
	if (err && !e->err) {
		e->err = err;
		e->foreign = false;
	}
}

void splice_unspliced(struct world *w, int from)
{
	const long start = ms();

	/* A splice before it in a chain may have yet to count what has come. */
	do
		learn(w);
	while (w->e[from].out.surplus && ms() - start < patience);
	check(!w->e[from].out.surplus, "%d counted %lld bytes that it never had", from,
	      (long long)w->e[from].out.surplus);
	splice_ended(w, from, 0);
}

/* Whether the chain of splices behind the sink @to comes back to @from. All of them are to have
 * moved something, or to be about to.
 */
static bool comes_back(const struct world *w, int from, int to, bool traced)
{
	int at = to ^ 1;

	for (int i = 0; i < w->n; i++) {
		if (at == from)
			return true;
		if (!w->e[at].out.active || (traced && !w->e[at].out.traced))
			return false;
		at = w->e[at].out.sink ^ 1;
	}
	return false;
}

bool closes_ring(const struct world *w, int from, int to)
{
	return comes_back(w, from, to, false);
}

static enum want want_of_datagram(const struct world *w, int from, int *err)
{
	const struct splicing *s = &w->e[from].out;
	const struct chunk *c = &w->e[from].in.c[0];

	if (s->max && c->len > s->max - s->moved)
		*err = 0;
	else if (hops_of(w, c) >= HOPS_MAX)
		*err = ELOOP;
	else if ((int)c->len > w->e[s->sink].sndbuf)
		*err = EMSGSIZE;
	else
		return MOVE;
	return END;
}

static enum want want_of_stream(struct world *w, int from, int *err)
{
	struct splicing *s = &w->e[from].out;
	const struct end *sink = &w->e[s->sink];

	if (w->e[from].in.c[0].type != DATA) {
		*err = ENOMSG;
		return END;
	}
	if (sink->kind == TLS && sink->err)
		return REST;	/* until the application takes the error */
	if (!s->traced) {
		s->traced = true;
		s->loops = comes_back(w, from, s->sink, true);
	}
	*err = ELOOP;
	return s->loops ? END : w->tight ? PERHAPS : MOVE;
}

static bool is_sink_dead(const struct end *sink)
{
	return sink->gone || sink->unconnected || sink->dead || sink->wr_shut;
}

/* What the splice must do, and with which error it must end. */
static enum want want_of(struct world *w, int from, int *err)
{
	const struct end *e = &w->e[from];
	const struct splicing *s = &e->out;
	const struct end *sink = &w->e[s->sink];

	*err = 0;
	if (e->err)
		return END;	/* its own error stays */
	if (s->max && s->moved == s->max) {
		*err = EFBIG;
		return END;
	}
	if (is_sink_dead(sink)) {
		*err = EPIPE;
		return END;
	}
	if (sink->err && sink->foreign) {
		*err = sink->err;
		return END;
	}
	if (e->dead)
		return END;	/* its own error has been taken */
	if (e->in.n)
		return e->kind == UDP ? want_of_datagram(w, from, err) :
					want_of_stream(w, from, err);
	return e->fin || e->rd_shut ? END : REST;
}

/* Whether a splice has this source. A socket that is not connected cannot be a sink. */
static bool is_source(struct world *w, int i)
{
	struct splice s = { .sp_fd = w->spare[w->e[i].kind == UDP] };

	/* A closed connection is refused in any case. While spliced, its POLLHUP is hidden. */
	if (w->e[i].kind != UDP && tcp_state(w->e[i].fd) == TCP_CLOSE)
		return !(poll_now(w->e[i].fd) & POLLHUP);
	check(socksplice_splice(w->e[i].fd, &s), "a sink that is not connected");
	check(errno == EBUSY || errno == ENOTCONN, "%s", strerror(errno));
	return errno == EBUSY;
}

/* A splice may have ended in two ways: its idle time was short, or see is_ambiguous(). Takes the
 * error at once to know which.
 */
static int take_either(struct world *w, int i, int err)
{
	struct end *e = &w->e[i];
	const struct end *sink = &w->e[e->out.sink];
	const long took = e->out.idle ? tick_ms() - e->out.began : 0;
	int got, other = err;

	if (e->err)
		return 0;	/* an older error: nothing is left in SO_ERROR */
	if (e->kind == UDP && e->in.n)
		want_of_datagram(w, i, &other);
	else if (e->out.ringed)
		other = ELOOP;
	got = error_of(e->fd);
	check(got == err || got == other || (e->out.idle && got == ETIMEDOUT) ||
	      ((e->rd_shut || e->dead) && !got) || (sink->foreign && got == sink->err),
	      "the splice of %d ended with %s, not %s or %s", i, error_name(got),
	      error_name(err), error_name(other));
	check(got != ETIMEDOUT || !e->out.idle || took >= e->out.idle, "after %ld ms, not %ld", took,
	      e->out.idle);
	if (got)
		tally->ended[got]++;
	return 0;		/* nothing is left in SO_ERROR */
}

/* The source was reset, or the sink has an error, but the sink's close or the next datagram may be
 * what has ended the splice. Or a ring was found that the end of another of its splices has opened
 * since.
 */
static bool is_ambiguous(const struct world *w, const struct end *e)
{
	const struct end *sink = &w->e[e->out.sink];
	const bool failed = sink->err && sink->foreign, dead = is_sink_dead(sink);

	if (e->kind != UDP)
		return e->dead || (e->in.n && e->out.ringed);
	return (failed && dead) || ((e->in.n || e->rd_shut) && (failed || dead));
}

/* Looks at one splice. Returns what it still has to do, or NULL. */
static const char *look_at_splice(struct world *w, int i)
{
	static char texts[ENDS_MAX][64];
	char *text = texts[i];
	struct end *e = &w->e[i];
	const bool ended = !is_source(w, i);
	enum want want;
	int err;

	if (ended)
		learn(w);
	if (e->out.surplus)
		return "counts bytes that it never had";
	want = want_of(w, i, &err);
	/* The count does not tell whether an empty datagram has been moved. Its reader will. */
	if (want == MOVE && !e->in.c[0].len) {
		move_some(w, i);
		return "";
	}
	if (ended && (e->out.idle || is_ambiguous(w, e))) {
		if (want != END)
			err = e->out.idle ? ETIMEDOUT : ELOOP;
		splice_ended(w, i, take_either(w, i, err));
		return "";
	}
	if (ended && want == END) {
		splice_ended(w, i, err);
		return "";		/* look at all the others again */
	}
	/* Bytes may have come just behind SHUT_RD. */
	if (ended && e->rd_shut) {
		splice_ended(w, i, 0);
		return "";
	}
	if (ended)
		return "has ended, for no reason";
	if (want == END && w->tight && (e->kind == TLS || w->e[e->out.sink].kind == TLS))
		return NULL;	/* once TCP has room for the last record */
	if (want == END) {
		snprintf(text, sizeof(texts[0]), "has not ended with %s", error_name(err));
		return text;
	}
	if (want == MOVE)
		return "does not go on";
	return e->out.idle ? "has not run out of its idle time" : NULL;
}

/* What a close at the other end, or a reset, has made of a TCP socket. */
static const char *look_at_state(struct world *w, int i)
{
	struct end *e = &w->e[i];
	int state;

	if (e->gone || e->dead || e->kind == UDP || !(e->doomed || e->lossy))
		return NULL;
	state = tcp_state(e->fd);
	if (state == TCP_CLOSE) {
		e->dead = e->fin = true;
		if (poll_now(e->fd) & POLLERR) {
			e->err = ANY_ERROR;
			e->foreign = true;
		}
		return "";
	}
	if (e->doomed)
		return "has not been reset";
	if (w->tight)
		return NULL;	/* it waits behind bytes that have no room */
	return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 ?
	       "has got neither a FIN nor a reset" : NULL;
}

static const char *look_at_poll(const struct world *w, const struct end *e)
{
	const short got = poll_now(e->fd);
	const bool known = !e->lossy && !w->tight;

	if (e->err > 0 && !(got & POLLERR))
		return "has no POLLERR";
	if (!e->err && got & POLLERR)
		return "has POLLERR";
	if (e->out.active)
		return got & (POLLIN | POLLRDHUP | POLLHUP) ? "is readable while spliced" : NULL;
	if (e->in.n && known && !(got & POLLIN))
		return "is not readable";
	if (!e->in.n && !e->fin && !e->rd_shut && !e->dead && !e->unconnected &&
	    !(e->lossy && w->tight) && got & POLLIN)
		return "is readable";
	if (e->fin && known && !(got & POLLRDHUP))
		return "has no end of file";
	return NULL;
}

/* Returns what is wrong with the socket, or has not come yet, or NULL. */
static const char *look_at_socket(const struct world *w, const struct end *e)
{
	static char text[128];
	int64_t want = e->out.active ? e->out.moved : e->count, got;
	int n;

	if (e->gone || e->unconnected)
		return NULL;
	got = moved_of(e->fd);
	if (got != want && !w->tight) {
		snprintf(text, sizeof(text), "counts %lld, not %lld", (long long)got,
			 (long long)want);
		return text;
	}
	if (e->kind == TCP && !e->lossy && !w->tight) {
		check(!ioctl(e->fd, FIONREAD, &n), "%s", strerror(errno));
		if (n != (int)e->in.bytes) {
			snprintf(text, sizeof(text), "has %d bytes, not %llu", n,
				 (unsigned long long)e->in.bytes);
			return text;
		}
	}
	return look_at_poll(w, e);
}

/* Looks at everything once. Returns what has not come yet and sets *@who, or "" if the next look
 * may find more, or NULL.
 */
static const char *look(struct world *w, int *who)
{
	const char *why, *found = NULL;

	learn(w);
	for (int i = 0; i < 2 * w->n && (!found || *found); i++) {
		const int at = i % w->n;

		/* first the states of all, which tell why splices end */
		if (i < w->n)
			why = look_at_state(w, at);
		else
			why = w->e[at].out.active ? look_at_splice(w, at) : NULL;
		if (why && (!found || !*why)) {
			found = why;
			*who = at;
		}
	}
	for (int i = 0; i < w->n && !found; i++) {
		found = look_at_socket(w, &w->e[i]);
		*who = i;
	}
	return found;
}

/* setsockopt(2) has returned: what was queued has moved, and a splice that cannot go on has ended.
 * Not checked where a splice may be busy for longer, or its bytes may not have come yet.
 */
void check_begun(struct world *w, int i)
{
	const struct end *e = &w->e[i];
	enum want want;
	int err;

	learn(w);
	if (w->tight || e->out.surplus || e->out.idle || e->lossy || e->kind == TLS ||
	    w->e[e->out.sink].kind == TLS || sends_lost(w, e->out.sink) ||
	    closes_ring(w, i, e->out.sink))
		return;
	/* What another splice sends on the source may be refused at any time. */
	if (e->in_from >= 0 && sends_lost(w, i))
		return;
	want = want_of(w, i, &err);
	check(want != MOVE || !e->in.c[0].len, "%llu bytes were queued, and not moved at once",
	      (unsigned long long)e->in.bytes);
	check(want != END || !is_source(w, i), "not ended with %s at once", error_name(err));
}

void settle(struct world *w)
{
	long start = ms();
	const char *why;
	int who = 0;

	while ((why = look(w, &who))) {
		if (!*why) {
			start = ms();	/* one more has ended */
			continue;
		}
		if (ms() - start > patience)
			die("%s %d, which has %llu bytes and moved %lld: %s",
			    w->e[who].out.active ? "splice" : "socket", who,
			    (unsigned long long)w->e[who].in.bytes,
			    (long long)w->e[who].out.moved, why);
		usleep(200);
	}
}
