// SPDX-License-Identifier: GPL-2.0
/* How splices end, and the state in which the application finds the sockets. */
#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>

#include "icmp.h"

/* The source belongs to the application again, and has no error. */
static void is_free(struct relay *r, uint64_t pos)
{
	check(!so_error(r->p), "an error");
	stream_write(r->c, pos, 1000);
	stream_read(r->p, pos, 1000);
}

static void is_free_after_unsplice(struct relay *r, uint64_t pos)
{
	check(!socksplice_unsplice(r->p), "%s", strerror(errno));
	is_free(r, pos);
}

static void unsplice(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	is_free_after_unsplice(&r, 1000);
}

/* A limit is exact to the byte: for bytes sent in one piece or several, and for bytes queued
 * before the splice.
 */
static void limit(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.q, 10000, 0);
	stream_write(r.c, 0, 9999);
	wait_moved(r.p, 9999);
	check(!so_error(r.p) && !(poll_now(r.p) & (POLLIN | POLLERR)), "%x", poll_now(r.p));
	stream_write(r.c, 9999, 1);
	wait_error(r.p, EFBIG);
	stream_read(r.s, 0, 10000);
	/* The source is readable only if it has more bytes. */
	check(!(poll_now(r.p) & POLLIN), "%x", poll_now(r.p));
	check(socksplice_moved(r.p) == 10000, "%lld", (long long)socksplice_moved(r.p));
	is_free(&r, 10000);

	stream_write(r.c, 0, 50000);
	splice_fds(r.p, r.q, 12345, 0);
	wait_error(r.p, EFBIG);
	stream_read(r.s, 0, 12345);
	stream_read(r.p, 12345, 50000 - 12345);
	is_free(&r, 50000);
}

/* EFBIG is reported once, although the other direction sends on the same socket. */
static void limit_and_busy_reverse(void)
{
	struct relay r;
	int i;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.q, 1000, 0);
	splice_fds(r.q, r.p, 0, 0);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	for (i = 0; i < 50; i++) {
		stream_write(r.s, i * 5000, 5000);
		stream_read(r.c, i * 5000, 5000);
	}
	/* This call waits for the socket's lock. Until then the last send may have taken the error
	 * out of sk_err; see so_splice.4.
	 */
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
	wait_error(r.p, EFBIG);
	wait_moved(r.q, 250000);
	stream_write(r.s, 250000, 5000);
	stream_read(r.c, 250000, 5000);
}

/* An edge-triggered epoll reports the error once, not with each send of the other direction.
 * poll(2) shows it all the time.
 */
static void error_reported_once(void)
{
	struct epoll_event ev = { .events = EPOLLET };
	int ep = epoll_create1(0), i, n;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev);
	splice_fds(r.p, r.q, 1000, 0);
	splice_fds(r.q, r.p, 0, 0);
	stream_write(r.c, 0, 1000);
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLERR, "%d events", n);
	/* waits for the socket's lock, under which the splice ends */
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
	epoll_wait(ep, &ev, 1, 0);
	for (i = 0; i < 50; i++) {
		stream_write(r.s, i * 5000, 5000);
		check(poll_now(r.p) & POLLERR, "%x", poll_now(r.p));
		stream_read(r.c, i * 5000, 5000);
	}
	wait_moved(r.q, 250000);
	n = epoll_wait(ep, &ev, 1, 0);
	check(!n, "reported again: %x", ev.events);
	wait_error(r.p, EFBIG);
}

static void idle(void)
{
	long start = tick_ms();
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.q, 0, 300);
	wait_error(r.p, ETIMEDOUT);
	check(tick_ms() - start >= 300, "%ld ms", tick_ms() - start);
	is_free(&r, 0);
}

/* Each byte restarts the idle time. */
static void idle_restarts(void)
{
	struct relay r;
	long start;
	int i;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.q, 0, 4000);
	for (i = 0; i < 8; i++) {
		start = tick_ms();
		stream_write(r.c, i, 1);
		stream_read(r.s, i, 1);
		sleep_ms(600);
	}
	check(!so_error(r.p), "timed out");
	wait_error(r.p, ETIMEDOUT);
	check(tick_ms() - start >= 4000, "%ld ms", tick_ms() - start);
	wait_moved(r.p, 8);
}

/* If the sink stays full, no byte moves and the idle time ends the splice. */
static void idle_full_sink(void)
{
	struct relay r;
	uint64_t sent, moved;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	splice_fds(r.p, r.q, 0, 500);
	sent = fill(r.c, 0);
	wait_error(r.p, ETIMEDOUT);
	moved = socksplice_moved(r.p);
	stream_read(r.p, moved, sent - moved);
	stream_read(r.s, 0, moved);
}

/* The end of the source's stream ends the splice. The splice sends no FIN to the sink. */
static void source_eof(void)
{
	struct relay r;
	char c;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	stream_write(r.c, 0, 5000);
	shutdown(r.c, SHUT_WR);
	stream_read(r.s, 0, 5000);
	check(!read(r.p, &c, 1), "no end of file");	/* blocks until the splice has ended */
	check(!so_error(r.p), "an error");
	check(recv(r.s, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "a FIN was sent on");
	stream_write(r.q, 5000, 100);
	stream_read(r.s, 5000, 100);
	wait_moved(r.p, 5000);
}

/* A poller waits for the end of the stream only, not for data. epoll reports the end once the
 * splice has reached it.
 */
static void eof_alone(void)
{
	struct epoll_event ev = { .events = EPOLLRDHUP };
	int ep = epoll_create1(0), n;
	uint64_t sent;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev);
	splice_on(&r);
	sent = fill(r.c, 0);
	shutdown(r.c, SHUT_WR);
	n = epoll_wait(ep, &ev, 1, 300);
	check(!n, "events %x", ev.events);
	stream_read(r.s, 0, sent);
	n = epoll_wait(ep, &ev, 1, 20000);
	check(n == 1 && ev.events & EPOLLRDHUP, "%d events", n);
}

/* A socket whose connect() leaves the SYN to the first write. */
static int connect_later(const struct sockaddr_in *addr)
{
	struct tcp_info info = {};
	socklen_t len = sizeof(info);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	/* client and server, without a cookie */
	write_file("/proc/sys/net/ipv4/tcp_fastopen", "519");
	check(!setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one)) &&
	      !connect(fd, (const void *)addr, sizeof(*addr)), "%s", strerror(errno));
	check(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
	      info.tcpi_state == TCP_SYN_SENT && !info.tcpi_unacked,
	      "state %d, %u segments", info.tcpi_state, info.tcpi_unacked);
	return fd;
}

/* The splice makes the first write, which sends the SYN. */
static void sink_connects_with_first_write(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	struct relay r;
	int l;

	other_namespace();
	relay_open(&r, AF_INET, AF_INET);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	l = socket(AF_INET, SOCK_STREAM, 0);
	check(!bind(l, (void *)&addr, len) && !listen(l, 1) &&
	      !getsockname(l, (void *)&addr, &len), "%s", strerror(errno));
	r.q = connect_later(&addr);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	r.s = accept(l, NULL, NULL);
	stream_read(r.s, 0, 1000);
	wait_moved(r.p, 1000);
	is_free_after_unsplice(&r, 1000);
}

/* The splice makes the first write, but the route is gone. The sink keeps the error. */
static void sink_cannot_connect(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(7) };
	struct relay r;
	int err;

	other_namespace();
	check(!system("ip link add v0 type veth peer name v1 && ip addr add 10.9.9.1/24 dev v0 &&"
		      "ip link set v0 up && ip link set v1 up"), "no veth");
	relay_open(&r, AF_INET, AF_INET);
	addr.sin_addr.s_addr = inet_addr("10.9.9.2");
	r.q = connect_later(&addr);
	check(!system("ip link delete v0"), "no ip");
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	wait_error(r.p, EPIPE);
	err = so_error(r.q);	/* the error that a write would have returned */
	check(err == ECONNABORTED, "%s", strerror(err));
	stream_read(r.p, 0, 1000);
}

struct reporting {
	pthread_t thread;
	int fd, peer;
	bool stop;
	unsigned int messages;
};

/* Fills the error queue and reads it. For each message the socket calls sk_error_report() without
 * any lock.
 */
static void *report(void *arg)
{
	struct reporting *re = arg;
	char data[64], control[256];
	int i;

	while (!__atomic_load_n(&re->stop, __ATOMIC_RELAXED)) {
		for (i = 0; i < 4; i++)
			check(send(re->fd, "x", 1, 0) == 1, "%s", strerror(errno));
		check(recv(re->peer, data, 4, MSG_WAITALL) == 4, "%s", strerror(errno));
		for (;;) {
			struct iovec v = { .iov_base = data, .iov_len = sizeof(data) };
			struct msghdr m = {
				.msg_iov = &v, .msg_iovlen = 1,
				.msg_control = control, .msg_controllen = sizeof(control),
			};

			if (recvmsg(re->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
				break;
			__atomic_add_fetch(&re->messages, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void error_queue_storm(void)
{
	struct reporting re = {};
	int stamps = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE |
		     SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE;
	unsigned int splices = 0;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	check(!setsockopt(r.p, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof(stamps)),
	      "%s", strerror(errno));
	re.fd = r.p;
	re.peer = r.c;
	check(!pthread_create(&re.thread, NULL, report, &re), "no thread");
	for (; splices < 300 || __atomic_load_n(&re.messages, __ATOMIC_RELAXED) < 300; splices++) {
		splice_on(&r);
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		/* ENOENT, not EBUSY: this ULP does not exist, but the socket's slot is free. The
		 * kernel searches for a module, which takes long.
		 */
		check(splices % 100 ||
		      (setsockopt(r.p, IPPROTO_TCP, TCP_ULP, "socksplice-none", 15) &&
		       errno == ENOENT), "%s", strerror(errno));
	}
	__atomic_store_n(&re.stop, true, __ATOMIC_RELAXED);
	pthread_join(re.thread, NULL);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
}

/* An error without a change of state also ends the splice. The application receives the error. */
static void source_error(void)
{
	struct relay r;
	struct unreachable u;
	long start;
	char c;

	relay_open(&r, AF_INET, AF_INET);
	unreachable_for(&u, r.p);
	splice_on(&r);
	say_unreachable(&u);
	start = ms();
	while (recv(r.p, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
		check(ms() - start < 20000, "the splice goes on");
		sleep_ms(2);
	}
	check(errno == EHOSTUNREACH, "%s", strerror(errno));
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
}

/* Such an error of the sink ends the splice too. The source reports it, and the sink keeps it. */
static void sink_error(void)
{
	struct relay r;
	struct unreachable u;

	relay_open(&r, AF_INET, AF_INET);
	unreachable_for(&u, r.q);
	splice_on(&r);
	say_unreachable(&u);
	wait_error(r.p, EHOSTUNREACH);
	check(so_error(r.q) == EHOSTUNREACH, "the sink has none");
	is_free(&r, 0);

	/* If the sink already has an error, the splice ends in setsockopt(2). */
	say_unreachable(&u);
	splice_on(&r);
	check(so_error(r.p) == EHOSTUNREACH, "no error");
	check(so_error(r.q) == EHOSTUNREACH, "the sink has none");
	is_free(&r, 1000);
}

static void sink_shutdown(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	shutdown(r.q, SHUT_WR);
	wait_error(r.p, EPIPE);
	is_free(&r, 0);
}

static void sink_closed(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	close(r.q);
	wait_error(r.p, EPIPE);
	is_free(&r, 0);
}

static void reset(int fd)
{
	struct linger l = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

/* The server resets: the source reports EPIPE, and the sink itself ECONNRESET. */
static void sink_reset(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	reset(r.s);
	wait_error(r.p, EPIPE);
	check(so_error(r.q) == ECONNRESET, "the sink's own error is gone");
	is_free(&r, 0);
}

static void source_reset(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	reset(r.c);
	wait_error(r.p, ECONNRESET);
	/* The sink can be spliced into again. */
	stream_write(r.q, 1000, 100);
	stream_read(r.s, 1000, 100);
}

/* The source is closed while spliced. As with any socket, its unread bytes are lost and its client
 * is reset.
 */
static void source_closed(void)
{
	struct relay r;
	char c;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	splice_on(&r);
	fill(r.c, 0);
	close(r.p);
	check(read(r.c, &c, 1) < 0 && errno == ECONNRESET, "no reset");
	stream_read(r.s, 0, 1000);
	stream_write(r.s, 0, 100);
	stream_read(r.q, 0, 100);
}

/* connect(AF_UNSPEC) ends both of its splices. */
static void disconnect(void)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	check(!connect(r.p, &none, sizeof(none)), "%s", strerror(errno));
	wait_error(r.q, EPIPE);
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
}

/* @n local connections. Each is spliced into the next one, and the last into the first. From
 * number @other on they are in another network namespace.
 */
static void loop_of(int n, int other)
{
	uint64_t before = counter("so_splice_loops");
	int a[4], b[4], i, found = 0;
	long start = ms();

	for (i = 0; i < n; i++) {
		if (i == other)
			other_namespace();
		connect_pair(i % 2 ? AF_INET6 : AF_INET, &a[i], &b[i]);
	}
	for (i = 0; i < n; i++)
		splice_fds(b[i], a[(i + 1) % n], 0, 0);
	stream_write(a[0], 0, 1000);
	while (!found) {
		check(ms() - start < 20000, "a loop of %d goes round and round", n);
		for (i = 0; i < n; i++)
			found += so_error(b[i]) == ELOOP;
		sleep_ms(2);
	}
	check(counter("so_splice_loops") == before + 1, "found %d times",
	      (int)(counter("so_splice_loops") - before));
}

static void loops(void)
{
	int n;

	for (n = 1; n <= 4; n++)
		loop_of(n, n);
}

static void loop_between_namespaces(void)
{
	loop_of(3, 1);
}

/* A splice can be ended and made again at once, into the same sink or into another. */
static void again(void)
{
	struct relay r, o;
	int i;

	relay_open(&r, AF_INET, AF_INET);
	relay_open(&o, AF_INET, AF_INET);
	for (i = 0; i < 200; i++) {
		splice_fds(r.p, i % 2 ? r.q : o.q, 0, 0);
		stream_write(r.c, i * 100, 100);
		stream_read(i % 2 ? r.s : o.s, i * 100, 100);
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	}
	is_free(&r, 0);
}

/* Either side closes at any point while bytes are in flight. */
static void closing_storm(void)
{
	int i;

	for (i = 0; i < 40; i++) {
		struct relay r;
		pid_t pid;

		relay_open(&r, AF_INET, AF_INET);
		splice_on(&r);
		splice_fds(r.q, r.p, 0, 0);
		pid = fork();
		if (!pid) {
			close(r.p);
			close(r.q);
			while (send(r.c, &r, sizeof(r), MSG_NOSIGNAL) > 0)
				;
			_exit(0);
		}
		usleep(i * 200);
		switch (i % 4) {
		case 0: close(r.p); close(r.q); break;
		case 1: close(r.q); close(r.p); break;
		case 2: reset(r.s); close(r.p); break;
		case 3: shutdown(r.q, SHUT_RDWR); close(r.p); break;
		}
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(r.c);
		close(r.s);
		close(r.p);
		close(r.q);
	}
}

const struct sock_case end_cases[] = {
	{ "unsplice", unsplice },
	{ "EFBIG-at-the-limit", limit },
	{ "EFBIG-once-with-busy-reverse", limit_and_busy_reverse },
	{ "EFBIG-is-reported-once", error_reported_once },
	{ "ETIMEDOUT-idle", idle },
	{ "ETIMEDOUT-restarts", idle_restarts },
	{ "ETIMEDOUT-full-sink", idle_full_sink },
	{ "source-EOF-sends-no-FIN", source_eof },
	{ "source-EOF-wakes-for-EPOLLRDHUP", eof_alone },
	{ "source-error", source_error },
	{ "sink-error-is-handed-on", sink_error },
	{ "error-queue-storm", error_queue_storm },
	{ "sink-connects-with-first-write", sink_connects_with_first_write },
	{ "EPIPE-sink-cannot-connect", sink_cannot_connect },
	{ "EPIPE-sink-shut-down", sink_shutdown },
	{ "EPIPE-sink-closed", sink_closed },
	{ "EPIPE-sink-reset", sink_reset },
	{ "source-reset", source_reset },
	{ "source-closed", source_closed },
	{ "disconnect", disconnect },
	{ "ELOOP", loops },
	{ "ELOOP-between-namespaces", loop_between_namespaces },
	{ "again-at-once", again },
	{ "closing-storm", closing_storm },
	{}
};
