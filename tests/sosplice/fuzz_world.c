// SPDX-License-Identifier: GPL-2.0
/* The sockets of a sequence, their queues in the model, and the calls whose results a self-test
 * falsifies.
 */
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdarg.h>

#include "fuzz.h"

uint32_t pick(struct world *w, uint32_t n)
{
	uint64_t z = w->rng += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % n;
}

const char *error_name(int err)
{
	return err == ANY_ERROR ? "any" : err ? strerrorname_np(err) ?: "?" : "0";
}

void say(const char *fmt, ...)
{
	va_list ap;

	if (!verbose)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

static int sndbuf_of(int fd)
{
	socklen_t len = sizeof(int);
	int n = 0;

	getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, &len);
	return n;
}

static void open_connection(struct world *w, int i, enum kind kind)
{
	const int family = pick(w, 3) ? AF_INET : AF_INET6;
	int fd[2];

	if (kind == UDP)
		udp_pair(family, &fd[0], &fd[1]);
	else
		connect_pair(family, &fd[0], &fd[1]);
	if (kind == TLS)
		secure(fd[0], fd[1], pick(w, 2) ? TLS_1_3_VERSION : TLS_1_2_VERSION);
	for (int k = 0; k < 2; k++) {
		struct end *e = &w->e[i + k];

		if (kind == UDP && !pick(w, 3))
			set_buf(fd[k], 2500, 0);
		else if (w->tight)
			set_buf(fd[k], 4096 + pick(w, 30000), 4096 + pick(w, 30000));
		*e = (struct end) { .fd = fd[k], .kind = kind, .in_from = -1 };
		e->sndbuf = sndbuf_of(fd[k]);
		say("  end %d: %s over %s, SO_SNDBUF %d\n", i + k,
		    (const char *[]){ "TCP", "TLS", "UDP" }[kind],
		    family == AF_INET ? "IPv4" : "IPv6", e->sndbuf);
	}
}

void world_open(struct world *w, uint64_t seed)
{
	uint32_t mix;

	w->seed = seed;
	w->rng = seed * 0x2545f4914f6cdd1d;
	mix = pick(w, 10);
	w->tight = mix < 6 && !pick(w, 4);
	w->n = 4 + 2 * pick(w, 3);
	w->spare[0] = socket(AF_INET, SOCK_STREAM, 0);
	w->spare[1] = socket(AF_INET, SOCK_DGRAM, 0);
	say("seed %llu: %d ends%s\n", (unsigned long long)seed, w->n, w->tight ? ", tight" : "");
	for (int i = 0; i < w->n; i += 2) {
		enum kind kind = TCP;

		if (mix >= 3 && mix < 6)
			kind = pick(w, 3) ? TLS : TCP;
		else if (mix >= 6 && mix < 8)
			kind = UDP;
		else if (mix >= 8)
			kind = pick(w, KINDS);
		open_connection(w, i, kind);
	}
}

uint8_t byte_of(int origin, uint64_t pos)
{
	uint32_t x = pos * 2654435761u + origin * 40503u;

	return x >> 13 ^ x >> 24 ^ pos;
}

void push(struct queue *q, const struct chunk *c, bool merge)
{
	struct chunk *last = &q->c[q->n - 1];

	q->bytes += c->len;
	if (merge && q->n && last->type == DATA && c->type == DATA && last->origin == c->origin &&
	    last->pos + last->len == c->pos) {
		last->len += c->len;
		return;
	}
	check(q->n < CHUNKS_MAX, "too many chunks");
	q->c[q->n++] = *c;
}

void drop_front(struct queue *q, uint32_t len)
{
	q->bytes -= len;
	if (len < q->c[0].len) {
		q->c[0].pos += len;
		q->c[0].len -= len;
		return;
	}
	q->n--;
	memmove(q->c, q->c + 1, q->n * sizeof(q->c[0]));
}

void drop_all(struct queue *q)
{
	q->n = 0;
	q->bytes = 0;
}

int tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	check(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), "%s", strerror(errno));
	return info.tcpi_state;
}

/* Once a sequence has come far enough, its result is falsified once. */
static bool mutates(enum mutation m)
{
	static int calls;

	if (mutation != m || ++calls < 2)
		return false;
	tally->mutated++;
	mutation = NONE;
	return true;
}

int64_t moved_of(int fd)
{
	static int wrong = -1;	/* the socket whose count is falsified from now on */
	int64_t n = socksplice_moved(fd);

	check(n >= 0, "SO_SPLICE of %d: %s", fd, strerror(errno));
	if (n && mutates(WRONG_COUNT))
		wrong = fd;
	return n + (fd == wrong);
}

int error_of(int fd)
{
	int err = so_error(fd);

	/* Not one that a reset may give, too: then the model accepts any. */
	return (err == EFBIG || err == ELOOP) && mutates(WRONG_ERROR) ? EPIPE : err;
}

/* recvmsg() without waiting. *@type is that of TLS's record, else DATA. -errno if it fails. */
ssize_t receive(struct end *e, void *buf, size_t len, int *type)
{
	char control[CMSG_SPACE(1)] = "";
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(e->fd, &m, MSG_DONTWAIT);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*type = DATA;
	if (got < 0)
		return -errno;
	if (e->kind == TLS && c && c->cmsg_type == TLS_GET_RECORD_TYPE)
		*type = *CMSG_DATA(c);
	if (got && mutates(WRONG_BYTE))
		((uint8_t *)buf)[got / 2] ^= 0x20;
	if (got > 1 && e->kind != UDP && mutates(LOST_BYTE))
		memmove(buf, (char *)buf + 1, --got);
	return got;
}
