// SPDX-License-Identifier: GPL-2.0
/* A splice moves every byte once and in order, in every state in which it may begin. */
#include <netinet/tcp.h>
#include <sched.h>

#include "sosplice.h"

#define MIB	(1 << 20)

struct stream {
	pthread_t thread;
	int fd;
	uint64_t pos;
	size_t len;
};

static void *writing(void *arg)
{
	struct stream *s = arg;

	stream_write(s->fd, s->pos, s->len);
	return NULL;
}

static void write_start(struct stream *s, int fd, uint64_t pos, size_t len)
{
	*s = (struct stream){ .fd = fd, .pos = pos, .len = len };
	check(!pthread_create(&s->thread, NULL, writing, s), "no thread");
}

static void write_end(struct stream *s)
{
	pthread_join(s->thread, NULL);
}

/* Both the socket's count and the module's counter show the bytes that the splice moved. */
static void moves(int client_family, int server_family)
{
	uint64_t before = counter("so_splice_bytes");
	struct stream w;
	struct relay r;

	relay_open(&r, client_family, server_family);
	splice_on(&r);
	write_start(&w, r.c, 0, 3 * MIB + 17);
	stream_read(r.s, 0, 3 * MIB + 17);
	write_end(&w);
	wait_moved(r.p, 3 * MIB + 17);
	check(wait_counter("so_splice_bytes", before + 3 * MIB + 17) == before + 3 * MIB + 17,
	      "%llu", (unsigned long long)(counter("so_splice_bytes") - before));
}

static void v4(void)
{
	moves(AF_INET, AF_INET);
}

static void v6(void)
{
	moves(AF_INET6, AF_INET6);
}

static void mixed(void)
{
	moves(AF_INET, AF_INET6);
	moves(AF_INET6, AF_INET);
}

/* The second connection is in another network namespace. That ends with the process. */
static void namespaces(void)
{
	struct relay r;

	connect_pair(AF_INET, &r.c, &r.p);
	other_namespace();
	connect_pair(AF_INET, &r.q, &r.s);
	splice_on(&r);
	stream_write(r.c, 0, 100000);
	stream_read(r.s, 0, 100000);
	wait_moved(r.p, 100000);
}

static void both_directions(void)
{
	struct stream a, b;
	struct relay r;
	pid_t pid;
	int status;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	splice_fds(r.q, r.p, 0, 0);
	write_start(&a, r.c, 0, 2 * MIB);
	write_start(&b, r.s, 1, 2 * MIB);
	pid = fork();
	if (!pid) {
		alarm(50);
		stream_read(r.c, 1, 2 * MIB);
		_exit(0);
	}
	stream_read(r.s, 0, 2 * MIB);
	waitpid(pid, &status, 0);
	check(!status, "the other direction");
	write_end(&a);
	write_end(&b);
	wait_moved(r.p, 2 * MIB);
	wait_moved(r.q, 2 * MIB);
}

/* Bytes that the source already holds when it is spliced go first. */
static void queued_before(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	stream_write(r.c, 0, 50000);
	splice_on(&r);
	stream_write(r.c, 50000, 50000);
	stream_read(r.s, 0, 100000);
	wait_moved(r.p, 100000);
}

/* Bytes for which the sink has no room stay in the source, for the application. */
static void full_sink(void)
{
	uint64_t sent, got;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	splice_on(&r);
	sent = fill(r.c, 0);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	got = socksplice_moved(r.p);
	check(got && got < sent, "%llu of %llu moved", (unsigned long long)got,
	      (unsigned long long)sent);
	shutdown(r.q, SHUT_WR);
	stream_read(r.s, 0, got);
	check(!read(r.s, &sent, 1), "more than the count says");
	stream_read(r.p, got, sent - got);
}

/* While spliced, the source is not readable, even with a full sink: epoll shows nothing for a
 * second. Once the splice has ended, the source is readable.
 */
static void not_readable(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	int ep = epoll_create1(0), n;
	struct relay r;
	char c;

	relay_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 16384, 0);
	set_buf(r.s, 0, 16384);
	epoll_ctl(ep, EPOLL_CTL_ADD, r.p, &ev);
	splice_on(&r);
	fill(r.c, 0);
	n = epoll_wait(ep, &ev, 1, 1000);
	check(!n, "events %x", ev.events);
	check(!(poll_now(r.p) & POLLIN), "%x", poll_now(r.p));
	check(recv(r.p, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "%s", strerror(errno));
	check(recv(r.p, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN,
	      "%s", strerror(errno));
	/* The splice has not reached the end of the stream, so poll does not show it. */
	shutdown(r.c, SHUT_WR);
	n = epoll_wait(ep, &ev, 1, 300);
	check(!n, "events %x", ev.events);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	n = epoll_wait(ep, &ev, 1, 1000);
	check(n == 1 && ev.events & EPOLLIN, "%d events", n);
}

static void *reading(void *arg)
{
	struct stream *s = arg;

	stream_read(s->fd, s->pos, s->len);
	return NULL;
}

static void *splicing(void *arg)
{
	struct stream *s = arg;
	int p[2];
	ssize_t n;

	check(!pipe(p), "%s", strerror(errno));
	n = splice(s->fd, NULL, p[1], NULL, s->len, 0);
	check(n == (ssize_t)s->len, "%zd: %s", n, strerror(errno));
	stream_read(p[0], s->pos, s->len);
	return NULL;
}

/* A reader falls asleep before the splice or during it. It gets none of the splice's bytes, and
 * gets the bytes that come after the splice.
 */
static void reader_waits(void *(*how)(void *), bool before)
{
	struct stream rd;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	if (!before)
		splice_on(&r);
	rd = (struct stream){ .fd = r.p, .pos = 20000, .len = 100 };
	pthread_create(&rd.thread, NULL, how, &rd);
	sleep_ms(200);		/* if it is not asleep yet, it has less to withstand */
	if (before)
		splice_on(&r);
	stream_write(r.c, 0, 20000);
	stream_read(r.s, 0, 20000);
	wait_moved(r.p, 20000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_write(r.c, 20000, 100);
	pthread_join(rd.thread, NULL);
}

/* A writer sleeps in splice(2) until the source has room for its bytes. It is no reader. The
 * splice begins, moves and ends beside it, and the writer goes on afterwards.
 */
static void pump_waits(void)
{
	static char buf[PUMP_BYTES];
	struct relay r;
	uint64_t filled;

	relay_open(&r, AF_INET, AF_INET);
	filled = pump_start(&r);
	splice_on(&r);
	stream_write(r.c, 0, 5000);
	stream_read(r.s, 0, 5000);
	wait_moved(r.p, 5000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	/* The splice must not end with an error, since the writer would consume that. */
	splice_on(&r);
	stream_write(r.c, 5000, 5000);
	stream_read(r.s, 5000, 5000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	stream_read(r.c, 0, filled);
	check(recv(r.c, buf, sizeof(buf), MSG_WAITALL) == sizeof(buf), "%s", strerror(errno));
}

static void reader_before(void)
{
	reader_waits(reading, true);
}

static void splicer_before(void)
{
	reader_waits(splicing, true);
}

static void reader_within(void)
{
	reader_waits(reading, false);
}

static void splicer_within(void)
{
	reader_waits(splicing, false);
}

struct many {
	int fd;
	int received;		/* messages of the call; stored with release, loaded with acquire */
	size_t bytes;
};

static void *receiving_many(void *arg)
{
	struct many *m = arg;
	char buf[2][16];
	struct iovec iov[2] = { { buf[0], sizeof(buf[0]) }, { buf[1], sizeof(buf[1]) } };
	struct mmsghdr v[2] = { { .msg_hdr = { .msg_iov = &iov[0], .msg_iovlen = 1 } },
				{ .msg_hdr = { .msg_iov = &iov[1], .msg_iovlen = 1 } } };
	int n = recvmmsg(m->fd, v, 2, 0, NULL), i;

	for (i = 0; i < n; i++)
		m->bytes += v[i].msg_len;
	__atomic_store_n(&m->received, n, __ATOMIC_RELEASE);
	return NULL;
}

/* If recvmmsg(2) is interrupted after its first message, the socket keeps the error. So the splice
 * does not interrupt this reader. The reader may take the first bytes, and the splice goes on.
 */
static void recvmmsg_within(void)
{
	struct many m = { 0 };
	size_t taken = 0;
	pthread_t t;
	struct relay r;
	int left = 1;

	relay_open(&r, AF_INET, AF_INET);
	m.fd = r.p;
	check(!pthread_create(&t, NULL, receiving_many, &m), "no thread");
	stream_write(r.c, 0, 1);
	while (left)
		check(!ioctl(r.p, FIONREAD, &left), "%s", strerror(errno));
	sleep_ms(200);		/* if it is not asleep again, it has less to withstand */
	splice_on(&r);
	stream_write(r.c, 1, 1000);
	while (taken + (__atomic_load_n(&m.received, __ATOMIC_ACQUIRE) ? m.bytes - 1 : 0) < 1000) {
		char buf[1000];
		ssize_t n = recv(r.s, buf, sizeof(buf), MSG_DONTWAIT);

		if (n > 0)
			taken += n;
		else
			sleep_ms(10);
	}
	check(!so_error(r.p), "an error");
	shutdown(r.c, SHUT_WR);
	pthread_join(t, NULL);
	check(taken + m.bytes == 1001, "%zu and %zu bytes", taken, m.bytes);
}

/* SO_RCVTIMEO also limits the wait of a reader of a spliced source. */
static void reader_timeout(void)
{
	struct timeval t = { .tv_usec = 100000 };
	struct relay r;
	char c;

	relay_open(&r, AF_INET, AF_INET);
	setsockopt(r.p, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	splice_on(&r);
	check(read(r.p, &c, 1) < 0 && errno == EAGAIN, "%s", strerror(errno));
}

/* With SO_RCVLOWAT of 64K on the source, the splice still forwards one byte. Afterwards the mark
 * is 64K again.
 */
static void low_water_mark(void)
{
	int mark = 65536, got;
	socklen_t len = sizeof(got);
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	setsockopt(r.p, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));
	splice_on(&r);
	stream_write(r.c, 0, 1);
	stream_read(r.s, 0, 1);
	setsockopt(r.p, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));
	stream_write(r.c, 1, 1);
	stream_read(r.s, 1, 1);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(!getsockopt(r.p, SOL_SOCKET, SO_RCVLOWAT, &got, &len) && got == mark, "%d", got);
	stream_write(r.c, 2, 1);
	check(!(poll_now(r.p) & POLLIN), "the mark is gone");
}

/* Splices begin and end under load, and the proxy reads between them. Every byte arrives once and
 * in order, moved by a splice or copied by the proxy.
 */
static void storm(void)
{
	const size_t len = 4 * MIB;
	struct stream w, rd;
	uint8_t buf[8192];
	uint64_t spliced = 0, copied = 0;
	struct relay r;
	int i = 2;	/* the first splice has a small limit, so that bytes are left to be read */

	relay_open(&r, AF_INET, AF_INET);
	write_start(&w, r.c, 0, len);
	rd = (struct stream){ .fd = r.s, .len = len };
	pthread_create(&rd.thread, NULL, reading, &rd);
	while (spliced + copied < len) {
		ssize_t n;

		splice_fds(r.p, r.q, i % 3 == 2 ? 30000 + i : 0, 0);
		usleep(i % 7 * 1000);
		if (socksplice_unsplice(r.p))
			check(errno == ENOTCONN && so_error(r.p) == EFBIG, "%s", strerror(errno));
		spliced += socksplice_moved(r.p);
		if (spliced + copied == len)
			break;
		n = recv(r.p, buf, sizeof(buf), i % 4 == 2 ? 0 : MSG_DONTWAIT);
		if (n > 0) {
			copied += n;
			check(send(r.q, buf, n, MSG_NOSIGNAL) == n, "%s", strerror(errno));
		}
		i++;
	}
	pthread_join(rd.thread, NULL);
	write_end(&w);
	check(spliced > len / 10 && copied, "%llu spliced, %llu copied",
	      (unsigned long long)spliced, (unsigned long long)copied);
}

/* Spins on CPU @arg until the process ends. */
static void *spinning(void *arg)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((long)arg, &cpus);
	check(!sched_setaffinity(0, sizeof(cpus), &cpus), "%s", strerror(errno));
	for (;;)
		;
	return NULL;
}

/* Other tasks want the CPUs. A user's splices wait once they have used their share, and lose no
 * bytes.
 */
static void share_of_a_cpu(void)
{
	const long n = sysconf(_SC_NPROCESSORS_ONLN);
	const uint64_t before = counter("so_splice_throttled");
	struct stream w;
	struct relay r;
	pthread_t t;
	long i;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	for (i = 0; i < n; i++)
		check(!pthread_create(&t, NULL, spinning, (void *)i), "no thread");
	set_switch("splice_cpu_percent", "1");
	write_start(&w, r.c, 0, 8 * MIB);
	stream_read(r.s, 0, 8 * MIB);
	write_end(&w);
	set_switch("splice_cpu_percent", "75");
	wait_moved(r.p, 8 * MIB);
	check(counter("so_splice_throttled") > before, "never");
}

static void *draining(void *arg)
{
	static __thread char buf[3000];
	struct stream *s = arg;
	ssize_t n;

	while ((n = recv(s->fd, buf, sizeof(buf), 0)) > 0)
		__atomic_add_fetch(&s->pos, n, __ATOMIC_SEQ_CST);
	check(!n, "%s", strerror(errno));
	__atomic_store_n(&s->len, 0, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A thread that reads the source all the time takes the lock at any point of a splice. Each byte
 * goes to the thread or to the sink, never to both.
 */
static void reader_races(void)
{
	const uint64_t len = 2 * MIB;
	struct stream w, local, server;
	uint64_t spliced = 0;
	struct relay r;
	int i = 0;

	relay_open(&r, AF_INET, AF_INET);
	local = (struct stream){ .fd = r.p, .len = 1 };
	server = (struct stream){ .fd = r.s, .len = 1 };
	pthread_create(&local.thread, NULL, draining, &local);
	pthread_create(&server.thread, NULL, draining, &server);
	write_start(&w, r.c, 0, len);
	while (spliced + __atomic_load_n(&local.pos, __ATOMIC_SEQ_CST) < len) {
		splice_on(&r);
		usleep(i++ % 5 * 500);
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		spliced += socksplice_moved(r.p);
		usleep(i % 3 * 300);
	}
	write_end(&w);
	shutdown(r.c, SHUT_WR);
	pthread_join(local.thread, NULL);
	shutdown(r.q, SHUT_WR);
	pthread_join(server.thread, NULL);
	check(spliced + local.pos == len && server.pos == spliced,
	      "%llu spliced, %llu to the server, %llu read", (unsigned long long)spliced,
	      (unsigned long long)server.pos, (unsigned long long)local.pos);
}

/* An urgent byte is not in the stream. With SO_OOBINLINE the splice sends it on as urgent. */
static void urgent(void)
{
	struct relay r;
	int one = 1;
	char c = 0;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	check(send(r.c, "!", 1, MSG_OOB) == 1, "%s", strerror(errno));
	stream_write(r.c, 1000, 1000);
	stream_read(r.s, 0, 2000);
	check(recv(r.p, &c, 1, MSG_OOB) == 1 && c == '!', "%s", strerror(errno));
	stream_write(r.c, 2000, 1000);
	stream_read(r.s, 2000, 1000);
	check(recv(r.p, &c, 1, MSG_OOB) == -1 && errno == EINVAL, "read twice");

	relay_open(&r, AF_INET, AF_INET);
	setsockopt(r.p, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	check(send(r.c, "!", 1, MSG_OOB) == 1, "%s", strerror(errno));
	stream_write(r.c, 1000, 1000);
	stream_read(r.s, 0, 2000);
	check(recv(r.s, &c, 1, MSG_OOB) == 1 || errno == EINVAL, "%s", strerror(errno));
}

/* A socket spliced into itself echoes. */
static void echo(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	splice_fds(r.p, r.p, 0, 0);
	stream_write(r.c, 0, 100000);
	stream_read(r.c, 0, 100000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	splice_fds(r.p, r.p, 0, 0);
	stream_write(r.c, 0, 1000);
	stream_read(r.c, 0, 1000);
}

/* Small writes with pauses between them, and big ones: boundaries do not matter. */
static void sizes(void)
{
	static const int size[] = { 1, 2, 3, 1447, 1448, 1449, 4095, 4096, 4097, 65535, 65537 };
	struct relay r;
	uint64_t pos = 0;
	size_t i;

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	for (i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		stream_write(r.c, pos, size[i]);
		stream_read(r.s, pos, size[i]);
		pos += size[i];
	}
	wait_moved(r.p, pos);
}

/* The splice belongs to the sockets: it goes on in another process after this one has ended. */
static void survives_fork(void)
{
	struct relay r;
	int status;

	relay_open(&r, AF_INET, AF_INET);
	if (!fork()) {
		splice_on(&r);
		_exit(0);
	}
	wait(&status);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
}

static void send_fd(int to, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(fd))] = {};
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	check(sendmsg(to, &msg, 0) == 1, "%s", strerror(errno));
}

static int receive_fd(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	check(recvmsg(from, &msg, 0) == 1, "%s", strerror(errno));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Both sockets are passed to a process that executes another program, and are closed here. The
 * splice lives as long as that program.
 */
static void survives_passing_and_exec(void)
{
	int chan[2], hold[2];
	struct relay r;
	pid_t pid;
	char c;

	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, chan) && !pipe(hold), "%s", strerror(errno));
	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	pid = fork();
	if (!pid) {
		close(r.c);
		close(r.p);
		close(r.q);
		close(r.s);
		close(hold[1]);
		receive_fd(chan[1]);
		receive_fd(chan[1]);
		check(write(chan[1], "", 1) == 1, "%s", strerror(errno));
		dup2(hold[0], 0);
		execlp("cat", "cat", NULL);
		die("no cat: %s", strerror(errno));
	}
	send_fd(chan[0], r.p);
	send_fd(chan[0], r.q);
	close(r.p);
	close(r.q);
	check(read(chan[0], &c, 1) == 1, "%s", strerror(errno));
	stream_write(r.c, 0, 100000);
	stream_read(r.s, 0, 100000);
	close(hold[1]);
	waitpid(pid, NULL, 0);
	check(!read(r.s, &c, 1), "the sink is still open");
	check(read(r.c, &c, 1) <= 0, "the source is still open");
}

/* A process and its namespace end while its splices are full in both directions. */
static void namespace_removed(void)
{
	int i, ready[2];

	for (i = 0; i < 8; i++) {
		struct relay r;
		pid_t pid;
		char c;

		check(!pipe(ready), "%s", strerror(errno));
		pid = fork();
		if (!pid) {
			other_namespace();
			relay_open(&r, AF_INET, i % 2 ? AF_INET6 : AF_INET);
			splice_on(&r);
			splice_fds(r.q, r.p, 0, 0);
			if (i & 2)
				fill(r.c, 0);
			check(write(ready[1], "", 1) == 1, "%s", strerror(errno));
			for (;;) {
				send(r.c, &r, sizeof(r), MSG_DONTWAIT);
				send(r.s, &r, sizeof(r), MSG_DONTWAIT);
			}
		}
		close(ready[1]);
		check(read(ready[0], &c, 1) == 1, "the other process failed");
		close(ready[0]);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	while (counter("so_splices_live"))
		sleep_ms(10);
}

const struct sock_case data_cases[] = {
	{ "moves-IPv4", v4 },
	{ "moves-IPv6", v6 },
	{ "moves-between-families", mixed },
	{ "moves-between-namespaces", namespaces },
	{ "moves-both-directions", both_directions },
	{ "queued-before-the-splice", queued_before },
	{ "full-sink-leaves-bytes-in-source", full_sink },
	{ "source-is-not-readable", not_readable },
	{ "reader-asleep-before", reader_before },
	{ "splice(2)-asleep-before", splicer_before },
	{ "splice(2)-writer-asleep", pump_waits },
	{ "reader-asleep-within", reader_within },
	{ "splice(2)-asleep-within", splicer_within },
	{ "recvmmsg(2)-within", recvmmsg_within },
	{ "reader-timeout", reader_timeout },
	{ "SO_RCVLOWAT", low_water_mark },
	{ "storm", storm },
	{ "share-of-a-CPU", share_of_a_cpu },
	{ "reader-races", reader_races },
	{ "urgent", urgent },
	{ "echo", echo },
	{ "sizes", sizes },
	{ "survives-fork", survives_fork },
	{ "survives-passing-and-exec", survives_passing_and_exec },
	{ "namespace-removed", namespace_removed },
	{}
};
