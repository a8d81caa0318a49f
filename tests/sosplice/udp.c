// SPDX-License-Identifier: GPL-2.0
/* SO_SPLICE between UDP sockets. Each case proves by the count that the splice moved it. */
#include <arpa/inet.h>
#include <linux/sock_diag.h>
#include <netinet/ip.h>
#include <netinet/udp.h>

#include "sosplice.h"

#define MOST	65507

int udp_bound(int family)
{
	struct sockaddr_storage addr = { .ss_family = family };
	int fd = socket(family, SOCK_DGRAM, 0);

	if (family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
	check(fd >= 0 && !bind(fd, (void *)&addr, sizeof(addr)), "%s", strerror(errno));
	return fd;
}

void udp_connect(int a, int b)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);

	check(!getsockname(b, (void *)&addr, &len), "%s", strerror(errno));
	check(!connect(a, (void *)&addr, len), "%s", strerror(errno));
}

void udp_pair(int family, int *a, int *b)
{
	*a = udp_bound(family);
	*b = udp_bound(family);
	udp_connect(*a, *b);
	udp_connect(*b, *a);
}

/* The splice is from p to q. */
void udp_open(struct relay *r, int client_family, int server_family)
{
	udp_pair(client_family, &r->c, &r->p);
	udp_pair(server_family, &r->q, &r->s);
}

int udp_try(int from, int to, int64_t max)
{
	struct splice s = { .sp_fd = to, .sp_max = max };

	return socksplice_splice(from, &s) ? errno : 0;
}

void udp_give(int fd, char fill, size_t len)
{
	static char buf[65536];

	memset(buf, fill, len);
	check(send(fd, buf, len, 0) == (ssize_t)len, "%zu: %s", len, strerror(errno));
}

void udp_want(int fd, char fill, size_t len)
{
	static char buf[65536 + 1];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t got;
	size_t i;

	check(poll(&p, 1, 20000) == 1, "no datagram");
	got = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	check(got == (ssize_t)len, "%zd bytes, not %zu: %s", got, len, strerror(errno));
	for (i = 0; i < len; i++)
		check(buf[i] == fill, "byte %zu of %zu", i, len);
}

void udp_nothing(int fd)
{
	char c;

	check(recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "%s", strerror(errno));
}

/* The splice of @fd has ended without an error. */
static void ended(int fd)
{
	check(socksplice_unsplice(fd) && errno == ENOTCONN, "it lives");
	check(!so_error(fd), "an error");
}

static void moves(int client_family, int server_family)
{
	static const size_t sizes[] = { 1, 0, 5, 1472, 0, 0, 9000, 3, 40000, MOST, 1 };
	uint64_t datagrams = counter("so_splice_datagrams");
	int64_t sum = 0;
	struct relay r;
	size_t i, n = sizeof(sizes) / sizeof(sizes[0]);

	udp_open(&r, client_family, server_family);
	set_buf(r.q, 1 << 20, 0);
	set_buf(r.s, 0, 1 << 20);
	udp_give(r.c, 'q', 7);	/* queued before */
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(socksplice_moved(r.p) == 7, "%lld", (long long)socksplice_moved(r.p));
	udp_want(r.s, 'q', 7);
	for (i = 0; i < n; i++) {
		udp_give(r.c, 'a' + i, sizes[i]);
		udp_want(r.s, 'a' + i, sizes[i]);
		sum += sizes[i];
	}
	wait_moved(r.p, sum + 7);
	check(wait_counter("so_splice_datagrams", datagrams + n + 1) == datagrams + n + 1,
	      "others, too");
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	udp_give(r.c, 'x', 3);
	udp_want(r.p, 'x', 3);
	udp_nothing(r.s);
	check(socksplice_moved(r.p) == sum + 7, "the count is gone");
}

static void moves_4(void) { moves(AF_INET, AF_INET); }
static void moves_6(void) { moves(AF_INET6, AF_INET6); }
static void moves_46(void) { moves(AF_INET, AF_INET6); }
static void moves_64(void) { moves(AF_INET6, AF_INET); }

static void both_ways(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET6);
	check(!udp_try(r.p, r.q, 0) && !udp_try(r.q, r.p, 0), "%s", strerror(errno));
	for (int i = 0; i < 100; i++) {
		udp_give(r.c, 'a', i);
		udp_want(r.s, 'a', i);
		udp_give(r.s, 'b', i + 1);
		udp_want(r.c, 'b', i + 1);
	}
	wait_moved(r.p, 4950);
	wait_moved(r.q, 5050);
}

static void namespaces(void)
{
	struct relay r;

	udp_pair(AF_INET, &r.c, &r.p);
	other_namespace();
	udp_pair(AF_INET, &r.q, &r.s);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 100);
	udp_want(r.s, 'a', 100);
	wait_moved(r.p, 100);
}

/* OpenBSD's: max, max-multi, maxcopy */
static void limit_hit(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 6), "%s", strerror(errno));
	udp_give(r.c, 'a', 1);
	udp_give(r.c, 'b', 2);
	udp_give(r.c, 'c', 3);
	wait_error(r.p, EFBIG);
	udp_give(r.c, 'd', 4);
	check(socksplice_moved(r.p) == 6, "%lld", (long long)socksplice_moved(r.p));
	udp_want(r.s, 'a', 1);
	udp_want(r.s, 'b', 2);
	udp_want(r.s, 'c', 3);
	udp_nothing(r.s);
	udp_want(r.p, 'd', 4);
	ended(r.p);
}

/* OpenBSD's: max-nosplit */
static void limit_not_hit(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	udp_give(r.c, 'a', 1);
	udp_give(r.c, 'b', 3);
	udp_give(r.c, 'c', 1);
	check(!udp_try(r.p, r.q, 2), "%s", strerror(errno));
	ended(r.p);
	check(socksplice_moved(r.p) == 1, "%lld", (long long)socksplice_moved(r.p));
	udp_want(r.s, 'a', 1);
	udp_nothing(r.s);
	udp_want(r.p, 'b', 3);
	udp_want(r.p, 'c', 1);
}

/* OpenBSD's: nospace */
static void emsgsize(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 5000, 0);	/* doubled */
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 10000);
	udp_want(r.s, 'a', 10000);
	udp_give(r.c, 'b', 10001);
	udp_give(r.c, 'c', 3);
	wait_error(r.p, EMSGSIZE);
	check(socksplice_moved(r.p) == 10000, "%lld", (long long)socksplice_moved(r.p));
	udp_nothing(r.s);
	udp_want(r.p, 'b', 10001);
	udp_want(r.p, 'c', 3);
	check(!so_error(r.q), "the sink has an error");
}

/* More than IPv4 can carry. */
static void emsgsize_family(void)
{
	struct relay r;

	udp_open(&r, AF_INET6, AF_INET);
	set_buf(r.q, 1 << 20, 0);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', MOST + 1);
	wait_error(r.p, EMSGSIZE);
	udp_want(r.p, 'a', MOST + 1);
	udp_nothing(r.s);
}

/* OpenBSD's idle-trickle, with an idle time of 600 ms. False if the machine was so slow that the
 * splice may have ended meanwhile.
 */
static bool trickle(struct relay *r, long *start)
{
	long before, now = ms();

	splice_fds(r->p, r->q, 0, 600);
	*start = tick_ms();
	for (int i = 0; i < 10; i++) {
		before = now;
		now = ms();
		udp_give(r->c, 'a', i);
		if (ms() - before >= 600)
			return false;
		udp_want(r->s, 'a', i);
		sleep_ms(100);
	}
	return true;
}

static void idle(void)
{
	struct relay r;
	long start;

	do
		udp_open(&r, AF_INET, AF_INET);
	while (!trickle(&r, &start));
	wait_error(r.p, ETIMEDOUT);
	check(tick_ms() - start >= 1500, "after %ld ms", tick_ms() - start);
	check(socksplice_moved(r.p) == 45, "%lld", (long long)socksplice_moved(r.p));
	udp_give(r.c, 'b', 2);
	udp_want(r.p, 'b', 2);
}

static void unconnected(void)
{
	int c = udp_bound(AF_INET), o = udp_bound(AF_INET), p = udp_bound(AF_INET), q, s;

	udp_pair(AF_INET, &q, &s);
	udp_connect(c, p);
	udp_connect(o, p);
	check(!udp_try(p, q, 0), "%s", strerror(errno));
	udp_give(c, 'a', 10);
	udp_want(s, 'a', 10);
	udp_give(o, 'b', 20);
	udp_want(s, 'b', 20);
	wait_moved(p, 30);
	check(udp_try(q, p, 0) == ENOTCONN, "an unconnected sink: %s", strerror(errno));
}

static void refusals(void)
{
	int tcp[2], one = UDP_ENCAP_ESPINUDP, six = socket(AF_INET6, SOCK_DGRAM, 0), four, q;
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	connect_pair(AF_INET, &tcp[0], &tcp[1]);
	check(udp_try(tcp[0], r.q, 0) == EPROTONOSUPPORT, "TCP into UDP: %s", strerror(errno));
	check(udp_try(r.p, tcp[0], 0) == EPROTONOSUPPORT, "UDP into TCP: %s", strerror(errno));
	check(udp_try(r.p, r.p, 0) == EINVAL, "into itself: %s", strerror(errno));
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
	check(udp_try(r.p, r.q, -1) == EINVAL, "%s", strerror(errno));
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
	check(!connect(six, (void *)&mapped, sizeof(mapped)), "%s", strerror(errno));
	check(udp_try(r.p, six, 0) == EINVAL, "v4-mapped: %s", strerror(errno));
	udp_pair(AF_INET, &four, &q);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(udp_try(r.p, four, 0) == EBUSY && udp_try(four, r.q, 0) == EBUSY, "%s", strerror(errno));
	check(setsockopt(r.p, SOL_UDP, UDP_ENCAP, &one, sizeof(one)) && errno == EBUSY, "encap");
	if (!setsockopt(four, SOL_UDP, UDP_ENCAP, &one, sizeof(one)))
		check(udp_try(r.q, four, 0) == EINVAL, "encap: %s", strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	wait_moved(r.p, 10);
}

/* OpenBSD's: udp-ELOOP */
static void eloop(void)
{
	uint64_t loops = counter("so_splice_loops");
	int s = udp_bound(AF_INET), ss = udp_bound(AF_INET);

	udp_connect(ss, s);
	check(!udp_try(s, ss, 0), "%s", strerror(errno));
	udp_give(ss, 'a', 4);
	wait_error(s, ELOOP);
	check(socksplice_moved(s) == 128 * 4, "%lld", (long long)socksplice_moved(s));
	udp_want(s, 'a', 4);
	udp_nothing(s);
	check(counter("so_splice_loops") == loops + 1, "not counted");
}

/* Two splices, and the way back is by the other. */
static void eloop_of_two(void)
{
	struct relay r;

	udp_open(&r, AF_INET6, AF_INET);
	check(!udp_try(r.p, r.q, 0) && !udp_try(r.s, r.c, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 3);
	wait_error(r.p, ELOOP);	/* the first of them is also the 129th */
	check(socksplice_moved(r.p) == 64 * 3 && socksplice_moved(r.s) == 64 * 3, "%lld, %lld",
	      (long long)socksplice_moved(r.p), (long long)socksplice_moved(r.s));
	udp_want(r.p, 'a', 3);
}

/* OpenBSD's loop test: each end of one connection is spliced into the other. */
static void eloop_of_ends(void)
{
	int a, b;

	udp_pair(AF_INET6, &a, &b);
	check(!udp_try(a, b, 0) && !udp_try(b, a, 0), "%s", strerror(errno));
	udp_give(a, 'a', 3);
	wait_error(b, ELOOP);
	udp_want(b, 'a', 3);
	udp_give(b, 'b', 3);
	wait_error(a, ELOOP);
	udp_want(a, 'b', 3);
	check(socksplice_moved(b) == 128 * 3 && socksplice_moved(a) == 128 * 3, "%lld, %lld",
	      (long long)socksplice_moved(b), (long long)socksplice_moved(a));
}

/* A chain of 128 splices is none. */
static void chain(void)
{
	int first, in, out, next;

	udp_pair(AF_INET, &first, &in);
	for (int i = 0; i < 128; i++) {
		udp_pair(AF_INET, &out, &next);
		check(!udp_try(in, out, 0), "%s", strerror(errno));
		in = next;
	}
	udp_give(first, 'a', 9);
	udp_want(in, 'a', 9);
}

static void eloop_broadcast(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int one = 1, p = socket(AF_INET, SOCK_DGRAM, 0), q = socket(AF_INET, SOCK_DGRAM, 0);
	int other = udp_bound(AF_INET);
	socklen_t len = sizeof(addr);

	check(!bind(p, (void *)&addr, len) && !getsockname(p, (void *)&addr, &len), "%s",
	      strerror(errno));
	addr.sin_addr.s_addr = htonl(0x7fffffff);
	check(!setsockopt(q, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one)), "%s", strerror(errno));
	check(!setsockopt(other, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one)), "%s",
	      strerror(errno));
	check(!connect(q, (void *)&addr, len), "%s", strerror(errno));
	check(!udp_try(p, q, 0), "%s", strerror(errno));
	/* an application's own broadcast is forwarded, once */
	check(sendto(other, "abc", 3, 0, (void *)&addr, len) == 3, "%s", strerror(errno));
	wait_error(p, ELOOP);
	check(socksplice_moved(p) == 3, "%lld", (long long)socksplice_moved(p));
}

static void icmp_error(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	close(r.s);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 10);
	wait_error(r.p, ECONNREFUSED);
	check(socksplice_moved(r.p) == 10, "%lld", (long long)socksplice_moved(r.p));
	check(so_error(r.q) == ECONNREFUSED, "not at the sink");
	udp_give(r.c, 'b', 11);
	udp_want(r.p, 'b', 11);
}

static void wrong_checksum(void)
{
	struct {
		struct udphdr udp;
		char data[4];
	} bad = { .data = "bad" };
	struct sockaddr_in to, from;
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
	socklen_t len = sizeof(to);
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(!getsockname(r.p, (void *)&to, &len), "%s", strerror(errno));
	len = sizeof(from);
	check(!getsockname(r.c, (void *)&from, &len), "%s", strerror(errno));
	bad.udp.source = from.sin_port;
	bad.udp.dest = to.sin_port;
	bad.udp.len = htons(sizeof(bad));
	bad.udp.check = htons(0x1234);
	check(sendto(raw, &bad, sizeof(bad), 0, (void *)&to, sizeof(to)) == sizeof(bad), "%s",
	      strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	udp_nothing(r.s);
	wait_moved(r.p, 10);
	bad.udp.check = 0;	/* none */
	check(sendto(raw, &bad, sizeof(bad), 0, (void *)&to, sizeof(to)) == sizeof(bad), "%s",
	      strerror(errno));
	wait_moved(r.p, 14);
}

static void ends(void)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	close(r.q);
	wait_error(r.p, EPIPE);
	udp_open(&r, AF_INET6, AF_INET6);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	shutdown(r.q, SHUT_WR);
	wait_error(r.p, EPIPE);
	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(!connect(r.q, &none, sizeof(none)), "%s", strerror(errno));
	wait_error(r.p, EPIPE);
	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	shutdown(r.p, SHUT_RD);
	while (udp_try(r.p, r.q, 0) == EBUSY)	/* a socket that is no source can become one */
		sleep_ms(2);
	check(!so_error(r.p), "an error");
	udp_open(&r, AF_INET, AF_INET);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	close(r.p);
	udp_give(r.q, 'a', 5);
	udp_want(r.s, 'a', 5);
}

/* A datagram stays one, whatever the application has set for its own. */
static void segment_on_sink(void)
{
	int size = 100;
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!setsockopt(r.q, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)), "%s", strerror(errno));
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 1000);
	udp_want(r.s, 'a', 1000);
	wait_moved(r.p, 1000);
}

/* UDP_GRO on the source: a train goes on as a train. */
static void train(void)
{
	uint64_t datagrams = counter("so_splice_datagrams");
	int size = 100, one = 1;
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!setsockopt(r.c, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)), "%s", strerror(errno));
	check(!setsockopt(r.p, SOL_UDP, UDP_GRO, &one, sizeof(one)), "%s", strerror(errno));
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 1050);
	for (int i = 0; i < 10; i++)
		udp_want(r.s, 'a', 100);
	udp_want(r.s, 'a', 50);
	wait_moved(r.p, 1050);
	check(wait_counter("so_splice_datagrams", datagrams + 1) == datagrams + 1,
	      "not as a train");
	check(!setsockopt(r.s, SOL_UDP, UDP_GRO, &one, sizeof(one)), "%s", strerror(errno));
	udp_give(r.c, 'b', 1050);
	udp_want(r.s, 'b', 1050);
}

static void through_mtu(struct relay *r, const char *mtu, size_t len)
{
	char command[64];

	snprintf(command, sizeof(command), "ip link set lo mtu %s", mtu);
	check(!system(command), "no such MTU");
	udp_give(r->c, 'a', len);
	udp_want(r->s, 'a', len);
}

/* Fragments arrive as many pieces of one datagram, or as too many: those are copied. */
static void fragments(void)
{
	uint64_t copied = counter("so_splice_copied_bytes");
	struct relay r;

	other_namespace();
	udp_open(&r, AF_INET, AF_INET);
	set_buf(r.c, 1 << 20, 0);
	set_buf(r.q, 1 << 20, 1 << 20);
	set_buf(r.p, 0, 1 << 20);
	set_buf(r.s, 0, 1 << 20);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	through_mtu(&r, "1500", 40000);
	check(counter("so_splice_copied_bytes") == copied, "copied");
	through_mtu(&r, "900", MOST);
	wait_moved(r.p, 40000 + MOST);
	check(counter("so_splice_copied_bytes") == copied + MOST, "not copied");
}

static void by_sol_socket(void)
{
	struct relay r;
	int64_t moved;
	socklen_t len = sizeof(moved);

	udp_open(&r, AF_INET6, AF_INET);
	check(!setsockopt(r.p, SOL_SOCKET, SO_SPLICE, &r.q, sizeof(r.q)), "%s", strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	wait_moved(r.p, 10);
	check(!getsockopt(r.p, SOL_SOCKET, SO_SPLICE, &moved, &len) && moved == 10, "%lld",
	      (long long)moved);
}

long udp_meminfo(int fd, int i)
{
	uint32_t mem[SK_MEMINFO_VARS];
	socklen_t len = sizeof(mem);

	check(!getsockopt(fd, SOL_SOCKET, SO_MEMINFO, mem, &len), "%s", strerror(errno));
	return mem[i];
}

static long drops(int fd)
{
	return udp_meminfo(fd, SK_MEMINFO_DROPS);
}

void udp_open_slow(struct relay *r)
{
	udp_pair(AF_INET, &r->c, &r->p);
	other_namespace();
	udp_pair(AF_INET, &r->q, &r->s);
	check(!system("tc qdisc add dev lo root tbf rate 8kbit burst 2k limit 1m"), "no tbf");
	set_buf(r->q, 4000, 0);
}

/* The sink's device is slow. What the sink has no room for waits, or is dropped and counted where
 * it arrives, as for any reader that is slow.
 */
static void full_sink(void)
{
	int c = -1, p = -1, q, s, sent, got = 0, last = -1, n;
	char buf[1000];

	udp_pair(AF_INET, &c, &p);
	other_namespace();
	udp_pair(AF_INET, &q, &s);
	check(!system("tc qdisc add dev lo root tbf rate 8mbit burst 2k limit 1m"), "no tbf");
	set_buf(q, 8000, 0);
	set_buf(p, 0, 40000);
	set_buf(s, 0, 1 << 20);
	check(!udp_try(p, q, 0), "%s", strerror(errno));
	for (sent = 0; sent < 200 || !drops(p); sent++) {
		memset(buf, 0, sizeof(buf));
		memcpy(buf, &sent, sizeof(sent));
		check(send(c, buf, sizeof(buf), 0) == sizeof(buf), "%s", strerror(errno));
	}
	check(!(poll_now(p) & POLLIN), "%x", poll_now(p));
	while (got < sent - drops(p)) {
		struct pollfd w = { .fd = s, .events = POLLIN };

		check(poll(&w, 1, 20000) == 1, "%d of %d, %ld dropped", got, sent, drops(p));
		check(recv(s, buf, sizeof(buf), 0) == sizeof(buf), "%s", strerror(errno));
		memcpy(&n, buf, sizeof(n));
		check(n > last, "%d after %d", n, last);
		last = n;
		got++;
	}
	wait_moved(p, got * 1000LL);
	udp_nothing(s);
}

/* Random sequences: each datagram that is sent arrives once, at the server or at the proxy, unless
 * it was dropped where the kernel counts that.
 */
static void storm(void)
{
	unsigned int seed = 7;
	struct relay r;
	int sent = 0, seen[2000] = {}, n, moved = 0;

	udp_open(&r, AF_INET, AF_INET6);
	for (int round = 0; round < 2000; round++) {
		switch (rand_r(&seed) % 8) {
		case 0:
			if (!udp_try(r.p, r.q, rand_r(&seed) % 3 ? 0 : 1 + rand_r(&seed) % 40))
				moved++;
			break;
		case 1:
			socksplice_unsplice(r.p);
			break;
		case 2:
			so_error(r.p);
			break;
		case 3:
			udp_try(r.q, r.p, 0);
			socksplice_unsplice(r.q);
			break;
		case 4:
			close(r.q);
			r.q = udp_bound(AF_INET6);
			udp_connect(r.q, r.s);
			udp_connect(r.s, r.q);
			break;
		default:
			if (sent < 2000) {
				check(send(r.c, &sent, sizeof(sent), 0) == sizeof(sent), "%s",
				      strerror(errno));
				sent++;
			}
		}
		while (recv(r.s, &n, sizeof(n), MSG_DONTWAIT) == sizeof(n))
			seen[n]++;
		while (recv(r.p, &n, sizeof(n), MSG_DONTWAIT) == sizeof(n))
			seen[n]++;
	}
	socksplice_unsplice(r.p);
	so_error(r.p);
	while (recv(r.s, &n, sizeof(n), MSG_DONTWAIT) == sizeof(n))
		seen[n]++;
	while (recv(r.p, &n, sizeof(n), MSG_DONTWAIT) == sizeof(n))
		seen[n]++;
	check(moved > 50, "%d splices", moved);
	for (int i = 0; i < sent; i++)
		check(seen[i] == 1, "%d of %d: %d times", i, sent, seen[i]);
}

const struct sock_case udp_cases[] = {
	{ "udp-moves-v4", moves_4 },
	{ "udp-moves-v6", moves_6 },
	{ "udp-moves-v4-to-v6", moves_46 },
	{ "udp-moves-v6-to-v4", moves_64 },
	{ "udp-both-ways", both_ways },
	{ "udp-namespaces", namespaces },
	{ "udp-EFBIG-exactly", limit_hit },
	{ "udp-limit-splits-none", limit_not_hit },
	{ "udp-EMSGSIZE-buffer", emsgsize },
	{ "udp-EMSGSIZE-family", emsgsize_family },
	{ "udp-idle", idle },
	{ "udp-unconnected-source", unconnected },
	{ "udp-refusals", refusals },
	{ "udp-ELOOP", eloop },
	{ "udp-ELOOP-of-two", eloop_of_two },
	{ "udp-ELOOP-of-two-ends", eloop_of_ends },
	{ "udp-chain-of-128", chain },
	{ "udp-ELOOP-broadcast", eloop_broadcast },
	{ "udp-ICMP-error", icmp_error },
	{ "udp-wrong-checksum", wrong_checksum },
	{ "udp-ends", ends },
	{ "udp-UDP_SEGMENT-on-sink", segment_on_sink },
	{ "udp-train", train },
	{ "udp-fragments", fragments },
	{ "udp-by-SOL_SOCKET", by_sol_socket },
	{ "udp-full-sink", full_sink },
	{ "udp-storm", storm },
	{ NULL }
};
