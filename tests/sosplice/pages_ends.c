// SPDX-License-Identifier: GPL-2.0
/* The BSDs' manual pages, sentence by sentence: how splices end. */
#include <arpa/inet.h>
#include <sys/select.h>

#include "icmp.h"
#include "pages.h"

static void idle(enum kind k)
{
	struct relay r;
	long start;

	kind_open(k, &r);
	start = tick_ms();
	splice_fds(r.p, r.q, 0, 300);
	wait_error(r.p, ETIMEDOUT);
	check(tick_ms() - start >= 300, "%ld ms", tick_ms() - start);
	kind_pass(k, r.c, r.p, 0, 100);
	splice_fds(r.p, r.q, 0, 60000);
	kind_pass(k, r.c, r.s, 100, 100);
	wait_moved(r.p, 100);
}

ON(KTLS, idle)

/* Each move restarts the idle time. On FreeBSD it runs from the call. */
static void idle_restarts(enum kind k)
{
	struct relay r;
	long start;

	kind_open(k, &r);
	splice_fds(r.p, r.q, 0, 4000);
	for (int i = 0; i < 8; i++) {
		start = tick_ms();
		kind_pass(k, r.c, r.s, i, 1);
		sleep_ms(600);
	}
	check(!so_error(r.p), "timed out");
	wait_error(r.p, ETIMEDOUT);
	check(tick_ms() - start >= 4000, "%ld ms", tick_ms() - start);
	wait_moved(r.p, 8);
}

ON(KTLS, idle_restarts)

/* The idle time also ends a splice whose sink has no room. What waits is the application's. */
static void idle_full_sink(void)
{
	int64_t moved, given;
	struct relay r;

	kind_open_small(UDP, &r);
	given = kind_fill(UDP, &r);
	splice_fds(r.p, r.q, 0, 200);
	wait_error(r.p, ETIMEDOUT);
	moved = socksplice_moved(r.p);
	check(moved > 0 && moved < given, "%lld", (long long)moved);
	for (; moved < given; moved += 1000)
		kind_want(UDP, r.p, moved / 1000, 1000);
	kind_nothing(r.p);
}

/* Has a splice of @src into @dst leave EFBIG at @src. @client and @server are their peers. */
static void leave_error(enum kind k, int client, int src, int dst, int server)
{
	splice_fds(src, dst, 4, 0);
	kind_pass(k, client, server, 0, 4);
	wait_moved(src, 4);
	check(poll_now(src) & POLLERR, "no error");
}

/* The error that the last splice has left at the source ends the next one in the call. */
static void source_has_error(enum kind k)
{
	struct relay r;

	kind_open(k, &r);
	leave_error(k, r.c, r.p, r.q, r.s);
	kind_give(k, r.c, 4, 10);
	splice_on(&r);
	is_no_source(r.p);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	check(so_error(r.p) == EFBIG, "another error");
	splice_on(&r);
	kind_want(k, r.s, 4, 10);
	wait_moved(r.p, 10);
}

ON(KTLS, source_has_error)
ON(UDP, source_has_error)

/* An error that the sink's own last splice has left there ends no splice. TCP and UDP send in spite
 * of it, and kTLS waits until the application has taken it.
 */
static void sink_has_own_error(enum kind k)
{
	struct relay r;

	kind_open(k, &r);
	leave_error(k, r.s, r.q, r.p, r.c);
	splice_on(&r);
	kind_give(k, r.c, 0, 10);
	if (k == KTLS) {
		sleep_ms(100);
		check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	} else {
		kind_want(k, r.s, 0, 10);
		wait_moved(r.p, 10);	/* while it sends, the error is not in SO_ERROR */
	}
	check(poll_now(r.q) & POLLERR && so_error(r.q) == EFBIG, "the sink's error is gone");
	if (k == KTLS)
		kind_want(k, r.s, 0, 10);
	wait_moved(r.p, 10);
	kind_pass(k, r.c, r.s, 10, 10);
	wait_moved(r.p, 20);
	check(!so_error(r.p), "an error");
}

ON(TCP, sink_has_own_error)
ON(KTLS, sink_has_own_error)
ON(UDP, sink_has_own_error)

/* An error without a change of state, of the source and then of the sink. */
static void tls_errors(void)
{
	struct unreachable u;
	struct relay r;

	kind_open(KTLS, &r);
	unreachable_for(&u, r.p);
	splice_on(&r);
	say_unreachable(&u);
	wait_error(r.p, EHOSTUNREACH);
	is_no_source(r.p);

	splice_on(&r);
	kind_pass(KTLS, r.c, r.s, 0, 100);
	wait_moved(r.p, 100);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	unreachable_for(&u, r.q);
	splice_on(&r);
	say_unreachable(&u);
	wait_error(r.p, EHOSTUNREACH);
	check(so_error(r.q) == EHOSTUNREACH, "the sink has none");
	/* The sink has an error already, and the splice ends in setsockopt(2). */
	say_unreachable(&u);
	splice_on(&r);
	is_no_source(r.p);
	check(so_error(r.p) == EHOSTUNREACH && so_error(r.q) == EHOSTUNREACH, "no error");
	kind_pass(KTLS, r.c, r.p, 100, 100);
}

/* Gives @fd ECONNREFUSED: sends to its peer while nobody has that address. Returns a socket that
 * has the address and the peer of @peer.
 */
static int refuse_one(int fd, int peer)
{
	struct sockaddr_in own, other;
	socklen_t len = sizeof(own);
	int again = socket(AF_INET, SOCK_DGRAM, 0);

	check(!getsockname(peer, (void *)&own, &len) && !getpeername(peer, (void *)&other, &len),
	      "%s", strerror(errno));
	close(peer);
	check(send(fd, "x", 1, 0) == 1, "%s", strerror(errno));
	check(!bind(again, (void *)&own, len) && !connect(again, (void *)&other, len), "%s",
	      strerror(errno));
	return again;
}

/* An error of the source ends the splice. So does one that source or sink has when it begins. */
static void udp_errors(void)
{
	struct relay r;
	char c;

	kind_open(UDP, &r);
	splice_on(&r);
	kind_pass(UDP, r.c, r.s, 0, 10);
	wait_moved(r.p, 10);
	r.c = refuse_one(r.p, r.c);
	while (recv(r.p, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
		sleep_ms(1);
	check(errno == ECONNREFUSED, "%s", strerror(errno));
	is_no_source(r.p);

	r.c = refuse_one(r.p, r.c);
	splice_on(&r);
	is_no_source(r.p);
	check(so_error(r.p) == ECONNREFUSED, "no error of the source");

	r.s = refuse_one(r.q, r.s);
	kind_give(UDP, r.c, 1, 10);
	splice_on(&r);
	is_no_source(r.p);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	check(so_error(r.p) == ECONNREFUSED && so_error(r.q) == ECONNREFUSED, "no error");
	splice_on(&r);
	kind_want(UDP, r.s, 1, 10);
	wait_moved(r.p, 10);
}

/* The send itself fails, because the route is gone. The datagram stays in the source. */
static void send_fails(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct relay r;

	other_namespace();
	check(!system("ip link add v0 type veth peer name v1 && ip addr add 10.9.9.1/24 dev v0 &&"
		      "ip link set v0 up && ip link set v1 up &&"
		      "ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:09 dev v0"), "no veth");
	udp_pair(AF_INET, &r.c, &r.p);
	r.q = socket(AF_INET, SOCK_DGRAM, 0);
	addr.sin_addr.s_addr = inet_addr("10.9.9.2");
	check(!connect(r.q, (void *)&addr, sizeof(addr)), "%s", strerror(errno));
	splice_on(&r);
	kind_give(UDP, r.c, 0, 10);
	wait_moved(r.p, 10);
	check(!system("ip link delete v0"), "no ip");
	kind_give(UDP, r.c, 1, 11);
	wait_error(r.p, ENETUNREACH);
	check(so_error(r.q) == ENETUNREACH, "the sink has none");
	check(socksplice_moved(r.p) == 10, "%lld", (long long)socksplice_moved(r.p));
	kind_want(UDP, r.p, 1, 11);
}

/* A sink with kTLS cannot lose its connection by connect(2): the kernel refuses that. */
static void tls_stays_connected(void)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct relay r;

	kind_open(KTLS, &r);
	splice_on(&r);
	check(connect(r.q, &none, sizeof(none)) && errno == EOPNOTSUPP, "%s", strerror(errno));
	check(connect(r.p, &none, sizeof(none)) && errno == EOPNOTSUPP, "%s", strerror(errno));
	kind_pass(KTLS, r.c, r.s, 0, 100);
	wait_moved(r.p, 100);
}

/* Splices with kTLS at both ends, in a circle over @n connections. */
static void loop_of(int n)
{
	uint64_t before = counter("so_splice_loops");
	int a[2], b[2], i, found = 0;
	long start;

	for (i = 0; i < n; i++) {
		connect_pair(AF_INET, &a[i], &b[i]);
		secure(a[i], b[i], TLS_1_3_VERSION);
	}
	splice_fds(b[0], a[n - 1], 0, 0);
	kind_give(KTLS, a[0], 0, 100);
	if (n == 2) {
		/* not a circle yet */
		kind_want(KTLS, b[1], 0, 100);
		wait_moved(b[0], 100);
		splice_fds(b[1], a[0], 0, 0);
		kind_give(KTLS, a[1], 100, 100);
	}
	for (start = ms(); !found; sleep_ms(2)) {
		check(ms() - start < 20000, "a circle of %d goes round and round", n);
		for (i = 0; i < n; i++)
			found += so_error(b[i]) == ELOOP;
	}
	check(counter("so_splice_loops") == before + 1, "found %d times",
	      (int)(counter("so_splice_loops") - before));
}

static void tls_loops(void)
{
	loop_of(1);
	loop_of(2);
}

/* An urgent byte in line goes to the server as urgent. */
static void urgent(void)
{
	struct pollfd p = { .events = POLLPRI };
	struct relay r;
	char c, buf[8];
	int one = 1;

	kind_open(TCP, &r);
	setsockopt(r.p, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	splice_on(&r);
	check(send(r.c, "abc", 3, 0) == 3 && send(r.c, "!", 1, MSG_OOB) == 1 &&
	      send(r.c, "def", 3, 0) == 3, "%s", strerror(errno));
	p.fd = r.s;
	check(poll(&p, 1, 20000) == 1, "no urgent byte");
	while (recv(r.s, &c, 1, MSG_OOB) < 0)	/* told of, and on its way */
		check(errno == EAGAIN, "%s", strerror(errno));
	check(c == '!', "%c", c);
	wait_moved(r.p, 7);
	check(recv(r.s, buf, 3, MSG_WAITALL) == 3 && !memcmp(buf, "abc", 3), "%.3s", buf);
	check(recv(r.s, buf, 3, MSG_WAITALL) == 3 && !memcmp(buf, "def", 3), "%.3s", buf);
}

/* A sink with kTLS sends an urgent byte in line as an ordinary one, and others not at all. */
static void urgent_into_tls(void)
{
	struct relay r;
	int one = 1;
	char c, buf[8];

	tls_open(&r, SERVER, TLS_1_3_VERSION);
	splice_on(&r);
	check(send(r.c, "ab", 2, 0) == 2 && send(r.c, "!", 1, MSG_OOB) == 1 &&
	      send(r.c, "cd", 2, 0) == 2, "%s", strerror(errno));
	check(recv(r.s, buf, 4, MSG_WAITALL) == 4 && !memcmp(buf, "abcd", 4), "%.4s", buf);
	check(recv(r.p, &c, 1, MSG_OOB) == 1 && c == '!', "%s", strerror(errno));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	setsockopt(r.p, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	splice_on(&r);
	check(send(r.c, "ef", 2, 0) == 2 && send(r.c, "?", 1, MSG_OOB) == 1 &&
	      send(r.c, "gh", 2, 0) == 2, "%s", strerror(errno));
	check(recv(r.s, buf, 5, MSG_WAITALL) == 5 && !memcmp(buf, "ef?gh", 5), "%.5s", buf);
	wait_moved(r.p, 5);
}

/* select(2) for reading tells of the end, also of one by an error. poll(2) shows no data then. */
static void end_in_select(enum kind k)
{
	struct timeval t = { .tv_usec = 100000 };
	struct relay r;
	fd_set set;

	kind_open(k, &r);
	splice_fds(r.p, r.q, 10, 0);
	kind_pass(k, r.c, r.s, 0, 9);
	wait_moved(r.p, 9);
	FD_ZERO(&set);
	FD_SET(r.p, &set);
	check(!select(r.p + 1, &set, NULL, NULL, &t), "readable while spliced");
	kind_give(k, r.c, 9, 1);
	t.tv_sec = 20;
	FD_SET(r.p, &set);
	check(select(r.p + 1, &set, NULL, NULL, &t) == 1, "not readable");
	check((poll_now(r.p) & (POLLERR | POLLIN)) == POLLERR, "%x", poll_now(r.p));
	wait_error(r.p, EFBIG);
	check(socksplice_moved(r.p) == 10, "%lld", (long long)socksplice_moved(r.p));
}

ON(KTLS, end_in_select)
ON(UDP, end_in_select)

/* Splices into one sink after another, each at once. The count is that of the last one. */
static void again(enum kind k)
{
	struct relay r, o;

	kind_open(k, &r);
	kind_open(k, &o);
	for (int i = 0; i < 100; i++) {
		splice_fds(r.p, i % 2 ? r.q : o.q, 0, 0);
		kind_pass(k, r.c, i % 2 ? r.s : o.s, 10 * i, 10);
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		check(socksplice_moved(r.p) == 10, "%lld", (long long)socksplice_moved(r.p));
	}
	kind_pass(k, r.c, r.p, 1000, 10);
}

ON(KTLS, again)
ON(UDP, again)

/* A limit inside a datagram: a short splice, without an error. The next one goes on from there. */
static void short_splice(void)
{
	struct relay r;

	kind_open(UDP, &r);
	splice_fds(r.p, r.q, 10, 0);
	kind_pass(UDP, r.c, r.s, 0, 6);
	kind_give(UDP, r.c, 1, 6);
	while (!(poll_now(r.p) & POLLIN))	/* until the splice has ended */
		sleep_ms(1);
	is_no_source(r.p);
	check(!so_error(r.p) && socksplice_moved(r.p) == 6, "%lld",
	      (long long)socksplice_moved(r.p));
	splice_fds(r.p, r.q, 4, 0);	/* what is left of the limit is still too little */
	is_no_source(r.p);
	check(!so_error(r.p) && !socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
	splice_fds(r.p, r.q, 6, 0);
	check(so_error(r.p) == EFBIG && socksplice_moved(r.p) == 6, "%lld",
	      (long long)socksplice_moved(r.p));
	kind_want(UDP, r.s, 1, 6);
}

/* After SHUT_RD the sink gets what the source has queued. Then the splice ends, without an error.
 * OpenBSD drops it.
 */
static void shut_rd(enum kind k)
{
	int64_t len = k == UDP ? 0 : 40000;
	struct relay r;
	int queued;

	kind_open_small(k, &r);
	splice_on(&r);
	if (k == UDP) {
		do {	/* the device sends one every 36 ms, so a slow giver meets room for all */
			for (int i = 0; i < 6; i++, len += 1000)
				kind_give(k, r.c, len / 1000, 1000);
			check(len < 60000, "there is always room for all");
		} while (socksplice_moved(r.p) == len);
	} else {
		kind_give(k, r.c, 0, len);
		for (queued = 1; queued; )	/* until all is in the source's queue */
			check(!ioctl(r.c, TIOCOUTQ, &queued), "%s", strerror(errno));
		check(socksplice_moved(r.p) < len, "there was room for all");
	}
	shutdown(r.p, SHUT_RD);
	if (k == UDP)
		for (int i = 0; i < len / 1000; i++)
			kind_want(k, r.s, i, 1000);
	else
		kind_want(k, r.s, 0, len);
	while (socksplice_moved(r.p) < len || !(poll_now(r.p) & POLLRDHUP))
		sleep_ms(2);
	check(socksplice_moved(r.p) == len, "%lld", (long long)socksplice_moved(r.p));
	is_no_source(r.p);
	check(!so_error(r.p), "an error");
}

ON(KTLS, shut_rd)
ON(UDP, shut_rd)

const struct sock_case page_end_cases[] = {
	{ "page-kTLS-ETIMEDOUT", idle_KTLS },
	{ "page-kTLS-ETIMEDOUT-restarts", idle_restarts_KTLS },
	{ "page-UDP-ETIMEDOUT-full-sink", idle_full_sink },
	{ "page-kTLS-source-has-error", source_has_error_KTLS },
	{ "page-UDP-source-has-error", source_has_error_UDP },
	{ "page-TCP-sink-has-own-error", sink_has_own_error_TCP },
	{ "page-kTLS-sink-has-own-error", sink_has_own_error_KTLS },
	{ "page-UDP-sink-has-own-error", sink_has_own_error_UDP },
	{ "page-kTLS-errors", tls_errors },
	{ "page-UDP-errors", udp_errors },
	{ "page-UDP-send-fails", send_fails },
	{ "page-kTLS-stays-connected", tls_stays_connected },
	{ "page-kTLS-ELOOP", tls_loops },
	{ "page-TCP-urgent", urgent },
	{ "page-kTLS-urgent", urgent_into_tls },
	{ "page-kTLS-select", end_in_select_KTLS },
	{ "page-UDP-select", end_in_select_UDP },
	{ "page-kTLS-again-at-once", again_KTLS },
	{ "page-UDP-again-at-once", again_UDP },
	{ "page-UDP-short-splice", short_splice },
	{ "page-kTLS-SHUT_RD", shut_rd_KTLS },
	{ "page-UDP-SHUT_RD", shut_rd_UDP },
	{}
};
