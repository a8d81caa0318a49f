// SPDX-License-Identifier: GPL-2.0
/*
 * The operations. Each first checks that it has exactly one right answer now. If not, it
 * is left out; fuzz.h says why.
 */
#include "fuzz.h"

#include <time.h>
#include <sys/epoll.h>
#include <linux/errqueue.h>

#define TIMED_MS 20

void left_out(const char *why)
{
	say("  left out: %s", why);
}

void say_result(long ret)
{
	if (ret < 0)
		say("  = %s", strerrorname_np(errno));
	else
		say("  = %ld", ret);
}

int get_int(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int v = -1;

	return getsockopt(fd, level, name, &v, &len) ? -errno : v;
}

bool set_int(int fd, int level, int name, int v)
{
	return !setsockopt(fd, level, name, &v, sizeof(v));
}

/* Sending */

bool sleeps_in_recv(const struct side *s)
{
	return s->asleep && s->target;
}

/* The peer answers bytes that are sent now with a reset. */
static bool is_deaf(const struct side *peer)
{
	return peer->fd < 0 || (peer->shut_rd && peer->phase == PHASE_SENT_FIN);
}

/* How many of the operation's bytes may be sent now: those that surely fit. */
static int send_size(const struct op *op)
{
	const struct side *peer = &side[other(op->end)];
	int n = op->n, room = (big ? ROOM_BIG : ROOM) - peer->avail;

	if (is_deaf(peer))
		return n < 1000 ? n : 1000;
	/* If the bytes arrive in parts, the sleeping reader may return with the first part. */
	if (sleeps_in_recv(peer) && !(peer->waits_in.flags & MSG_WAITALL) && n > 16000)
		n = 16000;
	return n < room ? n : room;
}

/* True if the bytes must arrive in one piece, since a first part would have its own effect. */
static bool in_one_piece(const struct op *op)
{
	const struct side *peer = &side[other(op->end)];

	return is_deaf(peer) || sleeps_in_recv(peer);
}

static long sent(const struct op *op, long ret)
{
	struct side *s = &side[op->end], *peer = &side[other(op->end)];

	say_result(ret);
	if (ret <= 0)
		return ret;
	s->pos += ret;
	if (peer->fd < 0)
		s->condemned = true;
	else if (!is_deaf(peer))
		peer->avail += ret;
	return ret;
}

static void op_send(const struct op *op)
{
	struct op simple = *op;
	int n = send_size(op);

	if (n < 0)
		return left_out("no room");
	if (in_one_piece(op) && (op->how == SEND_SENDMMSG || op->how == SEND_SENDFILE ||
				 op->how == SEND_SPLICE))
		simple.how = SEND_SEND;
	fill(send_area(), n, side[op->end].pos);
	errno = 0;
	sent(op, call_send(&simple, side[op->end].fd, n, op->flags));
}

/* TCP holds the first part back, and a ring does not. So nothing looks before the second part.
 * A sleeping reader that the first part did not wake would suppress the SIGIO of the second.
 */
static void op_send_held(const struct op *op)
{
	struct op part = { .end = op->end, .by = op->by, .how = op->how % 2 };
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	int n = send_size(op);

	if (n < 2 || in_one_piece(op) || (peer->async && sleeps_in_recv(peer)))
		return left_out("not now");
	if (op->what == SEND_CORKED)
		set_int(s->fd, IPPROTO_TCP, TCP_CORK, 1);
	fill(send_area(), n / 2, s->pos);
	sent(op, call_send(&part, s->fd, n / 2, op->what == SEND_MORE ? MSG_MORE : 0));
	fill(send_area(), n - n / 2, s->pos);
	sent(op, call_send(&part, s->fd, n - n / 2, 0));
	if (op->what == SEND_CORKED)
		set_int(s->fd, IPPROTO_TCP, TCP_CORK, 0);
}

static bool dropped;	/* the pair has been un-paired */

void note_unpaired(void)
{
	dropped = true;
}

static void op_send_oob(const struct op *op)
{
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	int n = send_size(op);

	if (is_deaf(peer) || peer->urgent || sleeps_in_recv(peer) || n < 1)
		return left_out("not now");
	if (n > 2000)
		n = 2000;
	fill(send_area(), n, s->pos);
	note_unpaired();
	errno = 0;
	if (sent(op, call_send(&(struct op){ .by = op->by }, s->fd, n, MSG_OOB)) > 0)
		peer->urgent = true;
}

static void op_send_zerocopy(const struct op *op)
{
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	struct pollfd p = { .fd = s->fd };
	struct sock_extended_err *e;
	char control[200];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };
	int n = send_size(op);

	/* The completion would also wake the sender's own sleeping thread. */
	if (n < 1 || peer->fd < 0 || s->phase != PHASE_OPEN || sleeps_in_recv(peer) || s->asleep)
		return left_out("not now");
	if (!set_int(s->fd, SOL_SOCKET, SO_ZEROCOPY, 1))
		return say_result(-1);
	fill(send_area(), n, s->pos);
	if (sent(op, send(s->fd, send_area(), n, MSG_ZEROCOPY)) < 0)
		return;
	/* TCP reports the completion when the bytes are acknowledged. */
	MUST(poll(&p, 1, -1));
	say_result(recvmsg(s->fd, &m, MSG_ERRQUEUE));
	if (!CMSG_FIRSTHDR(&m))
		return say("  no completion");
	e = (void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
	say("  completion %d %d, %d to %d", e->ee_origin, e->ee_code, e->ee_info, e->ee_data);
}

/* A pair that returns to TCP reports a reached mark a little late. */
bool is_told_late(const struct side *s)
{
	return dropped && s->lowat > 1;
}

/* Receiving */

/* True if the signal is pending. The kernel may merge several signals into one. */
bool signalled(int sig)
{
	const struct timespec now = { };
	bool any = false;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	while (sigtimedwait(&set, NULL, &now) == sig)
		any = true;
	return any;
}

/* The number of bytes that the first buffer takes. */
static int wanted(const struct op *op)
{
	return op->how == RECV_RECVMMSG && !(op->flags & MSG_WAITALL) ? op->n / 2 : op->n;
}

/* The number of bytes with which the call returns. splice(2) returns with any bytes that it
 * finds, but TCP does not wake a sleeping caller below the mark.
 */
static int target_of(const struct op *op, const struct side *s, int flags)
{
	int n = wanted(op);

	if (op->how == RECV_SPLICE && !flags)
		return s->avail ? 1 : s->lowat;
	if (!(flags & MSG_WAITALL) && n > s->lowat)
		n = s->lowat;
	return n ? n : 1;
}

static bool returns_at_once(const struct op *op, int flags)
{
	return (flags & MSG_DONTWAIT) ||
	       (!op->n && !flags && (op->how == RECV_READ || op->how == RECV_READV ||
				     op->how == RECV_SPLICE));
}

/* @slept: the unread bytes at the time of the wake-up depend on TCP's segmentation. */
static void received(const struct op *op, int flags, struct received *r, bool slept)
{
	struct side *s = &side[op->end];

	if (mutate && env.paired && r->ret > 1 && s->phase == PHASE_GOT_FIN)
		r->ret--;
	errno = r->err;
	say_result(r->ret);
	say("  buffer %016llx", (unsigned long long)sum(r->buf, r->len));
	if (r->ret >= 0)
		say_control(op, op->end, slept);
	if (flags & MSG_PEEK)
		return;
	if (r->ret > 0)
		s->avail -= r->ret;
	/* No byte is left, and no urgent byte either. */
	if (op->n && (!r->ret || (r->ret < 0 && r->err == EAGAIN))) {
		if (s->urgent)
			s->avail = 0;
		s->urgent = false;
	}
}

/* With a mark above one, TCP wakes a reader once the unread bytes reach the mark. It does not
 * count the bytes that the reader has received in this call.
 */
static bool is_woken_late(const struct side *s, int have, int flags)
{
	return s->lowat > 1 && (have || flags & MSG_WAITALL);
}

static void op_recv(const struct op *original)
{
	struct side *s = &side[original->end];
	struct op op = *original;
	int flags = op.flags, have = s->avail, off = -1, target;
	struct received r;

	if (sleeps_in_recv(s))
		return left_out("another reader");
	if (s->urgent) {
		flags |= MSG_DONTWAIT;
		if (op.how == RECV_SPLICE)
			op.how = RECV_RECV;
	}
	if (flags & MSG_PEEK)
		off = get_int(s->fd, SOL_SOCKET, SO_PEEK_OFF);
	if (off > 0)
		have = have > off ? have - off : 0;
	target = target_of(&op, s, flags);
	if (!returns_at_once(&op, flags) && !s->nonblock && !at_end(s) && have < target) {
		/* A call for no bytes returns on any wake-up. */
		if (s->asleep || off >= 0 || !wanted(&op) || is_woken_late(s, have, flags)) {
			flags |= MSG_DONTWAIT;
		} else {
			op.flags = flags;
			/* The delayed ACK of a FIN also wakes the reader. */
			settle_fin(s->fd);
			call_recv_start(&s->call, &op, s->fd, op.n, flags, op.end);
			s->asleep = true;
			s->waits_in = op;
			/* TCP wakes the reader at the mark, even if it asks for fewer bytes. */
			s->target = have || target > s->lowat ? target : s->lowat;
			return say("  sleeps");
		}
	}
	call_recv(&op, s->fd, op.n, flags, op.end, &r);
	received(&op, flags, &r, false);
}

void wait_end(int end)
{
	struct side *s = &side[end];
	struct received r;

	where("waiting for the call of %c that must return: %s", 'A' + end,
	      s->target ? "recv" : "poll");
	s->asleep = false;
	if (!s->target) {
		say("  %c wakes:", 'A' + end);
		say_result(call_end(&s->call));
		/* When the connection ends, TCP sets the poll bits one after another. TCP also
		 * reports an urgent byte before it receives the bytes in front of that byte.
		 */
		if (s->phase == PHASE_END)
			say("  with the end: %d", !!s->pollfd.revents);
		else if (s->urgent && s->pollfd.events == (POLLRDNORM | POLLPRI))
			say("  with an urgent byte: %d", !!s->pollfd.revents);
		else
			say_poll("  revents", s->pollfd.revents);
		return;
	}
	call_recv_end(&s->call, &s->waits_in, s->waits_in.n, end, &r);
	say("  %c wakes:", 'A' + end);
	received(&s->waits_in, s->waits_in.flags, &r, true);
	/* Between two waits the reader of a ring does not suppress SIGIO. */
	if (s->async)
		signalled(SIGRTMIN + end);
}

static void op_recv_timed(const struct op *op)
{
	struct op timed = { .what = RECV, .end = op->end, .by = op->by, .n = op->n,
			    .how = op->how % RECV_HOW_MAX };
	static const int flags[] = { 0, MSG_WAITALL, MSG_PEEK, MSG_PEEK | MSG_WAITALL };
	struct timeval tv = { .tv_usec = TIMED_MS * 1000 }, none = { };
	struct side *s = &side[op->end];
	struct received r;

	if (s->asleep || s->urgent || s->nonblock)
		return left_out("not now");
	timed.flags = flags[op->how / RECV_HOW_MAX % ARRAY_SIZE(flags)];
	say_result(setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	call_recv(&timed, s->fd, timed.n, timed.flags, op->end, &r);
	received(&timed, timed.flags, &r, true);
	say_result(setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)));
}

static void op_recv_oob(const struct op *op)
{
	const int flags = MSG_OOB | (op->how % 3 ? 0 : MSG_PEEK);
	unsigned char b[2] = "--";

	say_result(recv(side[op->end].fd, b, 1 + op->how % 2, flags));
	say("  %02x %02x", b[0], b[1]);
}

static void op_recv_bad(const struct op *op)
{
	if (side[op->end].urgent || sleeps_in_recv(&side[op->end]))
		return left_out("not now");
	say_result(recv(side[op->end].fd, NULL, op->n, MSG_DONTWAIT));
}

/* Several threads */

/* Brings both ends to rest: open, empty, and with nothing that would end a blocking call. */
static bool make_quiet(const char *why)
{
	for (int i = 0; i < 2; i++) {
		struct side *s = &side[i];

		if (s->fd < 0 || s->phase != PHASE_OPEN || s->asleep || s->nonblock || s->shut_rd ||
		    s->lowat > 1) {
			left_out("not now");
			return false;
		}
	}
	for (int i = 0; i < 2; i++) {
		drain(i, why);
		if (get_int(side[i].fd, SOL_SOCKET, SO_PEEK_OFF) >= 0)
			set_int(side[i].fd, SOL_SOCKET, SO_PEEK_OFF, -1);
	}
	return true;
}

/* Whether a reader suppresses SIGIO depends on which of two threads is first. */
static void forget_signals(void)
{
	for (int i = 0; i < 2; i++) {
		if (side[i].async)
			signalled(SIGRTMIN + i);
	}
}

static void drop(void)
{
	struct pair_info info;

	note_unpaired();
	if (env.paired && !pairs_find(conn.cookie[0], conn.cookie[1], &info))
		pairs_drop(info.id);
}

static void op_stream(const struct op *op)
{
	const int lanes = op->how & 1 ? 2 : 1, chunk = op->how & 8 ? STREAM_BIG : 0;
	struct stream in[2], out[2];

	if (!make_quiet("before the stream"))
		return;
	for (int i = 0; i < lanes; i++) {
		int from = i ? other(op->end) : op->end;

		out[i] = (struct stream){ .fd = side[from].fd, .len = op->n, .rng = 2 * i,
					  .mode = STREAM_SEND | chunk };
		in[i] = (struct stream){ .fd = side[other(from)].fd, .len = op->n, .rng = 2 * i + 1,
					 .mode = STREAM_RECV | (op->how & 2 ? STREAM_PEEK : 0) };
		stream_start(&out[i]);
		stream_start(&in[i]);
	}
	if (op->how & 4) {
		usleep(op->how);
		drop();
	}
	for (int i = 0; i < lanes; i++) {
		stream_end(&out[i]);
		stream_end(&in[i]);
		say("  sent %ld %d, received %ld %d, damaged %d", out[i].done, out[i].err,
		    in[i].done, in[i].err, in[i].damaged);
	}
	forget_signals();
}

static void op_fill(const struct op *op)
{
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	struct timeval tv = { .tv_usec = TIMED_MS * 1000 }, none = { };
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };
	uint64_t out = 0, in = 0;
	ssize_t ret;

	if (!make_quiet("before filling"))
		return;
	send_until_eagain(s->fd, &out, 64 * MIB);
	say("  writable %d", poll(&p, 1, 0));
	MUST(setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	do {	/* an ACK in flight makes room */
		fill(send_area(), KIB, out);
		ret = send(s->fd, send_area(), KIB, 0);
		out += ret > 0 ? ret : 0;
	} while (ret > 0);
	say_result(ret);
	MUST(setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)));
	say("  read back %d", recv_pattern(peer->fd, out, &in) == (long)out);
	say("  writable %d", poll(&p, 1, -1));
}

#define ROUNDS 4

/* Two threads send. Each message stays whole between those of the other thread. */
static void op_two_writers(const struct op *op)
{
	static char buf[2 * ROUNDS * 2000], message[2][2000];
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	int total = 2 * ROUNDS * op->n, of_a = 0;
	bool whole = true;

	if (!make_quiet("before two writers"))
		return;
	for (int r = 0; r < ROUNDS; r++) {
		struct call c[2];

		for (int i = 0; i < 2; i++) {
			memset(message[i], 'a' + i, op->n);
			CALL_SEND(&c[i], s->fd, message[i], op->n, 0);
		}
		for (int i = 0; i < 2; i++)
			say_result(call_end(&c[i]));
	}
	say_result(recv(peer->fd, buf, total, MSG_WAITALL));
	for (int i = 0; i < total; i++) {
		of_a += buf[i] == 'a';
		whole &= buf[i] == buf[i - i % op->n];
	}
	say("  whole %d, of the first %d", whole, of_a);
}

/* Either reader may get a byte, but both get as many bytes as they ask for. */
static void op_two_readers(const struct op *op)
{
	struct side *s = &side[op->end], *peer = &side[other(op->end)];
	static unsigned char buf[2][2000];
	int n = op->n + op->n % 2, all = 0;
	struct call c[2];

	if (!make_quiet("before two readers"))
		return;
	for (int i = 0; i < 2; i++) {
		CALL_RECV(&c[i], peer->fd, buf[i], n, MSG_WAITALL);
		call_blocked(&c[i]);
	}
	for (int i = 0; i < 4; i++) {
		fill(send_area(), n / 2, s->pos);
		say_result(send(s->fd, send_area(), n / 2, 0));
		s->pos += n / 2;
	}
	for (int i = 0; i < 2; i++) {
		say_result(call_end(&c[i]));
		for (int j = 0; j < n; j++)
			all += buf[i][j];
	}
	say("  all %d", all);
	forget_signals();
}

static void op_wait_ready(const struct op *op)
{
	static const int events[] = { POLLIN, POLLIN | POLLRDHUP, POLLPRI, POLLRDHUP,
				      POLLRDNORM | POLLPRI };
	struct side *s = &side[op->end];

	if (s->asleep)
		return left_out("another sleeper");
	s->pollfd = (struct pollfd){ s->fd, events[op->how % ARRAY_SIZE(events)], 0 };
	if (poll(&s->pollfd, 1, 0))
		return say_poll("  at once", s->pollfd.revents);
	s->target = 0;
	CALL_POLL(&s->call, &s->pollfd);
	call_blocked(&s->call);
	s->asleep = true;
	say("  sleeps");
}

/* A signal may meet a sleeping call while it moves from the ring to TCP. It then counts as sent
 * before the call (docs/differences.md). So wait until the call sleeps, and if the pair has been
 * un-paired, repeat the signal until the call returns.
 */
void interrupt(struct side *s)
{
	call_blocked(&s->call);
	pthread_kill(s->call.thread, SIGUSR1);
	while (dropped && !call_returned(&s->call)) {
		usleep(10000);
		pthread_kill(s->call.thread, SIGUSR1);
	}
}

static void op_signal(const struct op *op)
{
	struct side *s = &side[op->end];
	const bool restart = op->how % 2;
	const int before = *sigusrs;

	if (!s->asleep)
		return left_out("nobody sleeps");
	say("  %s", restart ? "with SA_RESTART" : "without SA_RESTART");
	if (!restart) {
		interrupt(s);
	} else {
		call_blocked(&s->call);
		pthread_kill(s->call.thread, SIGUSR2);
	}
	while (__atomic_load_n(sigusrs, __ATOMIC_ACQUIRE) == before)
		usleep(100);
	if (s->target && restart && !s->avail)
		call_blocked(&s->call);
	else
		wait_end(op->end);
}

/* Looking */

static void op_look(const struct op *op)
{
	static const unsigned long ioctls[] = { SIOCATMARK, SIOCINQ, SIOCOUTQNSD };
	struct side *s = &side[op->end];

	if (sleeps_in_recv(s))
		return left_out("a reader sleeps");
	for (size_t i = 0; i < ARRAY_SIZE(ioctls); i++) {
		int v = -1, ret;

		/* After a disconnect TCP keeps an arbitrary number there. */
		if (ioctls[i] == SIOCOUTQNSD && s->disconnected)
			continue;
		ret = ioctl(s->fd, ioctls[i], &v);

		say("  ioctl %zu: %d %d", i, ret, v);
	}
	say("  SO_ERROR %d", get_int(s->fd, SOL_SOCKET, SO_ERROR));
	say("  TCP_ULP %d", get_int(s->fd, IPPROTO_TCP, TCP_ULP));
	say("  SO_PEEK_OFF %d", get_int(s->fd, SOL_SOCKET, SO_PEEK_OFF));
}

static void op_epoll_add(const struct op *op)
{
	static const uint32_t masks[] = {
		EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLOUT,
		EPOLLIN | EPOLLONESHOT, EPOLLPRI | EPOLLET,
		EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET,
		/* No EPOLLOUT with EPOLLET: the kernel chooses when ACKs make room. */
	};
	struct epoll_event ev = { .events = masks[op->how % ARRAY_SIZE(masks)] };
	struct side *s = &side[op->end];
	bool is_new = !s->epoll;

	if (is_new)
		s->epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
	say("  %x", ev.events);
	say_result(epoll_ctl(s->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s->fd, &ev));
}

static void op_epoll_wait(const struct op *op)
{
	struct side *s = &side[op->end];
	struct epoll_event ev = { };

	if (!s->epoll || sleeps_in_recv(s) || is_told_late(s))
		return left_out("not now");
	/* The delayed ACK of a FIN is an edge of its own. */
	if (s->fd >= 0)
		settle_fin(s->fd);
	say_result(epoll_wait(s->epoll, &ev, 1, 0));
	say_poll("  events", ev.events);
}

void op_play(const struct op *op)
{
	struct side *s = &side[op->end];

	if (s->fd < 0)
		return left_out("closed");
	errno = 0;
	switch (op->what) {
	case SEND:
		return op_send(op);
	case SEND_MORE:
	case SEND_CORKED:
		return op_send_held(op);
	case SEND_OOB:
		return op_send_oob(op);
	case SEND_ZEROCOPY:
		return op_send_zerocopy(op);
	case SEND_BAD:
		return say_result(send(s->fd, NULL, 100, 0));
	case RECV:
		return op_recv(op);
	case RECV_TIMED:
		return op_recv_timed(op);
	case RECV_OOB:
		return op_recv_oob(op);
	case RECV_ERRQUEUE:
		return say_result(recv(s->fd, send_area(), 100, MSG_ERRQUEUE));
	case RECV_BAD:
		return op_recv_bad(op);
	case STREAM:
		return op_stream(op);
	case FILL:
		return op_fill(op);
	case TWO_WRITERS:
		return op_two_writers(op);
	case TWO_READERS:
		return op_two_readers(op);
	case WAIT_READY:
		return op_wait_ready(op);
	case SIGNAL:
		return op_signal(op);
	case LOOK:
		return op_look(op);
	case EPOLL_ADD:
		return op_epoll_add(op);
	case EPOLL_WAIT:
		return op_epoll_wait(op);
	case OPTION:
		return op_option(op);
	case LOWAT:
		return op_lowat(op);
	case PEEK_OFF:
		return op_peek_off(op);
	case NONBLOCK:
		return op_nonblock(op);
	case ASYNC:
		return op_async(op);
	case ODD_CALL:
		return op_odd_call(op);
	case SHUT:
		return op_shut(op);
	case CLOSE:
	case ABORT:
		return op_close(op);
	case DISCONNECT:
		return op_disconnect(op);
	case DUP:
	case PASS:
		return op_dup(op);
	case DROP:
		return drop();
	case WHAT_MAX:
		break;
	}
}
