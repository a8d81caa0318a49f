// SPDX-License-Identifier: GPL-2.0
/*
 * io_uring, by its raw system calls.
 */
#include "behave.h"

#include <linux/io_uring.h>
#include <sys/mman.h>

/* Headers may be older than the kernel under test. */
#ifndef IORING_RECV_MULTISHOT
#define IORING_RECV_MULTISHOT	(1U << 1)
#endif
#define OP_SEND_ZC		47
#ifndef IORING_CQE_F_NOTIF
#define IORING_CQE_F_NOTIF	(1U << 3)
#endif

struct completion {
	uint64_t user_data;
	int res;
	unsigned int flags;
};

struct uring {
	int fd;
	unsigned int *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
};

static void uring_open(struct uring *u)
{
	struct io_uring_params p = { };
	size_t len;
	char *m;

	u->fd = syscall(SYS_io_uring_setup, 16, &p);
	if (u->fd < 0)
		skip("no io_uring: %s", strerror(errno));
	if (!(p.features & IORING_FEAT_SINGLE_MMAP))
		skip("an io_uring too old");
	len = p.sq_off.array + p.sq_entries * sizeof(unsigned int);
	if (len < p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe))
		len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	m = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQ_RING);
	u->sqe = mmap(NULL, p.sq_entries * sizeof(*u->sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
		      u->fd, IORING_OFF_SQES);
	if (m == MAP_FAILED || u->sqe == MAP_FAILED)
		fail("io_uring mmap");
	u->sq_tail = (void *)(m + p.sq_off.tail);
	u->sq_mask = (void *)(m + p.sq_off.ring_mask);
	u->sq_array = (void *)(m + p.sq_off.array);
	u->cq_head = (void *)(m + p.cq_off.head);
	u->cq_tail = (void *)(m + p.cq_off.tail);
	u->cq_mask = (void *)(m + p.cq_off.ring_mask);
	u->cqe = (void *)(m + p.cq_off.cqes);
}

static struct io_uring_sqe *submit_next(struct uring *u, int op, int fd, void *addr,
					unsigned int len, uint64_t data)
{
	unsigned int i = *u->sq_tail & *u->sq_mask;
	struct io_uring_sqe *s = &u->sqe[i];

	memset(s, 0, sizeof(*s));
	s->opcode = op;
	s->fd = fd;
	s->addr = (unsigned long)addr;
	s->len = len;
	s->user_data = data;
	u->sq_array[i] = i;
	return s;
}

static void submit(struct uring *u)
{
	__atomic_store_n(u->sq_tail, *u->sq_tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, u->fd, 1, 0, 0, NULL, 0) != 1)
		fail("io_uring_enter: %s", strerror(errno));
}

static struct completion complete(struct uring *u)
{
	const struct io_uring_cqe *cqe;
	struct completion c;

	while (__atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE) == *u->cq_head)
		syscall(SYS_io_uring_enter, u->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	cqe = &u->cqe[*u->cq_head & *u->cq_mask];
	c = (struct completion){ cqe->user_data, cqe->res, cqe->flags };
	__atomic_store_n(u->cq_head, *u->cq_head + 1, __ATOMIC_RELEASE);
	return c;
}

static bool pending(struct uring *u)
{
	syscall(SYS_io_uring_enter, u->fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0);
	return __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE) != *u->cq_head;
}

static int complete_say(struct uring *u, const char *what)
{
	struct completion c;

	where("waiting for io_uring: %s", what);
	c = complete(u);
	if (c.res < 0)
		say("%s: %s", what, strerrorname_np(-c.res));
	else
		say("%s: %d", what, c.res);
	return c.res;
}

long uring_recv(int fd, void *buf, unsigned int len)
{
	static struct uring u;

	if (!u.sqe)
		uring_open(&u);
	submit_next(&u, IORING_OP_RECV, fd, buf, len, 1);
	submit(&u);
	return complete(&u).res;
}

static void send_and_recv(void)
{
	struct uring u;
	struct conn k;
	char b[64];

	conn_start(&k);
	uring_open(&u);
	submit_next(&u, IORING_OP_SEND, k.a, "by uring", 8, 1);
	submit(&u);
	complete_say(&u, "send");
	submit_next(&u, IORING_OP_RECV, k.b, b, 64, 2);
	submit(&u);
	say_bytes("received", complete_say(&u, "recv"), b);
	/* A receive that has to wait. */
	for (int i = 0; i < 3; i++) {
		submit_next(&u, IORING_OP_RECV, k.b, b, 64, 3);
		submit(&u);
		say("completed too early %d", pending(&u));
		SAY(send(k.a, "later", 5, 0));
		say_bytes("received", complete_say(&u, "recv"), b);
	}
	submit_next(&u, IORING_OP_READ, k.b, b, 64, 4);
	submit(&u);
	SAY(send(k.a, "read", 4, 0));
	say_bytes("received", complete_say(&u, "read"), b);
	submit_next(&u, IORING_OP_RECV, k.b, b, 64, 5)->msg_flags = MSG_DONTWAIT;
	submit(&u);
	complete_say(&u, "recv, nothing there");
	submit_next(&u, IORING_OP_RECV, k.b, b, 10, 6)->msg_flags = MSG_WAITALL;
	submit(&u);
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 0);
	SAY(send(k.a, "efghij", 6, 0));
	say_bytes("received", complete_say(&u, "recv all"), b);
	conn_end(&k);
}

static void poll_and_end(void)
{
	struct uring u;
	struct conn k;
	char b[64];

	conn_start(&k);
	uring_open(&u);
	submit_next(&u, IORING_OP_POLL_ADD, k.b, NULL, 0, 1)->poll32_events = POLLIN;
	submit(&u);
	say("completed too early %d", pending(&u));
	SAY(send(k.a, "x", 1, 0));
	where("poll by io_uring");
	say_poll("poll", complete(&u).res);
	SAY(recv(k.b, b, 64, 0));
	submit_next(&u, IORING_OP_RECV, k.b, b, 64, 2);
	submit(&u);
	SAY(shutdown(k.a, SHUT_WR));
	complete_say(&u, "recv at the end");
	conn_end(&k);
}

static void reset_ends_recv(void)
{
	struct uring u;
	struct conn k;
	char b[64];

	conn_start(&k);
	uring_open(&u);
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.b, b, 64, 0));
	submit_next(&u, IORING_OP_RECV, k.b, b, 64, 2);
	submit(&u);
	conn_proof(&k);
	reset_on_close(k.a);
	SAY(close(k.a));
	complete_say(&u, "recv");
	close(k.b);
}

/* One request, many completions, buffers that the kernel picks. */
static void recv_multishot(void)
{
	static char room[8][64];
	struct io_uring_sqe *s;
	struct uring u;
	struct conn k;

	conn_start(&k);
	uring_open(&u);
	s = submit_next(&u, IORING_OP_PROVIDE_BUFFERS, 8, room, 64, 1);
	s->buf_group = 7;
	submit(&u);
	complete_say(&u, "provide");
	s = submit_next(&u, IORING_OP_RECV, k.b, NULL, 0, 2);
	s->flags = IOSQE_BUFFER_SELECT;
	s->buf_group = 7;
	s->ioprio = IORING_RECV_MULTISHOT;
	submit(&u);
	for (int i = 0; i < 5; i++) {
		struct completion c;

		SAY(send(k.a, "one of several", 14, 0));
		where("multishot completion %d", i);
		c = complete(&u);
		if (c.res == -EINVAL)
			skip("no multishot receive here");
		say("multishot %d, more %d, buffer %d", c.res, !!(c.flags & IORING_CQE_F_MORE),
		    !!(c.flags & IORING_CQE_F_BUFFER));
		if (c.res > 0)
			say_bytes("data", c.res, room[c.flags >> IORING_CQE_BUFFER_SHIFT]);
	}
	SAY(shutdown(k.a, SHUT_WR));
	complete_say(&u, "end");
	conn_end(&k);
}

static void send_zerocopy(void)
{
	static char buf[20000];
	struct completion c;
	uint64_t in = 0;
	struct uring u;
	struct conn k;
	int notes = 0;

	conn_start(&k);
	uring_open(&u);
	for (int i = 0; i < 3; i++) {
		fill(buf, sizeof(buf), i * sizeof(buf));
		submit_next(&u, OP_SEND_ZC, k.a, buf, sizeof(buf), 1);
		submit(&u);
		where("zero-copy send");
		c = complete(&u);
		if (c.res == -EINVAL)
			skip("no zero-copy send here");
		say("send_zc %d", c.res);
		say("received %ld", recv_pattern(k.b, sizeof(buf), &in));
		if (c.flags & IORING_CQE_F_MORE) {
			where("notification");
			c = complete(&u);
			notes += !!(c.flags & IORING_CQE_F_NOTIF);
		}
		SAY(send(k.b, "ok", 2, 0));
		SAY(recv(k.a, buf, 2, MSG_WAITALL));
	}
	say("notifications %d", notes);
	conn_end(&k);
}

static void big_transfer(void)
{
	static const unsigned int len = 2 * MIB;
	char *out = malloc(len), *in = malloc(len);
	unsigned int sent = 0, got = 0;
	struct uring u;
	struct conn k;

	conn_start(&k);
	uring_open(&u);
	fill(out, len, 0);
	submit_next(&u, IORING_OP_SEND, k.a, out, len, 1);
	submit(&u);
	submit_next(&u, IORING_OP_RECV, k.b, in, len, 2);
	submit(&u);
	where("a transfer by io_uring");
	while (got < len) {
		struct completion c = complete(&u);

		if (c.res <= 0)
			fail("completion %llu: %d", (unsigned long long)c.user_data, c.res);
		if (c.user_data == 1) {
			sent += c.res;
			if (sent < len) {
				submit_next(&u, IORING_OP_SEND, k.a, out + sent, len - sent, 1);
				submit(&u);
			}
		} else {
			got += c.res;
			if (got < len) {
				submit_next(&u, IORING_OP_RECV, k.b, in + got, len - got, 2);
				submit(&u);
			}
		}
	}
	say("received %u, same %d", got, !memcmp(in, out, len));
	conn_end(&k);
}

const struct bcase uring_cases[] = {
	CASE(send_and_recv), CASE(poll_and_end), CASE(reset_ends_recv), CASE(recv_multishot),
	CASE(send_zerocopy), CASE(big_transfer),
	{ }
};
