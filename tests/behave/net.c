// SPDX-License-Identifier: GPL-2.0
/*
 * Connections for the cases, the warm-up that opens both rings, and what the
 * cases wait for.
 */
#include "behave.h"
#include "netns.h"

#include <arpa/inet.h>
#include <sched.h>

int side_socket(bool server, int type_flags)
{
	int family = env.family == 4 || (env.family == 46 && !server) ? AF_INET : AF_INET6;
	int fd;

	netns_enter(server);
	fd = MUST(socket(family, SOCK_STREAM | type_flags, 0));
	netns_leave();
	/* Where answers go by ring, nothing acknowledges what goes by TCP for a
	 * while, and Nagle's algorithm holds back what a reset then destroys.
	 */
	if (env.storm)
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)));
	return fd;
}

void side_sysctl(bool server, const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", name);
	netns_enter(server);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		skip("cannot set %s: %s", name, strerror(errno));
	close(fd);
	netns_leave();
}

int listener_open(prep_fn prep, int backlog)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	int fd = side_socket(true, 0), off = 0;

	if (prep)
		prep(fd, true);
	if (env.family == 4) {
		MUST(bind(fd, (void *)&any4, sizeof(any4)));
	} else {
		MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)));
		MUST(bind(fd, (void *)&any6, sizeof(any6)));
	}
	MUST(listen(fd, backlog));
	return fd;
}

/* Where a client reaches the listener @fd. */
struct sockaddr_storage listener_addr(int fd, socklen_t *len)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in6 *in6 = (void *)&ss;
	struct sockaddr_in *in = (void *)&ss;
	in_port_t port;

	*len = sizeof(ss);
	MUST(getsockname(fd, (void *)&ss, len));
	port = ss.ss_family == AF_INET ? in->sin_port : in6->sin6_port;
	memset(&ss, 0, sizeof(ss));
	if (env.family == 6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = port;
		inet_pton(AF_INET6, netns_server_addr(6), &in6->sin6_addr);
		*len = sizeof(*in6);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = port;
		inet_pton(AF_INET, netns_server_addr(4), &in->sin_addr);
		*len = sizeof(*in);
	}
	return ss;
}

static uint64_t cookie(int fd)
{
	uint64_t v = 0;
	socklen_t len = sizeof(v);

	MUST(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &v, &len));
	return v;
}

void conn_adopt(struct conn *k, int client, int server)
{
	memset(k, 0, sizeof(*k));
	k->client = client;
	k->server = server;
	k->a = env.swap ? server : client;
	k->b = env.swap ? client : server;
	k->cookie[0] = cookie(client);
	k->cookie[1] = cookie(server);
}

void conn_open_with(struct conn *k, prep_fn prep)
{
	int l = listener_open(prep, 8), c = side_socket(false, 0);
	struct sockaddr_storage ss;
	socklen_t len;

	where("connecting");
	ss = listener_addr(l, &len);
	if (prep)
		prep(c, false);
	MUST(connect(c, (void *)&ss, len));
	conn_adopt(k, c, MUST(accept(l, NULL, NULL)));
	close(l);
}

void conn_open(struct conn *k)
{
	conn_open_with(k, NULL);
}

static void one_byte(int from, int to)
{
	char c = 'w', d = 0;

	if (send(from, &c, 1, 0) != 1 || recv(to, &d, 1, 0) != 1 || d != 'w')
		fail("warm-up: %s", strerror(errno));
}

/* The first byte towards an end goes by TCP, because the end has not yet
 * called recv on the paired socket; the second goes by ring.
 */
void conn_warm(struct conn *k)
{
	struct pair_info info;

	where("warming up");
	for (int i = 0; i < 2; i++) {
		one_byte(k->client, k->server);
		one_byte(k->server, k->client);
	}
	if (!env.paired)
		return;
	if (!pairs_find(k->cookie[0], k->cookie[1], &info))
		k->ring_base = info.tx_ring[0] + info.tx_ring[1];
}

void conn_start_with(struct conn *k, prep_fn prep)
{
	conn_open_with(k, prep);
	conn_warm(k);
}

void conn_start(struct conn *k)
{
	conn_start_with(k, NULL);
}

void conn_proof(struct conn *k)
{
	struct pair_info info;
	uint64_t ring;

	if (!env.paired)
		return;
	if (pairs_find(k->cookie[0], k->cookie[1], &info)) {
		proof_record(false, 0, 0);
		return;
	}
	ring = info.tx_ring[0] + info.tx_ring[1];
	proof_record(true, ring - k->ring_base, info.tx_tcp[0] + info.tx_tcp[1]);
	k->ring_base = ring;
}

void conn_end(struct conn *k)
{
	conn_proof(k);
	close(k->a);
	close(k->b);
}

/* So that what plain TCP takes in does not depend on its tuning. */
void prep_big_buffers(int fd, bool listener)
{
	int size = 4 * MIB;

	(void)listener;
	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)));
}

void arrive(int fd, int n)
{
	int have = 0;

	where("waiting for %d bytes to arrive", n);
	for (;;) {
		MUST(ioctl(fd, FIONREAD, &have));
		if (have >= n)
			return;
		sched_yield();
	}
}

void arrive_fin(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	where("waiting for the FIN to arrive");
	MUST(poll(&p, 1, -1));
}

void arrive_err(int fd)
{
	struct pollfd p = { .fd = fd };

	where("waiting for an error or a hang-up");
	MUST(poll(&p, 1, -1));
}

void arrive_state(int fd, int state)
{
	struct tcp_info info;
	socklen_t len;

	where("waiting for TCP state %d", state);
	do {
		len = sizeof(info);
		sched_yield();
		MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
	} while (info.tcpi_state != state);
}

int poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDNORM |
			    POLLRDBAND | POLLWRNORM | POLLWRBAND | POLLRDHUP };

	MUST(poll(&p, 1, 0));
	return p.revents;
}

void nonblock(int fd, bool on)
{
	int fl = MUST(fcntl(fd, F_GETFL));

	MUST(fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK));
}

void reset_on_close(int fd)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };

	MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
}

static unsigned char pattern(uint64_t pos)
{
	return ((pos >> 3) * 0x9e3779b97f4a7c15ULL + pos * 29) >> 13;
}

void fill(void *buf, size_t len, uint64_t pos)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = pattern(pos + i);
}

void *filled(size_t len)
{
	void *buf = malloc(len);

	if (!buf)
		fail("no memory");
	fill(buf, len, 0);
	return buf;
}

bool is_pattern(const void *buf, size_t len, uint64_t pos)
{
	const unsigned char *p = buf;

	for (size_t i = 0; i < len; i++) {
		if (p[i] != pattern(pos + i))
			return false;
	}
	return true;
}

uint64_t sum(const void *buf, size_t len)
{
	const unsigned char *p = buf;
	uint64_t h = 0xcbf29ce484222325ULL;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3ULL;
	return h;
}

long send_pattern(int fd, size_t len, uint64_t *pos, int flags)
{
	char *buf = malloc(len);
	long r;

	fill(buf, len, *pos);
	r = send(fd, buf, len, flags);
	if (r > 0)
		*pos += r;
	free(buf);
	return r;
}

/* Returns how many bytes went before the socket would block, at most @limit. */
static bool in_flight(int fd)
{
	struct tcp_info i = {};
	socklen_t len = sizeof(i);

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len));
	return i.tcpi_unacked;
}

/* Until it is full for good: what is in flight at the first EAGAIN makes room when
 * it is acknowledged. A peer that had to drop some of it may never do so.
 */
long send_until_eagain(int fd, uint64_t *pos, size_t limit)
{
	size_t total = 0;
	bool settled = false;

	where("sending until EAGAIN");
	while (total < limit) {
		long r = send_pattern(fd, 16 * KIB, pos, MSG_DONTWAIT);

		if (r < 0 && errno == EAGAIN) {
			if (settled)
				break;
			for (int i = 0; i < 1000 && in_flight(fd); i++)
				usleep(1000);
			settled = true;
			continue;
		}
		if (r <= 0)
			fail("send until EAGAIN: %s", strerror(errno));
		settled = false;
		total += r;
	}
	return total;
}

long recv_pattern(int fd, size_t len, uint64_t *pos)
{
	static const size_t chunk = 64 * KIB;
	char *buf = malloc(chunk);
	size_t total = 0;

	while (total < len) {
		size_t want = len - total < chunk ? len - total : chunk;
		long r = recv(fd, buf, want, 0);

		if (r < 0)
			fail("receiving the pattern at %zu: %s", total, strerror(errno));
		if (!r)
			break;
		if (!is_pattern(buf, r, *pos))
			fail("the stream is damaged at byte %llu", (unsigned long long)*pos);
		*pos += r;
		total += r;
	}
	free(buf);
	return total;
}

uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (*s * 0x2545f4914f6cdd1dULL) >> 16;
}
