// SPDX-License-Identifier: GPL-2.0
/*
 * The operations on options, and those that change an end: non-blocking mode, shutdown,
 * close, another descriptor.
 */
#include "fuzz.h"

#include <sys/epoll.h>

/* A reader below the mark may already find as many bytes as it asks for. On TCP any wake-up then
 * ends its wait, on a pair it does not (docs/differences.md).
 */
static bool is_woken_by_anything(const struct side *s)
{
	return sleeps_in_recv(s) && s->lowat > 1 && s->avail;
}

void op_option(const struct op *op)
{
	static const struct { int level, name, value; } options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 }, { SOL_SOCKET, SO_KEEPALIVE, 0 },
		{ SOL_SOCKET, SO_RCVBUF, 300000 }, { SOL_SOCKET, SO_SNDBUF, 400000 },
		{ SOL_SOCKET, SO_PRIORITY, 3 }, { SOL_SOCKET, SO_BUSY_POLL, 20 },
		{ SOL_SOCKET, SO_ZEROCOPY, 1 }, { SOL_SOCKET, SO_MAX_PACING_RATE, 1000000000 },
		{ IPPROTO_TCP, TCP_NODELAY, 0 }, { IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_QUICKACK, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 100 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 60000 }, { IPPROTO_TCP, TCP_NOTSENT_LOWAT, 70000 },
		{ IPPROTO_TCP, TCP_INQ, 1 }, { IPPROTO_TCP, TCP_INQ, 0 },
		{ IPPROTO_TCP, TCP_ULP, 0 },
		{ SOL_SOCKET, SO_OOBINLINE, 1 }, { SOL_SOCKET, SO_OOBINLINE, 0 },
		{ SOL_SOCKET, SO_LINGER, 1 },
	};
	struct side *s = &side[op->end];
	int i = op->how % ARRAY_SIZE(options), value = options[i].value;
	struct linger linger = { .l_onoff = op->n % 2, .l_linger = 1 };

	if (options[i].name == SO_LINGER && options[i].level == SOL_SOCKET) {
		say("  SO_LINGER");
		return say_result(setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &linger,
					     sizeof(linger)));
	}
	if (big && (options[i].name == SO_RCVBUF || options[i].name == SO_SNDBUF) &&
	    options[i].level == SOL_SOCKET)
		return left_out("the buffers are big");
	if (options[i].name == SO_OOBINLINE && options[i].level == SOL_SOCKET && s->urgent)
		return left_out("an urgent byte is there");
	/* A pair answers EBUSY while its ring has unread bytes. */
	if (options[i].name == TCP_ULP && options[i].level == IPPROTO_TCP &&
	    (s->avail || s->asleep))
		return left_out("unread bytes");
	if (options[i].name == TCP_ULP && options[i].level == IPPROTO_TCP)
		note_unpaired();
	/* These options wake the socket to report room for sending. */
	if (((options[i].name == TCP_NOTSENT_LOWAT && options[i].level == IPPROTO_TCP) ||
	     (options[i].name == SO_SNDBUF && options[i].level == SOL_SOCKET)) &&
	    is_woken_by_anything(s))
		return left_out("a reader sleeps");
	/* Un-pairing may restart the sleeping call, which then sees the new value. */
	if (options[i].name == TCP_INQ && options[i].level == IPPROTO_TCP && sleeps_in_recv(s))
		return left_out("a reader sleeps");
	say("  option %d %d, %d", options[i].level, options[i].name, value);
	say_result(setsockopt(s->fd, options[i].level, options[i].name, &value, sizeof(value)));
	/* The value that TCP returns depends on the timing of the packets. */
	if (options[i].level == IPPROTO_TCP && options[i].name == TCP_QUICKACK)
		return;
	say("  now %d", get_int(s->fd, options[i].level, options[i].name));
}

void op_lowat(const struct op *op)
{
	struct side *s = &side[op->end];
	struct epoll_event ev;

	if (s->asleep)
		return left_out("a thread sleeps");
	if (s->async && !is_told_late(s))
		say("  ready %d", signalled(SIGRTMIN + op->end));
	settle_fin(s->fd);
	say_result(setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &op->n, sizeof(op->n)));
	s->lowat = op->n;
	/* A pair reports the bytes in its ring only with the next arrival. */
	if (s->epoll)
		epoll_wait(s->epoll, &ev, 1, 0);
	if (s->async)
		signalled(SIGRTMIN + op->end);
}

void op_peek_off(const struct op *op)
{
	struct side *s = &side[op->end];

	if (sleeps_in_recv(s))
		return left_out("a reader sleeps");
	say_result(setsockopt(s->fd, SOL_SOCKET, SO_PEEK_OFF, &op->n, sizeof(op->n)));
}

void op_nonblock(const struct op *op)
{
	struct side *s = &side[op->end];

	if (s->asleep)
		return left_out("a thread sleeps");
	s->nonblock = op->how % 2;
	nonblock(s->fd, s->nonblock);
}

void op_async(const struct op *op)
{
	struct side *s = &side[op->end];
	int fl;

	if (s->asleep || is_told_late(s))
		return left_out("not now");
	if (s->async) {
		say("  ready %d, urgent %d", signalled(SIGRTMIN + op->end), signalled(SIGURG));
		if (op->how % 4)
			return;
	}
	s->async = !s->async;
	fl = MUST(fcntl(s->fd, F_GETFL));
	MUST(fcntl(s->fd, F_SETOWN, s->async ? getpid() : 0));
	MUST(fcntl(s->fd, F_SETSIG, SIGRTMIN + op->end));
	MUST(fcntl(s->fd, F_SETFL, s->async ? fl | O_ASYNC : fl & ~O_ASYNC));
	say("  %s", s->async ? "on" : "off");
}

void op_odd_call(const struct op *op)
{
	struct side *s = &side[op->end];
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (s->disconnected)
		return left_out("not connected");
	switch (op->how % 7) {
	case 0:
		len = sizeof(ss);
		MUST(getsockname(s->fd, (void *)&ss, &len));
		return say_result(connect(s->fd, (void *)&ss, len));
	case 1:
		return say_result(listen(s->fd, 1));
	case 2:
		return say_result(accept4(s->fd, NULL, NULL, SOCK_NONBLOCK));
	case 3:
		return say_result(shutdown(s->fd, 7));
	case 4:
		return say_result(getpeername(s->fd, (void *)&ss, &len));
	case 5:
		return say_result(ioctl(s->fd, 0xdeadbeef, &len));
	case 6:
		return say_result(setsockopt(s->fd, IPPROTO_TCP, 9999, &len, sizeof(len)));
	}
}

void op_shut(const struct op *op)
{
	struct side *s = &side[op->end];
	int ret;

	if (is_woken_by_anything(s))
		return left_out("a reader sleeps");
	ret = shutdown(s->fd, op->how % 3);
	say("  how %d", op->how % 3);
	say_result(ret);
	/* The delayed ACK of a FIN wakes a sleeping reader. */
	if (!ret && sleeps_in_recv(s))
		settle_fin(s->fd);
	if (!ret && op->how % 3 != SHUT_WR)
		s->shut_rd = true;
}

static void close_end(int end, bool reset)
{
	struct side *s = &side[end], *peer = &side[other(end)];

	if (s->phase != PHASE_END && reset)
		peer->condemned = true;
	say_result(close(s->fd));
	if (s->epoll)
		close(s->epoll);
	s->epoll = 0;
	s->fd = -1;
	s->avail = 0;
}

void op_close(const struct op *op)
{
	struct side *s = &side[op->end];

	if (s->asleep)
		return left_out("a thread sleeps");
	if (s->urgent)
		drain(op->end, "before the end");
	if (op->what == ABORT)
		reset_on_close(s->fd);
	close_end(op->end, op->what == ABORT || s->avail);
}

void op_disconnect(const struct op *op)
{
	struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	struct side *s = &side[op->end];

	if (s->asleep)
		return left_out("a thread sleeps");
	if (s->phase != PHASE_END)
		side[other(op->end)].condemned = true;
	say_result(connect(s->fd, &nowhere, sizeof(nowhere)));
	s->disconnected = true;
	s->avail = 0;
	s->urgent = false;
}

void op_dup(const struct op *op)
{
	struct side *s = &side[op->end];
	int fd;

	if (s->asleep)
		return left_out("a thread sleeps");
	if (op->what == PASS) {
		s->fd = through_a_socket(s->fd);
		return;
	}
	fd = MUST(dup(s->fd));
	close(s->fd);
	s->fd = fd;
}
