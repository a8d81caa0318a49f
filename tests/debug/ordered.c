// SPDX-License-Identifier: GPL-2.0
/* torture: "ordered", with integrity, and the calls that pester it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "torture.h"

struct stream {
	int from, to;
	uint64_t total;
	uint64_t salt;
	atomic_bool *done;
	atomic_bool *given_up;	/* of the connection: a reader has shut down both directions */
};

/* What this network namespace has dropped, and why. */
static void tell_drops(void)
{
	char names[8192], values[8192], *n, *v, *nn, *vv;
	FILE *f = fopen("/proc/net/netstat", "re");

	if (!f)
		return;
	while (fgets(names, sizeof(names), f) && fgets(values, sizeof(values), f)) {
		n = strtok_r(names, " \n", &nn);
		v = strtok_r(values, " \n", &vv);
		while (n && v) {
			if ((strstr(n, "Drop") || strstr(n, "PAWS") || strstr(n, "Abort") ||
			     strstr(n, "Skipped") || strstr(n, "Pruned")) && strcmp(v, "0"))
				printf("#   %s %s\n", n, v);
			n = strtok_r(NULL, " \n", &nn);
			v = strtok_r(NULL, " \n", &vv);
		}
	}
	fclose(f);
}

static void tell_memory(const char *which, int fd)
{
	uint32_t m[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(m);

	getsockopt(fd, SOL_SOCKET, SO_MEMINFO, m, &len);
	printf("#   %s: rmem %u of %u, wmem %u of %u, forward %u, backlog %u, drops %u\n", which,
	       m[SK_MEMINFO_RMEM_ALLOC], m[SK_MEMINFO_RCVBUF], m[SK_MEMINFO_WMEM_QUEUED],
	       m[SK_MEMINFO_SNDBUF], m[SK_MEMINFO_FWD_ALLOC], m[SK_MEMINFO_BACKLOG],
	       m[SK_MEMINFO_DROPS]);
}

/* Of a stream that stands still: where its bytes are. */
static void tell(const char *what, const struct stream *s, uint64_t pos)
{
	struct tcp_info a = { 0 }, b = { 0 };
	socklen_t len = sizeof(a);
	int in = -1, out = -1;

	getsockopt(s->from, IPPROTO_TCP, TCP_INFO, &a, &len);
	len = sizeof(b);
	getsockopt(s->to, IPPROTO_TCP, TCP_INFO, &b, &len);
	ioctl(s->from, TIOCOUTQ, &out);
	ioctl(s->to, FIONREAD, &in);
	bad("ordered: the %s stood still at %llu of %llu; readable %d, unsent %d",
	    what, (unsigned long long)pos, (unsigned long long)s->total, in, out);
	printf("#   from: state %u, notsent %u, unacked %u, backoff %u, rto %u\n", a.tcpi_state,
	       a.tcpi_notsent_bytes, a.tcpi_unacked, a.tcpi_backoff, a.tcpi_rto);
	printf("#   from: sent %llu, acked %llu, window %u; to: state %u, received %llu\n",
	       (unsigned long long)a.tcpi_bytes_sent, (unsigned long long)a.tcpi_bytes_acked,
	       a.tcpi_snd_wnd, b.tcpi_state, (unsigned long long)b.tcpi_bytes_received);
	printf("#   to: rcv_space %u, options %x, rcv_mss %u, rcv_ssthresh %u, last data %u ms ago\n",
	       b.tcpi_rcv_space, b.tcpi_options, b.tcpi_rcv_mss, b.tcpi_rcv_ssthresh,
	       b.tcpi_last_data_recv);
	tell_memory("from", s->from);
	tell_memory("to", s->to);
	tell_drops();
	fflush(stdout);
}

/* Allocations that fail inside a copy look like bad addresses. */
static bool try_again(void)
{
	return errno == EAGAIN || errno == EINTR ||
	       (with_faults && (errno == ENOMEM || errno == ENOBUFS || errno == EFAULT));
}

static uint8_t pattern(uint64_t pos, uint64_t salt)
{
	uint64_t x = (pos >> 3) * 0x9e3779b97f4a7c15ull + salt;

	return (x ^ x >> 29) >> ((pos & 7) * 8);
}

static void *ordered_write(void *arg)
{
	struct stream *s = arg;
	uint8_t *buf = malloc(BUF);
	uint64_t pos = 0;
	int idle = 0;

	reseed(s->salt * 4 + 1);
	while (pos < s->total && idle < 300) {
		uint32_t want = below(4) ? 1 + below(3000) : 1 + below(BUF);
		uint32_t flags = MSG_NOSIGNAL, i;
		ssize_t n;

		if (want > s->total - pos)
			want = s->total - pos;
		for (i = 0; i < want; i++)
			buf[i] = pattern(pos + i, s->salt);
		if (!below(4))
			flags |= MSG_DONTWAIT;
		if (!below(8))
			flags |= MSG_MORE;
		if (below(6)) {
			n = send(s->from, buf, want, flags);
		} else {
			struct iovec v[2] = { { buf, want / 2 },
					      { buf + want / 2, want - want / 2 } };

			n = writev(s->from, v, 2);
		}
		if (n > 0) {
			pos += n;
			idle = 0;
		} else if (n < 0 && try_again()) {
			idle++;
			if (flags & MSG_DONTWAIT)
				poll(&(struct pollfd){ .fd = s->from, .events = POLLOUT }, 1, 20);
		} else {
			if (!atomic_load(s->given_up))
				bad("ordered: send at %llu of %llu: %s", (unsigned long long)pos,
				    (unsigned long long)s->total, n ? strerror(errno) : "0");
			break;
		}
	}
	if (pos < s->total && idle)
		tell("writer", s, pos);
	shutdown(s->from, SHUT_WR);
	free(buf);
	return NULL;
}

static void *ordered_read(void *arg)
{
	struct stream *s = arg;
	uint8_t *buf = malloc(BUF);
	uint64_t pos = 0;
	int idle = 0, pip[2] = { -1, -1 };
	bool spliced = false;
	ssize_t n = 0;

	reseed(s->salt * 4 + 2);
	if (pipe2(pip, O_CLOEXEC))
		pip[0] = -1;
	for (;;) {
		uint32_t want = below(4) ? 1 + below(3000) : 1 + below(BUF);
		ssize_t i;

		spliced = pip[0] >= 0 && !below(4);
		if (spliced) {
			n = splice(s->to, NULL, pip[1], NULL, want > 65536 ? 65536 : want,
				   below(2) ? SPLICE_F_NONBLOCK : 0);
			if (n > 0 && read(pip[0], buf, n) != n)
				bad("ordered: the pipe lost bytes");
			/* TCP's says so, too, where it has no page to copy into
			 * (linear_to_page()): recv(2) knows whether it is the end
			 */
			if (!n && with_faults) {
				n = recv(s->to, buf, 1, MSG_PEEK | MSG_DONTWAIT);
				if (n > 0) {
					atomic_fetch_add(&sh->no_page, 1);
					continue;
				}
			}
		} else {
			n = recv(s->to, buf, want,
				 below(4) ? 0 : below(2) ? MSG_DONTWAIT : MSG_WAITALL);
		}
		if (n == 0)
			break;
		if (n < 0 && try_again()) {
			/* TCP forgets a FIN that it has no memory for */
			if (with_faults && pos == s->total && idle > 20)
				break;
			if (++idle > 600) {
				tell("reader", s, pos);
				break;
			}
			poll(&(struct pollfd){ .fd = s->to, .events = POLLIN }, 1, 20);
			continue;
		}
		if (n < 0 && atomic_load(s->given_up))
			break;
		if (n < 0) {
			bad("ordered: recv at %llu of %llu: %s", (unsigned long long)pos,
			    (unsigned long long)s->total, strerror(errno));
			break;
		}
		idle = 0;
		for (i = 0; i < n; i++)
			if (buf[i] != pattern(pos + i, s->salt)) {
				bad("ordered: wrong byte at %llu of %llu",
				    (unsigned long long)(pos + i), (unsigned long long)s->total);
				goto out;
			}
		pos += n;
	}
	if (pos != s->total && !n && !atomic_load(s->given_up)) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof(info);
		int unread = -1;

		getsockopt(s->to, IPPROTO_TCP, TCP_INFO, &info, &len);
		ioctl(s->to, FIONREAD, &unread);
		bad("ordered: the end at %llu of %llu, by %s; state %u, unread %d",
		    (unsigned long long)pos, (unsigned long long)s->total,
		    spliced ? "splice" : "recv", info.tcpi_state, unread);
	}
	atomic_fetch_add(&sh->bytes, pos);
out:
	/* A writer must not wait for a reader that gave up. The other direction ends there,
	 * too, and has nothing to complain of.
	 */
	if (pos != s->total) {
		atomic_store(s->given_up, true);
		shutdown(s->to, SHUT_RDWR);
	}
	atomic_store(s->done, true);
	if (pip[0] >= 0) {
		close(pip[0]);
		close(pip[1]);
	}
	free(buf);
	return NULL;
}

void pester(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	char buf[4096];
	int v = below(2);

	switch (below(12)) {
	case 0:
		ioctl(fd, FIONREAD, &v);
		break;
	case 1:
		recv(fd, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT);
		break;
	case 2:
		poll(&(struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT }, 1, 5);
		break;
	case 3:
		getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
		break;
	case 4:
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, sizeof(v));
		break;
	case 5:
		v *= 40;
		setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &v, sizeof(v));
		break;
	case 6:
		v = 1 + below(64) * v;
		setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof(v));
		break;
	case 7:
		/* Where acknowledgements fail, too, TCP shuts its window for good behind segments
		 * that are out of order and larger than this: until the sender's next
		 * retransmission, which may be a minute away.
		 */
		v = with_faults ? 131072 : 4096 << below(6);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, sizeof(v));
		break;
	case 8:
		v = 4096 << below(6);
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v));
		break;
	case 9:
		v = !below(8);
		setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &v, sizeof(v));
		break;
	case 10:
		if (!below(20))
			setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3);
		break;
	case 11:
		v = dup(fd);
		if (v >= 0)
			close(v);
		break;
	}
}

struct pest {
	int fd[2];
	uint64_t salt;
	atomic_bool *done;	/* of both streams */
};

static void *ordered_pester(void *arg)
{
	struct pest *p = arg;

	reseed(p->salt);
	while (!atomic_load(&p->done[0]) || !atomic_load(&p->done[1])) {
		pester(p->fd[below(2)]);
		if (!below(4))
			usleep(1000);
	}
	return NULL;
}

void ordered(uint64_t salt)
{
	atomic_bool done[2] = { false, false }, given_up = false;
	struct stream s[2];
	struct pest p = { .salt = salt * 4 + 3, .done = done };
	pthread_t t[6];
	int fd[2], i, n = 0;

	if (!connection(fd))
		return;
	p.fd[0] = fd[0];
	p.fd[1] = fd[1];
	for (i = 0; i < 2; i++)
		s[i] = (struct stream){ .from = fd[i], .to = fd[!i], .done = &done[i],
					.given_up = &given_up,
					.total = 1 + below(below(8) ? 200000 : 2000000),
					.salt = salt * 2 + i };
	for (i = 0; i < 2; i++) {
		pthread_create(&t[n++], NULL, ordered_read, &s[i]);
		pthread_create(&t[n++], NULL, ordered_write, &s[i]);
	}
	pthread_create(&t[n++], NULL, ordered_pester, &p);
	for (i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	close(fd[0]);
	close(fd[1]);
}
