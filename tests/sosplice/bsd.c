// SPDX-License-Identifier: GPL-2.0
/* A case for each row of so_splice(4)'s DIFFERENCES that no other file has. */
#include <sys/select.h>

#include "sosplice.h"

/* What the source has queued goes on; OpenBSD drops it. */
static void shut_rd(void)
{
	uint64_t taken = 0;
	struct relay r;
	int64_t least;
	int queued;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	splice_on(&r);
	fill(r.c, 0);
	least = socksplice_moved(r.p);
	check(!ioctl(r.p, FIONREAD, &queued) && queued > 0, "no byte waits");
	least += queued;
	shutdown(r.p, SHUT_RD);
	while (!(poll_now(r.p) & POLLRDHUP))	/* hidden until the splice has ended */
		taken += stream_take(r.s, taken);
	check(socksplice_moved(r.p) >= least, "%lld moved, not %lld",
	      (long long)socksplice_moved(r.p), (long long)least);
	stream_read(r.s, taken, socksplice_moved(r.p) - taken);
	check(!so_error(r.p), "an error");
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
}

/* Bytes that only arrive, as the sink is full, do not restart the idle time. */
static void idle_of_full_sink(void)
{
	struct relay r;
	long start;
	int n = 0;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	fill(r.q, 0);
	splice_fds(r.p, r.q, 0, 300);
	for (start = ms(); !(poll_now(r.p) & POLLERR); sleep_ms(20)) {
		check(ms() - start < 10000, "the splice goes on");
		stream_write(r.c, n++, 1);
	}
	check(so_error(r.p) == ETIMEDOUT, "another error");
	check(!socksplice_moved(r.p), "the sink was not full");
}

static int set(int fd, const void *arg, socklen_t len)
{
	return setsockopt(fd, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, arg, len) ? errno : 0;
}

static void lengths(void)
{
	struct splice s[2] = { { .sp_max = 5 } };
	struct relay r;
	socklen_t len;
	int64_t n;
	unsigned int i;

	relay_open(&r, AF_INET, AF_INET);
	s[0].sp_fd = r.q;
	for (i = 1; i < sizeof(s[0]); i++)
		if (i != sizeof(int))
			check(set(r.p, s, i) == EINVAL, "%u bytes", i);
	check(!set(r.p, s, sizeof(int)), "an int");
	check(!set(r.p, NULL, 0), "nothing");
	check(!set(r.p, s, sizeof(s)), "a longer struct");
	stream_write(r.c, 0, 5);
	wait_error(r.p, EFBIG);
	for (len = 0; len < sizeof(n); len++) {
		socklen_t l = len;

		check(getsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &n, &l) &&
		      errno == EINVAL, "%u bytes", len);
	}
}

/* An end by error is EPOLLERR, and readable for select(2) only. */
static void end_in_poll(void)
{
	struct timeval none = {};
	struct relay r;
	fd_set set;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.q, 4, 0);
	stream_write(r.c, 0, 4);
	wait_moved(r.p, 4);
	check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%s", strerror(errno));
	check((poll_now(r.p) & (POLLERR | POLLIN)) == POLLERR, "%x", poll_now(r.p));
	FD_ZERO(&set);
	FD_SET(r.p, &set);
	check(select(r.p + 1, &set, NULL, NULL, &none) == 1, "not readable");
	check(so_error(r.p) == EFBIG && !(poll_now(r.p) & POLLERR), "%x", poll_now(r.p));
}

/* When the count has reached the limit, the splice has ended: the error is there, and source and
 * sink are free. The rounds look at one of these first, in turn.
 */
static void end_with_the_count(void)
{
	struct relay r, other;

	relay_open(&r, AF_INET, AF_INET);
	relay_open(&other, AF_INET, AF_INET);
	for (int i = 0; i < 600; i++) {
		splice_fds(r.p, r.q, 4, 0);
		stream_write(r.c, 0, 4);
		while (socksplice_moved(r.p) != 4)
			;
		if (i % 3 == 0)
			check(so_error(r.p) == EFBIG, "%d: no EFBIG", i);
		if (i % 3 == 1) {
			splice_fds(other.p, r.q, 0, 0);
			check(!socksplice_unsplice(other.p), "%d: %s", i, strerror(errno));
		}
		check(socksplice_unsplice(r.p) && errno == ENOTCONN, "%d: the splice lives", i);
		if (i % 3)
			check(so_error(r.p) == EFBIG, "%d: no EFBIG", i);
	}
}

/* What waits for the sink is counted, and the sink is writable as any socket is. */
static void waiting_bytes(void)
{
	struct relay r;
	uint64_t n;
	int in;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	splice_on(&r);
	check(poll_now(r.q) & POLLOUT, "%x", poll_now(r.q));
	n = fill(r.c, 0);
	check(!ioctl(r.p, FIONREAD, &in) && in > 0, "%d of %llu bytes", in, (unsigned long long)n);
	check(!(poll_now(r.p) & POLLIN), "%x", poll_now(r.p));
	check(!(poll_now(r.q) & POLLOUT), "%x", poll_now(r.q));
	stream_read(r.s, 0, n);
	wait_moved(r.p, n);
	check(!ioctl(r.p, FIONREAD, &in) && !in, "%d", in);
}

const struct sock_case bsd_cases[] = {
	{ "bsd-SHUT_RD", shut_rd },
	{ "bsd-idle-of-full-sink", idle_of_full_sink },
	{ "bsd-lengths", lengths },
	{ "bsd-end-in-poll", end_in_poll },
	{ "bsd-end-with-the-count", end_with_the_count },
	{ "bsd-waiting-bytes", waiting_bytes },
	{ NULL }
};
