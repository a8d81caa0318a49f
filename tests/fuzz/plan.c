// SPDX-License-Identifier: GPL-2.0
/*
 * Programs: made from a seed, and printed.
 */
#include "fuzz.h"

static uint64_t state;

static unsigned int pick(unsigned int n)
{
	return rnd(&state) % n;
}

/* Which operations, and how often. What ends a connection is rare, so that there is
 * something to end; what is slow is rare too.
 */
static const struct {
	const char *name;
	int weight;
} what_table[WHAT_MAX] = {
	[SEND] = { "send", 200 },
	[SEND_MORE] = { "send MSG_MORE and the rest", 15 },
	[SEND_CORKED] = { "send corked and the rest", 8 },
	[SEND_OOB] = { "send MSG_OOB", 6 },
	[SEND_ZEROCOPY] = { "send MSG_ZEROCOPY", 2 },
	[SEND_BAD] = { "send from a bad address", 5 },
	[RECV] = { "recv", 230 },
	[RECV_TIMED] = { "recv with SO_RCVTIMEO", 4 },
	[RECV_OOB] = { "recv MSG_OOB", 4 },
	[RECV_ERRQUEUE] = { "recv MSG_ERRQUEUE", 4 },
	[RECV_BAD] = { "recv to a bad address", 5 },
	[STREAM] = { "stream", 6 },
	[FILL] = { "fill until EAGAIN", 1 },
	[TWO_WRITERS] = { "two writers", 6 },
	[TWO_READERS] = { "two readers", 6 },
	[WAIT_READY] = { "sleep in poll", 25 },
	[SIGNAL] = { "signal to the sleeper", 40 },
	[LOOK] = { "look", 40 },
	[EPOLL_ADD] = { "epoll_ctl", 20 },
	[EPOLL_WAIT] = { "epoll_wait", 60 },
	[OPTION] = { "setsockopt", 30 },
	[LOWAT] = { "SO_RCVLOWAT", 12 },
	[PEEK_OFF] = { "SO_PEEK_OFF", 10 },
	[NONBLOCK] = { "O_NONBLOCK", 8 },
	[ASYNC] = { "O_ASYNC and its signals", 20 },
	[ODD_CALL] = { "odd call", 6 },
	[SHUT] = { "shutdown", 18 },
	[CLOSE] = { "close", 9 },
	[ABORT] = { "close with SO_LINGER", 7 },
	[DISCONNECT] = { "disconnect", 4 },
	[DUP] = { "dup and close the first", 6 },
	[PASS] = { "pass the descriptor through a socket", 4 },
	[DROP] = { "back to TCP", 9 },
};

static int pick_size(const struct program *p)
{
	switch (pick(p->big ? 9 : 7)) {
	case 0:
		return pick(3);
	case 1:
	case 2:
		return 1 + pick(16);
	case 3:
	case 4:
		return 1 + pick(400);
	case 5:
		return 1 + pick(4000);
	case 6:
		return 1 + pick(20000);
	default:
		return 1 + pick(120000);
	}
}

static int pick_flags(const int *from, int n)
{
	int flags = 0;

	while (pick(2))
		flags |= from[pick(n)];
	return flags;
}

static struct op make_op(const struct program *p)
{
	static const int send_flags[] = { MSG_DONTWAIT, MSG_NOSIGNAL, MSG_EOR, MSG_DONTROUTE };
	static const int recv_flags[] = { MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_DONTWAIT, MSG_PEEK,
					  MSG_WAITALL, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC };
	struct op op = { .end = pick(2), .n = pick_size(p) };
	int total = 0, at;

	for (int i = 0; i < WHAT_MAX; i++)
		total += what_table[i].weight;
	at = pick(total);
	for (int i = 0; (at -= what_table[i].weight) >= 0; i++)
		op.what = i + 1;
	if (!pick(3))
		op.by = pick(BY_MAX);
	op.how = pick(1000);
	switch (op.what) {
	case SEND:
		op.how %= SEND_HOW_MAX;
		op.flags = pick_flags(send_flags, ARRAY_SIZE(send_flags));
		break;
	case RECV:
		op.how %= RECV_HOW_MAX;
		op.flags = pick_flags(recv_flags, ARRAY_SIZE(recv_flags));
		break;
	case STREAM:
		op.n = 1 + pick(300 * KIB);
		break;
	case LOWAT:
		op.n = pick(2) ? 1 : 1 + pick(200);
		break;
	case PEEK_OFF:
		op.n = pick(3) ? (int)pick(100) : -1;
		break;
	case TWO_WRITERS:
	case TWO_READERS:
		op.n = 1 + pick(1500);
		break;
	default:
		break;
	}
	return op;
}

void plan(struct program *p, uint64_t seed)
{
	static const int families[] = { 4, 4, 4, 6, 46 };

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	state = (seed + 1) * 0x9e3779b97f4a7c15ULL | 1;
	for (int i = 0; i < 8; i++)
		pick(1);
	p->family = families[pick(ARRAY_SIZE(families))];
	p->swap = pick(2);
	p->cold = !pick(4);
	p->big = !pick(3);
	if (p->cold && pick(2)) {
		p->early = 1 + pick(3000);
		p->defer = pick(2);
	}
	p->count = OPS_MIN + pick(OPS_MAX - OPS_MIN);
	for (int i = 0; i < p->count; i++)
		p->op[i] = make_op(p);
}

static void flags_text(char *text, int flags)
{
	static const struct { int bit; const char *name; } bits[] = {
		{ MSG_PEEK, "PEEK" }, { MSG_WAITALL, "WAITALL" }, { MSG_TRUNC, "TRUNC" },
		{ MSG_DONTWAIT, "DONTWAIT" }, { MSG_NOSIGNAL, "NOSIGNAL" }, { MSG_EOR, "EOR" },
		{ MSG_DONTROUTE, "DONTROUTE" }, { MSG_CMSG_CLOEXEC, "CMSG_CLOEXEC" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
		if (flags & bits[i].bit) {
			strcat(text, " ");
			strcat(text, bits[i].name);
		}
	}
}

void op_text(const struct op *op, char *text, size_t size)
{
	static const char *const send_names[] = {
		"send", "write", "writev", "sendmsg", "sendto", "sendmmsg", "sendfile", "splice to",
	};
	static const char *const recv_names[] = {
		"recv", "read", "readv", "recvmsg", "recvmmsg", "splice from",
	};
	static const char *const by_names[] = { "", " by a thread", " by a child" };
	char flags[100] = "";

	flags_text(flags, op->flags);
	switch (op->what) {
	case SEND:
	case RECV:
		snprintf(text, size, "%c %s %d%s%s", 'A' + op->end,
			 op->what == SEND ? send_names[op->how] : recv_names[op->how], op->n, flags,
			 by_names[op->by]);
		break;
	default:
		snprintf(text, size, "%c %s n=%d how=%d%s", 'A' + op->end, what_table[op->what].name,
			 op->n, op->how, by_names[op->by]);
	}
}

void program_print(const struct program *p)
{
	char text[100];

	printf("#   IPv%d, A is the %s end, %s start, %s buffers, %d bytes before the accept%s\n",
	       p->family, p->swap ? "accepted" : "connecting", p->cold ? "cold" : "warm",
	       p->big ? "big" : "default", p->early, p->defer ? ", which is deferred" : "");
	for (int i = 0; i < p->count; i++) {
		op_text(&p->op[i], text, sizeof(text));
		printf("#   %2d. %s\n", i + 1, text);
	}
}
