// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that read, and began before the connection was there: they are inside TCP's own
 * functions, and take what TCP has next, past any ring. And which readers can be told from
 * those, so that the peer may use its ring: by the pair's counters.
 */
#include "behave.h"
#include "netns.h"

#include <linux/filter.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SYN_RECV	3	/* as the kernel counts */

/* Whether the server's end of a connection to @port is in SYN_RECV. */
static bool has_sent_syn_ack(int port)
{
	char line[512];
	bool found = false;
	unsigned int state, at;
	FILE *f;

	netns_enter(true);
	f = fopen(env.family == 4 ? "/proc/thread-self/net/tcp" : "/proc/thread-self/net/tcp6", "r");
	netns_leave();
	if (!f)
		fail("/proc/net/tcp: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*[^:]: %*[^:]:%x %*s %x", &at, &state) == 2)
			found |= at == (unsigned int)port && state == SYN_RECV;
	}
	fclose(f);
	return found;
}

/* Until the client of @l has its SYN-ACK, if only in the backlog of its socket. */
static void arrive_syn_ack(int l)
{
	socklen_t len;
	struct sockaddr_storage ss = listener_addr(l, &len);

	where("waiting for the handshake");
	/* the port stands at the same place in both families */
	while (!has_sent_syn_ack(ntohs(((struct sockaddr_in *)&ss)->sin_port)))
		sched_yield();
}

/* Bytes of the client's receive direction, by ring. */
static uint64_t ring_bytes(const struct conn *k)
{
	struct pair_info info;

	if (pairs_find(k->cookie[0], k->cookie[1], &info))
		fail("the connection was not paired");
	return info.tx_ring[1];		/* the active end comes first */
}

/* Two bytes from the server: whether the second went by ring is what the first read decided,
 * which @read made.
 */
static void expect_ring(const struct conn *k, bool ring, const char *who)
{
	uint64_t before;
	char b[8];

	if (!env.paired || env.storm) {
		MUST(send(k->server, "x", 1, 0));
		say("%s: %ld", who, recv(k->client, b, 1, 0));
		return;
	}
	before = ring_bytes(k);
	MUST(send(k->server, "x", 1, 0));
	say("%s: %ld", who, recv(k->client, b, 1, 0));
	if ((ring_bytes(k) != before) != ring)
		fail("%s: %s by ring", who, ring ? "not" : "sent");
}

/* The first byte goes by TCP, as nobody has read yet. */
static void first_read(const struct conn *k)
{
	char b[8];

	MUST(send(k->server, "x", 1, 0));
	MUST(recv(k->client, b, 1, 0));
}

static void *idle_thread(void *arg)
{
	char c;

	if (read(*(int *)arg, &c, 1) < 0)
		fail("pipe");
	return NULL;
}

static void is_alone(void)
{
	struct slow s;
	struct conn k;

	slow_connect(&s);
	slow_accept(&s, &k);
	first_read(&k);
	expect_ring(&k, true, "one task, one descriptor");
	conn_end(&k);
}

static void is_alone_among_threads(void)
{
	pthread_t t[3];
	struct slow s;
	struct conn k;
	int p[2];

	MUST(pipe(p));
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, idle_thread, &p[0]);
	slow_connect(&s);
	slow_accept(&s, &k);
	first_read(&k);
	expect_ring(&k, true, "threads that do something else");
	close(p[1]);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	conn_end(&k);
}

static void has_a_second_descriptor(void)
{
	struct slow s;
	struct conn k;
	int d;

	slow_connect(&s);
	slow_accept(&s, &k);
	d = MUST(dup(k.client));
	first_read(&k);
	expect_ring(&k, false, "two descriptors");
	close(d);
	first_read(&k);
	expect_ring(&k, true, "one again");
	conn_end(&k);
}

static void has_a_child(void)
{
	struct slow s;
	struct conn k;
	int p[2], pid;
	char c;

	slow_connect(&s);
	slow_accept(&s, &k);
	MUST(pipe(p));
	pid = MUST(fork());
	if (!pid) {
		close(p[1]);
		_exit(read(p[0], &c, 1) != 0);
	}
	first_read(&k);
	expect_ring(&k, false, "a child has the descriptor");
	close(p[1]);
	MUST(waitpid(pid, NULL, 0));
	first_read(&k);
	expect_ring(&k, true, "it is gone");
	conn_end(&k);
}

static void reads_by_io_uring(void)
{
	struct slow s;
	struct conn k;
	char b[8];

	slow_connect(&s);
	slow_accept(&s, &k);
	MUST(send(k.server, "x", 1, 0));
	say("io_uring: %ld", uring_recv(k.client, b, 1));
	MUST(send(k.server, "x", 1, 0));
	say("io_uring: %ld", uring_recv(k.client, b, 1));
	if (env.paired && !env.storm && ring_bytes(&k))
		fail("sent by ring to a reader that may not be alone");
	conn_end(&k);
}

/* A connect(2) that ends the handshake itself knows that it is alone: what its process does
 * with the descriptor later does not matter. Under load a handshake may be over later.
 */
static void connects_alone(void)
{
	int by_ring = 0;
	char b[8];

	for (int i = 0; i < 8; i++) {
		struct conn k;
		int d, pid, status;

		conn_open(&k);
		d = MUST(dup(k.client));
		MUST(send(k.server, "x", 1, 0));
		pid = MUST(fork());
		if (!pid)	/* the first to read, while its parent has the socket, too */
			_exit(uring_recv(d, b, 1) != 1);
		MUST(waitpid(pid, &status, 0));
		MUST(send(k.server, "x", 1, 0));
		MUST(recv(k.client, b, 1, 0));
		if (env.paired && !env.storm)
			by_ring += ring_bytes(&k) != 0;
		close(d);
		conn_end(&k);
	}
	if (env.paired && !env.storm && !by_ring)
		fail("of eight connections none used its ring");
	say("eight connections");
}

/* The sender of the urgent byte is in TCP's own function. No ring byte may stand behind the
 * mark.
 */
static void sends_urgent(void)
{
	struct pollfd p = { .events = POLLPRI };
	struct pair_info info;
	struct slow s;
	struct call c;
	struct conn k;
	int at = -1;
	char b[16];

	slow_connect(&s);
	call_start(&c, SYS_sendto, (long)s.c, (long)"aX", 2L, (long)MSG_OOB, 0L, 0L);
	call_blocked(&c);
	slow_accept(&s, &k);
	where("the call from before the handshake");
	SAY(call_end(&c));
	p.fd = k.server;
	MUST(poll(&p, 1, -1));
	SAY_BUF(recv(k.server, b, 16, 0), b);
	SAY(send(k.client, "bc", 2, 0));
	where("two bytes behind the mark");
	while (recv(k.server, b, 16, MSG_PEEK | MSG_DONTWAIT) < 2)
		;
	if (env.paired && !pairs_find(k.cookie[0], k.cookie[1], &info) &&
	    info.tx_ring[0] + info.tx_ring[1])
		fail("sent by ring behind the mark");
	MUST(ioctl(k.server, SIOCATMARK, &at));
	say("at mark %d", at);
	SAY_BUF(recv(k.server, b, 1, MSG_OOB), b);
	SAY_BUF(recv(k.server, b, 16, 0), b);
	close(k.client);
	close(k.server);
}

/* It waits in a page fault before it takes the socket's lock, on no queue. */
static void zerocopy_receive(void)
{
	struct tcp_zerocopy_receive zc = {};
	char got[64] = {}, b[64];
	socklen_t len = sizeof(zc);
	struct uffd u;
	struct call c;
	struct slow s;
	struct conn k;

	slow_connect(&s);
	uffd_open(&u);
	call_start(&c, SYS_getsockopt, (long)s.c, (long)IPPROTO_TCP, (long)TCP_ZEROCOPY_RECEIVE,
		   (long)u.page, (long)&len, 0L);
	uffd_caught(&u);
	slow_accept(&s, &k);
	SAY(recv(k.client, b, 64, MSG_DONTWAIT));
	SAY(send(k.server, "first ", 6, 0));
	SAY(send(k.server, "second", 6, MSG_ZEROCOPY));
	zc.copybuf_address = (uint64_t)(unsigned long)got;
	zc.copybuf_len = sizeof(got);
	zc.length = 1;
	uffd_release_bytes(&u, &zc, sizeof(zc));
	where("the call from before the handshake");
	SAY(call_end(&c));
	memcpy(&zc, u.page, sizeof(zc));
	say_bytes("it has got", zc.copybuf_len, got);
	conn_end(&k);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
}

static volatile int hog_runs;	/* 1 while it does, 2 to end it */

/* Keeps CPU 1 from threads that are woken there. */
static void *hog(void *arg)
{
	struct sched_param p = { .sched_priority = 50 };

	(void)arg;
	pin(1);
	MUST(sched_setscheduler(0, SCHED_FIFO, &p));
	hog_runs = 1;
	while (hog_runs == 1)
		;
	return NULL;
}

struct owner {
	int fd;
	void *page;
	pthread_t thread;
};

/* Owns the socket's lock while it waits for the page. */
static void *attach_filter(void *arg)
{
	const struct owner *o = arg;
	struct sock_fprog f = { .len = 1, .filter = o->page };

	pin(0);
	setsockopt(o->fd, SOL_SOCKET, SO_ATTACH_FILTER, &f, sizeof(f));	/* a bad one */
	return NULL;
}

/* A connection whose SYN is on its way for a while. A SYN that is lost would not do: it is not
 * sent again while somebody owns the socket's lock.
 */
static int connect_delayed(int l)
{
	int fd = side_socket(false, SOCK_NONBLOCK);
	struct sockaddr_storage ss;
	socklen_t len;

	if (system("tc qdisc add dev lo root netem delay 3s"))
		skip("no netem");
	ss = listener_addr(l, &len);
	if (connect(fd, (void *)&ss, len) != -1 || errno != EINPROGRESS)
		fail("connect did not stay in progress");
	nonblock(fd, false);
	return fd;
}

static void *recv_on_cpu_1(void *arg)
{
	struct call *c = arg;

	pin(1);
	__atomic_store_n(&c->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	c->ret = recv(c->arg[0], (void *)c->arg[1], c->arg[2], 0);
	return NULL;
}

/* It waits for the socket's lock, is taken off that queue by its wake-up, and does not run yet
 * when another thread reads.
 */
static void receive_woken_from_the_lock(void)
{
	static const struct sock_filter bad = { .code = 0xffff };
	char got[64] = {}, b[64];
	struct owner o = {};
	struct call c = {};
	pthread_t thread;
	struct uffd u;
	struct conn k;
	int l, fd;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || env.netns)
		skip("for two CPUs and the loopback device");
	pin(0);
	uffd_open(&u);
	l = listener_open(NULL, 8);
	fd = connect_delayed(l);
	o.fd = fd;
	o.page = u.page;
	pthread_create(&o.thread, NULL, attach_filter, &o);
	uffd_caught(&u);
	c.nr = SYS_recvfrom;
	c.arg[0] = fd;
	c.arg[1] = (long)got;
	c.arg[2] = sizeof(got) - 1;
	pthread_create(&c.thread, NULL, recv_on_cpu_1, &c);
	while (!__atomic_load_n(&c.tid, __ATOMIC_ACQUIRE))
		sched_yield();
	call_blocked(&c);
	/* The SYN keeps its time; what follows it, as its answer, has none to wait. */
	if (system("tc qdisc change dev lo root netem delay 0ms"))
		fail("netem");
	arrive_syn_ack(l);
	pthread_create(&thread, NULL, hog, NULL);
	while (!hog_runs)
		sched_yield();
	uffd_release_bytes(&u, &bad, sizeof(bad));
	pthread_join(o.thread, NULL);
	conn_adopt(&k, fd, MUST(accept(l, NULL, NULL)));
	SAY(recv(k.client, b, 64, MSG_DONTWAIT));
	hog_runs = 2;
	pthread_join(thread, NULL);
	SAY(send(k.server, "first", 5, 0));
	where("the reader that waited for the lock");
	SAY_BUF(call_end(&c), got);
	conn_end(&k);
	if (system("tc qdisc del dev lo root"))
		fail("netem");
}

#define CASE_EARLY(f, is_slow) \
	{ .name = #f, .run = f, .path = PATH_ANY, .once = true, .slow = is_slow, .pair = true, \
	  .why = "it looks at the counters itself" }

const struct bcase early_cases[] = {
	CASE_EARLY(is_alone, true), CASE_EARLY(is_alone_among_threads, true),
	CASE_EARLY(has_a_second_descriptor, true), CASE_EARLY(has_a_child, true),
	CASE_EARLY(reads_by_io_uring, true), CASE_EARLY(connects_alone, false),
	CASE_EARLY(sends_urgent, true),
	CASE_EARLY(zerocopy_receive, true), CASE_EARLY(receive_woken_from_the_lock, true),
	{ }
};
