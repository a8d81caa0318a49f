// SPDX-License-Identifier: GPL-2.0
/* The BSDs' manual pages, sentence by sentence: the calls, the count, and what a spliced socket
 * shows. pages_ends.c has how splices end.
 */
#include <netinet/tcp.h>
#include <sys/syscall.h>

#include "pages.h"

void kind_open(enum kind k, struct relay *r)
{
	if (k == UDP)
		udp_open(r, AF_INET, AF_INET);
	else if (k == TCP)
		relay_open(r, AF_INET, AF_INET);
	else
		tls_open(r, CLIENT | SERVER, TLS_1_3_VERSION);
}

void kind_give(enum kind k, int fd, uint64_t pos, size_t len)
{
	if (k == UDP)
		udp_give(fd, 'a' + pos % 26, len);
	else
		stream_write(fd, pos, len);
}

void kind_want(enum kind k, int fd, uint64_t pos, size_t len)
{
	if (k == UDP)
		udp_want(fd, 'a' + pos % 26, len);
	else
		stream_read(fd, pos, len);
}

void kind_pass(enum kind k, int from, int to, uint64_t pos, size_t len)
{
	kind_give(k, from, pos, len);
	kind_want(k, to, pos, len);
}

void kind_nothing(int fd)
{
	udp_nothing(fd);
}

int kind_try(int from, int to, int64_t max)
{
	return udp_try(from, to, max);
}

void is_no_source(int fd)
{
	check(socksplice_unsplice(fd) && errno == ENOTCONN, "%s", strerror(errno));
}

void kind_open_small(enum kind k, struct relay *r)
{
	if (k == UDP) {
		udp_open_slow(r);
		return;
	}
	kind_open(k, r);
	set_buf(r->q, k == TCP ? 16384 : 4608, 0);
	set_buf(r->s, 0, k == TCP ? 16384 : 4608);
}

uint64_t kind_fill(enum kind k, struct relay *r)
{
	const int n = 30;

	if (k != UDP)
		return fill(r->c, 0);
	for (int i = 0; i < n; i++)
		kind_give(k, r->c, i, 1000);
	return 1000 * n;
}

/* A splice is one-way. The other way needs a second splice. */
static void one_way(enum kind k)
{
	struct relay r;

	kind_open(k, &r);
	splice_on(&r);
	kind_pass(k, r.c, r.s, 0, 1000);
	wait_moved(r.p, 1000);
	kind_pass(k, r.s, r.q, 0, 500);
	kind_nothing(r.c);
	check(!socksplice_moved(r.q), "%lld", (long long)socksplice_moved(r.q));
	splice_fds(r.q, r.p, 0, 0);
	kind_pass(k, r.s, r.c, 500, 700);
	wait_moved(r.q, 700);
	kind_pass(k, r.c, r.s, 1000, 10);
	wait_moved(r.p, 1010);
}

ON(TCP, one_way)
ON(KTLS, one_way)
ON(UDP, one_way)

/* By SOL_SOCKET: an int, the struct, no argument, and the count. */
static void sol_socket(enum kind k)
{
	struct splice s = { .sp_max = 20, .sp_idle.tv_sec = 60 };
	socklen_t len = sizeof(int64_t);
	int64_t moved = -1;
	struct relay r;

	kind_open(k, &r);
	check(!setsockopt(r.p, SOL_SOCKET, SO_SPLICE, &r.q, sizeof(r.q)), "%s", strerror(errno));
	kind_pass(k, r.c, r.s, 0, 10);
	wait_moved(r.p, 10);
	check(!getsockopt(r.p, SOL_SOCKET, SO_SPLICE, &moved, &len), "%s", strerror(errno));
	check(moved == 10 && len == sizeof(moved), "%lld in %u bytes", (long long)moved, len);
	check(!setsockopt(r.p, SOL_SOCKET, SO_SPLICE, NULL, 0), "%s", strerror(errno));
	check(setsockopt(r.p, SOL_SOCKET, SO_SPLICE, NULL, 0) && errno == ENOTCONN, "%s",
	      strerror(errno));
	s.sp_fd = r.q;
	check(!setsockopt(r.p, SOL_SOCKET, SO_SPLICE, &s, sizeof(s)), "%s", strerror(errno));
	kind_pass(k, r.c, r.s, 10, 20);
	wait_error(r.p, EFBIG);
	check(!getsockopt(r.p, SOL_SOCKET, SO_SPLICE, &moved, &len) && moved == 20, "%lld",
	      (long long)moved);
}

ON(KTLS, sol_socket)
ON(UDP, sol_socket)

/* Any negative number ends the splice, in both forms of the argument. The source is the
 * application's at once, and the sink can be another splice's.
 */
static void negative_fd(enum kind k)
{
	struct splice s = { .sp_fd = -9 };
	struct relay r, o;
	int fd = -1000;

	kind_open(k, &r);
	kind_open(k, &o);
	for (int i = 0; i < 50; i++) {
		splice_on(&r);
		kind_pass(k, r.c, r.s, 40 * i, 20);
		if (i % 2)
			check(!socksplice_splice(r.p, &s), "%s", strerror(errno));
		else
			check(!setsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &fd,
					  sizeof(fd)), "%s", strerror(errno));
		check(socksplice_moved(r.p) == 20, "%lld", (long long)socksplice_moved(r.p));
		kind_pass(k, r.c, r.p, 40 * i + 20, 20);
		splice_fds(o.p, r.q, 0, 0);
		check(!socksplice_unsplice(o.p), "%s", strerror(errno));
	}
}

ON(TCP, negative_fd)
ON(KTLS, negative_fd)
ON(UDP, negative_fd)

static void refused(int got, int want, const char *what)
{
	check(got == want, "%s: %s", what, strerror(got));
}

static int timed(int from, int to, long sec, long usec)
{
	struct splice s = { .sp_fd = to, .sp_idle = { .tv_sec = sec, .tv_usec = usec } };

	return socksplice_splice(from, &s) ? errno : 0;
}

static int set_raw(int fd, const void *arg, socklen_t len)
{
	return setsockopt(fd, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, arg, len) ? errno : 0;
}

/* Each refusal leaves both sockets as they were. */
static void refusals(enum kind k)
{
	int un[2], l = socket(AF_INET, SOCK_STREAM, 0), fresh;
	struct relay r, o;

	kind_open(k, &r);
	kind_open(k, &o);
	fresh = socket(AF_INET, k == UDP ? SOCK_DGRAM : SOCK_STREAM, 0);
	check(!socketpair(AF_UNIX, k == UDP ? SOCK_DGRAM : SOCK_STREAM, 0, un) && !listen(l, 1),
	      "%s", strerror(errno));
	refused(kind_try(r.p, 999, 0), EBADF, "no descriptor");
	refused(kind_try(r.p, 1, 0), ENOTSOCK, "no socket");
	refused(kind_try(r.p, un[0], 0), EPROTONOSUPPORT, "a local socket");
	refused(kind_try(r.p, r.q, -1), EINVAL, "a negative maximum");
	refused(timed(r.p, r.q, -1, 0), EINVAL, "negative seconds");
	refused(timed(r.p, r.q, 0, -1), EINVAL, "negative microseconds");
	refused(timed(r.p, r.q, 0, 1000000), EINVAL, "too many microseconds");
	refused(kind_try(r.p, fresh, 0), ENOTCONN, "a sink without a connection");
	if (k != UDP)
		refused(kind_try(r.p, l, 0), EOPNOTSUPP, "a sink that listens");
	refused(set_raw(r.p, (void *)1, sizeof(struct splice)), EFAULT, "an address of nothing");
	refused(set_raw(r.p, &r, 3), EINVAL, "three bytes");
	is_no_source(r.p);
	kind_pass(k, r.c, r.p, 0, 100);
	kind_pass(k, r.q, r.s, 0, 100);
	splice_on(&r);
	refused(kind_try(r.p, o.q, 0), EBUSY, "a source that is one");
	refused(kind_try(o.p, r.q, 0), EBUSY, "a sink that is one");
	kind_pass(k, o.c, o.p, 0, 100);
	kind_pass(k, o.q, o.s, 0, 100);
	kind_pass(k, r.c, r.s, 100, 100);
	wait_moved(r.p, 100);
}

ON(KTLS, refusals)
ON(UDP, refusals)

/* What the kernel says of the descriptor and of the addresses, by both levels. */
static void bad_arguments(enum kind k)
{
	const int level[] = { SOCKSPLICE_LEVEL, SOL_SOCKET };
	const int name[] = { SOCKSPLICE_SO_SPLICE, SO_SPLICE };
	socklen_t len = sizeof(int64_t);
	struct relay r;
	int64_t n;

	kind_open(k, &r);
	splice_on(&r);
	kind_pass(k, r.c, r.s, 0, 10);
	wait_moved(r.p, 10);
	for (int i = 0; i < 2; i++) {
		check(setsockopt(999, level[i], name[i], &r.q, sizeof(int)) && errno == EBADF,
		      "%s", strerror(errno));
		check(setsockopt(1, level[i], name[i], &r.q, sizeof(int)) && errno == ENOTSOCK,
		      "%s", strerror(errno));
		check(getsockopt(999, level[i], name[i], &n, &len) && errno == EBADF, "%s",
		      strerror(errno));
		check(getsockopt(1, level[i], name[i], &n, &len) && errno == ENOTSOCK, "%s",
		      strerror(errno));
		check(getsockopt(r.p, level[i], name[i], (void *)1, &len) && errno == EFAULT,
		      "%s", strerror(errno));
		check(getsockopt(r.p, level[i], name[i], &n, (void *)1) && errno == EFAULT, "%s",
		      strerror(errno));
		check(!getsockopt(r.p, level[i], name[i], &n, &len) && n == 10, "%lld",
		      (long long)n);
	}
	kind_pass(k, r.c, r.s, 10, 10);
	wait_moved(r.p, 20);
}

ON(TCP, bad_arguments)
ON(KTLS, bad_arguments)
ON(UDP, bad_arguments)

/* Only a splice that begins resets the count. */
static void count(enum kind k)
{
	int fresh = socket(AF_INET, k == UDP ? SOCK_DGRAM : SOCK_STREAM, 0);
	struct relay r;

	kind_open(k, &r);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	splice_on(&r);
	kind_pass(k, r.c, r.s, 0, 100);
	wait_moved(r.p, 100);
	refused(kind_try(r.p, r.q, 0), EBUSY, "a source that is one");
	check(socksplice_moved(r.p) == 100, "%lld", (long long)socksplice_moved(r.p));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	refused(kind_try(r.p, fresh, 0), ENOTCONN, "a sink without a connection");
	refused(kind_try(r.p, r.q, -1), EINVAL, "a negative maximum");
	is_no_source(r.p);
	kind_pass(k, r.c, r.p, 100, 5);
	check(socksplice_moved(r.p) == 100, "%lld", (long long)socksplice_moved(r.p));
	splice_on(&r);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	kind_pass(k, r.c, r.s, 105, 7);
	wait_moved(r.p, 7);
}

ON(TCP, count)
ON(KTLS, count)
ON(UDP, count)

struct reader {
	pthread_t thread;
	enum kind kind;
	int fd;
	int tid;	/* release/acquire */
};

/* Reads the bytes from 1000 on, for which it may have to poll if the socket does not block. */
static void *read_from_1000(void *arg)
{
	struct reader *rd = arg;
	char buf[100];

	__atomic_store_n(&rd->tid, gettid(), __ATOMIC_RELEASE);
	if (rd->kind == UDP)
		check(recv(rd->fd, buf, sizeof(buf), 0) == 50, "%s", strerror(errno));
	else
		stream_read(rd->fd, 1000, 50);
	return NULL;
}

/* Returns when the reader is asleep. */
static void reader_start(struct reader *rd, enum kind k, int fd)
{
	int tid;

	*rd = (struct reader) { .kind = k, .fd = fd };
	check(!pthread_create(&rd->thread, NULL, read_from_1000, rd), "no thread");
	while (!(tid = __atomic_load_n(&rd->tid, __ATOMIC_ACQUIRE)))
		sched_yield();
	check(wait_asleep(tid, k == UDP ? SYS_recvfrom : SYS_read), "the reader has ended");
}

/* A read that begins while the socket is spliced waits for the end of the splice. */
static void read_waits(enum kind k)
{
	struct reader rd;
	struct relay r;

	kind_open(k, &r);
	splice_on(&r);
	reader_start(&rd, k, r.p);
	kind_pass(k, r.c, r.s, 0, 1000);
	wait_moved(r.p, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	kind_give(k, r.c, 1000, 50);
	pthread_join(rd.thread, NULL);
}

ON(KTLS, read_waits)

/* The source does not block, and is being read. OpenBSD says EWOULDBLOCK. */
static void source_does_not_block(enum kind k)
{
	struct reader rd;
	struct relay r;

	kind_open(k, &r);
	reader_start(&rd, k, r.p);
	check(!fcntl(r.p, F_SETFL, O_NONBLOCK), "%s", strerror(errno));
	splice_on(&r);
	kind_pass(k, r.c, r.s, 0, 1000);
	wait_moved(r.p, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	kind_give(k, r.c, 1000, 50);
	pthread_join(rd.thread, NULL);
}

ON(TCP, source_does_not_block)
ON(KTLS, source_does_not_block)
ON(UDP, source_does_not_block)

/* No event tells of data, although some wait for the sink. The end of the splice tells of them.
 * FIONREAD counts them all the time.
 */
static void read_event(enum kind k)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	int ep = epoll_create1(0), n, queued = 0;
	struct relay r;
	long start;

	kind_open_small(k, &r);
	splice_on(&r);
	check(!epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev), "%s", strerror(errno));
	kind_fill(k, &r);
	n = epoll_wait(ep, &ev, 1, 200);
	check(!n, "events %x", ev.events);
	for (start = ms(); !queued; sleep_ms(1)) {	/* 0 while the mover holds a datagram */
		check(ms() - start < 20000, "FIONREAD does not count");
		check(!ioctl(r.p, FIONREAD, &queued), "%s", strerror(errno));
	}
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLIN, "%d events", n);
	check(socksplice_moved(r.p) > 0, "nothing was moved");
	if (k == UDP)
		kind_want(k, r.p, socksplice_moved(r.p) / 1000, 1000);
	else
		stream_read(r.p, socksplice_moved(r.p), 100);
}

ON(KTLS, read_event)
ON(UDP, read_event)

/* The sink is full, and so not writable. After the splice an event tells of room. */
static void write_event(enum kind k)
{
	struct epoll_event ev = { .events = EPOLLOUT };
	int ep = epoll_create1(0), n;
	struct relay r;
	int64_t moved;

	kind_open_small(k, &r);
	splice_on(&r);
	kind_fill(k, &r);
	while (poll_now(r.q) & POLLOUT)	/* UDP: until the next datagram is in the device's queue */
		sleep_ms(1);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	moved = socksplice_moved(r.p);
	check(moved > 0, "nothing was moved");
	check(!epoll_ctl(ep, EPOLL_CTL_ADD, r.q, &ev), "%s", strerror(errno));
	if (k != UDP)
		stream_read(r.s, 0, moved);
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLOUT, "%d events", n);
	check(send(r.q, "x", 1, MSG_DONTWAIT) == 1, "%s", strerror(errno));
}

ON(TCP, write_event)
ON(KTLS, write_event)
ON(UDP, write_event)

/* The sink becomes writable during the splice, too, once what waited has been sent. OpenBSD tells
 * of room only after the splice.
 */
static void writable_while_spliced(enum kind k)
{
	struct epoll_event ev = { .events = EPOLLOUT };
	int ep = epoll_create1(0), n;
	const int few = 6000;
	uint64_t given;
	struct relay r;

	kind_open_small(k, &r);
	splice_on(&r);
	if (k == UDP)
		for (given = 0; given < few; given += 1000)
			kind_give(k, r.c, given / 1000, 1000);
	else
		given = kind_fill(k, &r);
	while (poll_now(r.q) & POLLOUT)
		sleep_ms(1);
	check(!epoll_ctl(ep, EPOLL_CTL_ADD, r.q, &ev), "%s", strerror(errno));
	if (k != UDP)
		stream_read(r.s, 0, given);
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLOUT, "%d events", n);
	wait_moved(r.p, given);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
}

ON(TCP, writable_while_spliced)
ON(KTLS, writable_while_spliced)
ON(UDP, writable_while_spliced)

/* What the source knows of a datagram's sender stays there: the server sees the sink. */
static void sender_is_dropped(void)
{
	struct sockaddr_in from, own;
	char data[16], control[64];
	struct iovec v = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &v,
			    .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int ttl = 77, own_ttl, one = 1, got;
	socklen_t len = sizeof(own);
	struct cmsghdr *c;
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!setsockopt(r.c, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)), "%s", strerror(errno));
	check(!setsockopt(r.p, IPPROTO_IP, IP_RECVTTL, &one, sizeof(one)), "%s", strerror(errno));
	check(!setsockopt(r.s, IPPROTO_IP, IP_RECVTTL, &one, sizeof(one)), "%s", strerror(errno));
	splice_on(&r);
	udp_give(r.c, 'a', 10);
	wait_moved(r.p, 10);
	check(recvmsg(r.s, &m, 0) == 10, "%s", strerror(errno));
	c = CMSG_FIRSTHDR(&m);
	check(c && c->cmsg_type == IP_TTL, "no TTL");
	memcpy(&got, CMSG_DATA(c), sizeof(got));
	check(!getsockname(r.q, (void *)&own, &len), "%s", strerror(errno));
	len = sizeof(own_ttl);
	check(!getsockopt(r.q, IPPROTO_IP, IP_TTL, &own_ttl, &len), "%s", strerror(errno));
	check(got == own_ttl && got != ttl, "TTL %d", got);
	check(from.sin_port == own.sin_port && from.sin_addr.s_addr == own.sin_addr.s_addr,
	      "from another address");
}

/* A connection that waits in vain for its server to accept(2), so that it is being connected. */
static int connecting(struct sockaddr_in *addr, int *l, int *first)
{
	socklen_t len = sizeof(*addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct tcp_info info = {};

	*addr = (struct sockaddr_in) { .sin_family = AF_INET };
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*l = socket(AF_INET, SOCK_STREAM, 0);
	*first = socket(AF_INET, SOCK_STREAM, 0);
	check(!bind(*l, (void *)addr, len) && !listen(*l, 0) &&
	      !getsockname(*l, (void *)addr, &len) &&
	      !connect(*first, (void *)addr, len), "%s", strerror(errno));
	check(connect(fd, (void *)addr, len) && errno == EINPROGRESS, "%s", strerror(errno));
	len = sizeof(info);
	check(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
	      info.tcpi_state == TCP_SYN_SENT, "state %d", info.tcpi_state);
	return fd;
}

/* The server accepts the connection that filled its queue, and then this one. */
static int accepted(int l, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int s;

	close(accept(l, NULL, NULL));
	s = accept(l, NULL, NULL);
	check(s >= 0 && poll(&p, 1, 20000) == 1, "%s", strerror(errno));
	return s;
}

static void sink_is_connecting(void)
{
	struct sockaddr_in addr;
	int l, first;
	struct relay r;

	connect_pair(AF_INET, &r.c, &r.p);
	r.q = connecting(&addr, &l, &first);
	stream_write(r.c, 0, 1000);
	splice_on(&r);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	r.s = accepted(l, r.q);
	stream_write(r.c, 1000, 1000);
	stream_read(r.s, 0, 2000);
	wait_moved(r.p, 2000);
}

static void source_is_connecting(void)
{
	struct sockaddr_in addr;
	int l, first;
	struct relay r;

	connect_pair(AF_INET, &r.q, &r.s);
	r.p = connecting(&addr, &l, &first);
	splice_on(&r);
	r.c = accepted(l, r.p);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	wait_moved(r.p, 1000);
}

/* A socket that is no longer connected. */
static void no_longer_connected(enum kind k)
{
	struct relay r, o;

	kind_open(k, &r);
	kind_open(k, &o);
	reset(r.c);
	wait_error(r.p, ECONNRESET);
	refused(kind_try(r.p, o.q, 0), ENOTCONN, "a source that was reset");
	refused(kind_try(o.p, r.p, 0), ENOTCONN, "a sink that was reset");
	splice_on(&o);
	kind_pass(k, o.c, o.s, 0, 100);
	wait_moved(o.p, 100);
}

ON(TCP, no_longer_connected)
ON(KTLS, no_longer_connected)

const struct sock_case page_cases[] = {
	{ "page-TCP-one-way", one_way_TCP },
	{ "page-kTLS-one-way", one_way_KTLS },
	{ "page-UDP-one-way", one_way_UDP },
	{ "page-kTLS-SOL_SOCKET", sol_socket_KTLS },
	{ "page-UDP-SOL_SOCKET", sol_socket_UDP },
	{ "page-TCP-negative-descriptor", negative_fd_TCP },
	{ "page-kTLS-negative-descriptor", negative_fd_KTLS },
	{ "page-UDP-negative-descriptor", negative_fd_UDP },
	{ "page-kTLS-refusals", refusals_KTLS },
	{ "page-UDP-refusals", refusals_UDP },
	{ "page-TCP-bad-arguments", bad_arguments_TCP },
	{ "page-kTLS-bad-arguments", bad_arguments_KTLS },
	{ "page-UDP-bad-arguments", bad_arguments_UDP },
	{ "page-TCP-count", count_TCP },
	{ "page-kTLS-count", count_KTLS },
	{ "page-UDP-count", count_UDP },
	{ "page-kTLS-read-waits", read_waits_KTLS },
	{ "page-TCP-source-does-not-block", source_does_not_block_TCP },
	{ "page-kTLS-source-does-not-block", source_does_not_block_KTLS },
	{ "page-UDP-source-does-not-block", source_does_not_block_UDP },
	{ "page-kTLS-read-event", read_event_KTLS },
	{ "page-UDP-read-event", read_event_UDP },
	{ "page-TCP-write-event", write_event_TCP },
	{ "page-kTLS-write-event", write_event_KTLS },
	{ "page-UDP-write-event", write_event_UDP },
	{ "page-TCP-writable-while-spliced", writable_while_spliced_TCP },
	{ "page-kTLS-writable-while-spliced", writable_while_spliced_KTLS },
	{ "page-UDP-writable-while-spliced", writable_while_spliced_UDP },
	{ "page-UDP-sender-is-dropped", sender_is_dropped },
	{ "page-TCP-sink-is-connecting", sink_is_connecting },
	{ "page-TCP-source-is-connecting", source_is_connecting },
	{ "page-TCP-no-longer-connected", no_longer_connected_TCP },
	{ "page-kTLS-no-longer-connected", no_longer_connected_KTLS },
	{}
};
