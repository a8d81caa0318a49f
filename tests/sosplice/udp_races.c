// SPDX-License-Identifier: GPL-2.0
/* SO_SPLICE between UDP sockets: what else happens to them at the same time. */
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sys/syscall.h>

#include "sosplice.h"

/* A source is not readable. */
static void reads_wait(void)
{
	struct relay r;
	char c;

	udp_open_slow(&r);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_nothing(r.p);
	for (int i = 0; i < 30; i++)
		udp_give(r.c, 'a', 1000);
	check(recv(r.p, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN, "readable");
	check(!(poll_now(r.p) & POLLIN), "readable");
	check(!socksplice_unsplice(r.p) && poll_now(r.p) & POLLIN, "not readable");
	udp_want(r.p, 'a', 1000);
}

static void *read_one(void *arg)
{
	char buf[10];

	return (void *)recv(*(int *)arg, buf, sizeof(buf), 0);
}

/* It was asleep before the splice. */
static void sleeping_reader(void)
{
	pthread_t before, during;
	struct relay r;
	void *got;

	udp_open(&r, AF_INET, AF_INET);
	check(!pthread_create(&before, NULL, read_one, &r.p), "no thread");
	sleep_ms(100);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(!pthread_create(&during, NULL, read_one, &r.p), "no thread");
	udp_give(r.c, 'a', 1);
	udp_want(r.s, 'a', 1);
	wait_moved(r.p, 1);
	socksplice_unsplice(r.p);
	udp_give(r.c, 'b', 2);
	udp_give(r.c, 'c', 2);
	check(!pthread_join(before, &got) && (long)got == 2, "%ld", (long)got);
	check(!pthread_join(during, &got) && (long)got == 2, "%ld", (long)got);
}

#define READERS		24
#define NUMBERS		(1 << 20)

static uint8_t seen[NUMBERS];	/* how often each datagram came; atomic */
static int readers_left;	/* atomic */

static void note(int number)
{
	check(number >= 0 && number < NUMBERS, "%d", number);
	__atomic_add_fetch(&seen[number], 1, __ATOMIC_RELAXED);
}

struct old_reader {
	int fd;
	int tid;	/* release/acquire */
	bool got;
};

/* One read, that looks at the queue once more when its time is over. */
static void *read_late(void *arg)
{
	struct old_reader *o = arg;
	int n;

	__atomic_store_n(&o->tid, gettid(), __ATOMIC_RELEASE);
	o->got = recv(o->fd, &n, sizeof(n), 0) == sizeof(n);
	if (o->got)
		note(n);
	__atomic_sub_fetch(&readers_left, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void note_all(int fd)
{
	int n;

	while (recv(fd, &n, sizeof(n), MSG_DONTWAIT) == sizeof(n))
		note(n);
}

/* Starts readers in UDP's own recvmsg, splices, and sends until all of them have looked. Returns
 * how many got a datagram.
 */
static int old_readers_round(struct relay *r, int *sent)
{
	struct old_reader old[READERS];
	pthread_t threads[READERS];
	int got = 0;

	note_all(r->p);		/* the readers are to sleep */
	readers_left = READERS;
	for (int i = 0; i < READERS; i++) {
		struct timeval t = { .tv_usec = (READERS - i) * 10000 + 300000 };

		check(!setsockopt(r->p, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)), "%s",
		      strerror(errno));
		old[i] = (struct old_reader){ .fd = r->p };
		check(!pthread_create(&threads[i], NULL, read_late, &old[i]), "no thread");
		while (!__atomic_load_n(&old[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
		wait_asleep(old[i].tid, SYS_recvfrom);
	}
	check(!udp_try(r->p, r->q, 0), "%s", strerror(errno));
	while (__atomic_load_n(&readers_left, __ATOMIC_ACQUIRE) && *sent < NUMBERS) {
		for (int i = 0; i < 16 && *sent < NUMBERS; i++, ++*sent)
			check(send(r->c, sent, sizeof(*sent), 0) == sizeof(*sent), "%s",
			      strerror(errno));
		note_all(r->s);
	}
	for (int i = 0; i < READERS; i++) {
		pthread_join(threads[i], NULL);
		got += old[i].got;
	}
	check(!socksplice_unsplice(r->p), "%s", strerror(errno));
	return got;
}

/* Readers that were inside UDP's recvmsg take datagrams during the splice. Each of those is theirs
 * alone, and none is lost but those that the kernel counts.
 */
static void old_readers(void)
{
	int sent = 0, got = 0, lost = 0;
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	set_buf(r.s, 0, 1 << 20);
	for (int i = 0; i < 20 && got < 3; i++)
		got += old_readers_round(&r, &sent);
	check(got, "no reader got a datagram");
	note_all(r.p);
	note_all(r.s);
	for (int i = 0; i < sent; i++) {
		check(seen[i] <= 1, "%d of %d: %d times", i, sent, seen[i]);
		lost += !seen[i];
	}
	check(lost == udp_meminfo(r.p, SK_MEMINFO_DROPS) + udp_meminfo(r.s, SK_MEMINFO_DROPS),
	      "%d lost, %ld and %ld dropped", lost, udp_meminfo(r.p, SK_MEMINFO_DROPS),
	      udp_meminfo(r.s, SK_MEMINFO_DROPS));
	printf("# %d readers got one of %d datagrams; %d were dropped\n", got, sent, lost);
}

static int set_cork(int fd, int on)
{
	return setsockopt(fd, SOL_UDP, UDP_CORK, &on, sizeof(on)) ? errno : 0;
}

/* A sink cannot be corked, nor a corked socket become one. */
static void cork(void)
{
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	check(!set_cork(r.q, 1), "%s", strerror(errno));
	check(udp_try(r.p, r.q, 0) == EBUSY, "%s", strerror(errno));
	check(!set_cork(r.q, 0), "%s", strerror(errno));
	check(send(r.q, "xx", 2, MSG_MORE) == 2, "%s", strerror(errno));
	check(udp_try(r.p, r.q, 0) == EBUSY, "%s", strerror(errno));
	check(send(r.q, "xx", 2, 0) == 2, "%s", strerror(errno));
	udp_want(r.s, 'x', 4);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(set_cork(r.q, 1) == EBUSY && !set_cork(r.q, 0), "%s", strerror(errno));
	check(send(r.q, "xx", 2, MSG_MORE) < 0 && errno == EBUSY, "%s", strerror(errno));
	check(setsockopt(r.q, SOL_UDP, UDP_CORK, NULL, 4) && errno == EFAULT, "%s",
	      strerror(errno));
	check(setsockopt(r.q, SOL_UDP, UDP_CORK, &r, 3) && errno == EINVAL, "%s", strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	wait_moved(r.p, 10);
	udp_give(r.q, 'b', 10);		/* the application's own */
	udp_want(r.s, 'b', 10);
	check(send(r.p, "xx", 2, MSG_MORE) == 2, "a source: %s", strerror(errno));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(!set_cork(r.q, 1), "%s", strerror(errno));
}

struct late_cork {
	struct held_page page;
	int fd, tid;	/* @tid: release/acquire */
};

static void *cork_late(void *arg)
{
	struct late_cork *l = arg;

	return (void *)(long)setsockopt(l->fd, SOL_UDP, UDP_CORK, l->page.page, sizeof(int));
}

/* A call that began before the splice corks the sink. */
static void cork_from_before(void)
{
	struct late_cork l = {};
	pthread_t thread;
	struct relay r;
	void *ret;

	udp_open(&r, AF_INET, AF_INET);
	hold_page(&l.page);
	l.fd = r.q;
	check(!pthread_create(&thread, NULL, cork_late, &l), "no thread");
	wait_for_fault(&l.page);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	end_fault(&l.page, 1);
	pthread_join(thread, &ret);
	check(!ret, "%ld", (long)ret);
	udp_give(r.c, 'b', 11);
	wait_error(r.p, EBUSY);
	check(socksplice_moved(r.p) == 10, "%lld", (long long)socksplice_moved(r.p));
	udp_want(r.p, 'b', 11);
	udp_nothing(r.s);
	check(!so_error(r.q), "the sink has an error");
}

static int stop;	/* atomic */

static void *cork_again_and_again(void *arg)
{
	const int fd = *(int *)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		check(set_cork(fd, 1) == EBUSY && !set_cork(fd, 0), "corked");
		check(send(fd, "x", 1, MSG_MORE) < 0 && errno == EBUSY, "%s", strerror(errno));
		check(send(fd, "own", 3, MSG_DONTWAIT) == 3 || errno == EAGAIN, "%s",
		      strerror(errno));
	}
	return NULL;
}

static void drain(int fd)
{
	char c;

	while (recv(fd, &c, 1, MSG_DONTWAIT) >= 0)
		;
}

/* Both are sinks, and their owners try to cork both, while datagrams go both ways. */
static void cork_both_ways(void)
{
	pthread_t threads[2];
	int64_t moved[2];
	struct relay r;

	udp_open(&r, AF_INET, AF_INET6);
	check(!udp_try(r.p, r.q, 0) && !udp_try(r.q, r.p, 0), "%s", strerror(errno));
	check(!pthread_create(&threads[0], NULL, cork_again_and_again, &r.p), "no thread");
	check(!pthread_create(&threads[1], NULL, cork_again_and_again, &r.q), "no thread");
	for (int i = 0; i < 3000; i++) {
		udp_give(r.c, 'a', 100);
		udp_give(r.s, 'b', 100);
		drain(r.c);
		drain(r.s);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	moved[0] = socksplice_moved(r.p);
	moved[1] = socksplice_moved(r.q);
	check(moved[0] > 1000 && moved[1] > 1000, "%lld, %lld", (long long)moved[0],
	      (long long)moved[1]);
	check(!socksplice_unsplice(r.p) && !socksplice_unsplice(r.q), "%s", strerror(errno));
}

static struct sockaddr_in flood_to;

/* Sends empty datagrams to the socket that has the address. */
static void *flood(void *arg)
{
	int fd = udp_bound(AF_INET);

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		sendto(fd, NULL, 0, 0, (void *)&flood_to, sizeof(flood_to));
	return arg;
}

static void flood_start(pthread_t *thread, int fd)
{
	socklen_t len = sizeof(flood_to);

	check(!getsockname(fd, (void *)&flood_to, &len), "%s", strerror(errno));
	check(!pthread_create(thread, NULL, flood, NULL), "no thread");
}

/* Empty datagrams, of which the count does not tell, do not keep setsockopt() from returning. */
static void begins_under_flood(void)
{
	uint64_t datagrams = counter("so_splice_datagrams");
	int p = udp_bound(AF_INET), q, s;
	pthread_t thread;

	udp_pair(AF_INET, &q, &s);
	set_buf(p, 0, 20000);	/* what is queued moves first */
	flood_start(&thread, p);
	for (int i = 0; i < 20; i++) {
		struct pollfd w = { .fd = p, .events = POLLIN };

		check(poll(&w, 1, 20000) == 1, "no flood");
		check(!udp_try(p, q, 0), "%s", strerror(errno));
		check(!socksplice_unsplice(p), "%s", strerror(errno));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(counter("so_splice_datagrams") >= datagrams + 20, "not all splices have moved one");
}

/* The sink, or the source, is closed while the mover sends: 400 times, or less often where all is
 * slow (KASAN).
 */
static void closed_under_flood(void)
{
	const long start = ms();
	uint64_t datagrams = counter("so_splice_datagrams");
	int p = udp_bound(AF_INET), s = udp_bound(AF_INET), q;
	socklen_t len = sizeof(flood_to);
	pthread_t thread;

	flood_start(&thread, p);
	for (int i = 0; i < 400 && (i < 50 || ms() - start < 30000); i++) {
		q = udp_bound(AF_INET);
		udp_connect(q, s);
		check(!udp_try(p, q, 0), "%s", strerror(errno));
		if (i % 4)
			sched_yield();
		if (i % 8) {
			close(q);
			wait_error(p, EPIPE);
		} else {
			close(p);
			p = socket(AF_INET, SOCK_DGRAM, 0);
			check(!bind(p, (void *)&flood_to, len), "%s", strerror(errno));
			close(q);
		}
		drain(s);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(counter("so_splice_datagrams") > datagrams + 100, "too few moved");
}

static long udp_pages(void)
{
	char line[128];
	long pages = -1;
	FILE *f = fopen("/proc/net/sockstat", "r");

	while (fgets(line, sizeof(line), f))
		sscanf(line, "UDP: inuse %*d mem %ld", &pages);
	fclose(f);
	check(pages >= 0, "no UDP in sockstat");
	return pages;
}

/* What a source has received is no longer charged to it once it was moved. What was not moved is,
 * until it is read.
 */
static void memory(void)
{
	long before = udp_pages(), start;
	struct relay r;

	udp_open(&r, AF_INET, AF_INET);
	set_buf(r.q, 1 << 20, 0);
	set_buf(r.s, 0, 1 << 20);
	for (int i = 0; i < 20; i++)
		udp_give(r.c, 'a', 2000);
	check(udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC) > 40000, "%ld",
	      udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC));
	for (int i = 0; i < 4; i++)	/* some of it stays charged until the next reads */
		udp_want(r.p, 'a', 2000);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	for (int i = 0; i < 500; i++) {
		if (i >= 16)
			udp_give(r.c, 'a', 2000);
		udp_want(r.s, 'a', 2000);
	}
	wait_moved(r.p, 500 * 2000);
	start = ms();
	while (udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC) ||
	       udp_meminfo(r.p, SK_MEMINFO_FWD_ALLOC) >= 2 * 4096) {
		check(ms() - start < 20000, "%ld charged, %ld in reserve",
		      udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC),
		      udp_meminfo(r.p, SK_MEMINFO_FWD_ALLOC));
		sleep_ms(2);
	}
	set_buf(r.q, 4000, 0);
	udp_give(r.c, 'b', 20000);
	wait_error(r.p, EMSGSIZE);
	check(udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC) > 20000, "%ld",
	      udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC));
	udp_want(r.p, 'b', 20000);
	check(!udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC), "%ld",
	      udp_meminfo(r.p, SK_MEMINFO_RMEM_ALLOC));
	close(r.p);
	close(r.c);
	close(r.q);
	close(r.s);
	start = ms();
	while (udp_pages() > before) {	/* the splice holds its sockets for a moment */
		check(ms() - start < 20000, "%ld pages, %ld before", udp_pages(), before);
		sleep_ms(2);
	}
}

static long bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static int map_set(int map, int fd)
{
	uint64_t value = fd;
	int key = 0;
	union bpf_attr attr = {
		.map_fd = map,
		.key = (unsigned long)&key,
		.value = (unsigned long)&value,
	};

	return bpf(BPF_MAP_UPDATE_ELEM, &attr) ? errno : 0;
}

static void sockmap(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_SOCKMAP,
		.key_size = sizeof(int),
		.value_size = sizeof(uint64_t),
		.max_entries = 1,
	};
	int map = bpf(BPF_MAP_CREATE, &attr), other, peer;
	struct relay r;

	check(map >= 0, "%s", strerror(errno));
	udp_open(&r, AF_INET, AF_INET6);
	udp_pair(AF_INET, &other, &peer);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	check(map_set(map, r.p) && map_set(map, r.q), "a spliced socket is in a sockmap");
	check(!map_set(map, other), "%s", strerror(errno));
	check(udp_try(r.q, other, 0) == EINVAL, "a sink in a sockmap: %s", strerror(errno));
	check(udp_try(other, r.p, 0) == EINVAL, "a source in a sockmap: %s", strerror(errno));
	udp_give(r.c, 'a', 10);
	udp_want(r.s, 'a', 10);
	wait_moved(r.p, 10);
}

int udp_hold(void)
{
	int number, last = -1;
	struct relay r;
	char line[16];

	udp_open_slow(&r);
	check(!udp_try(r.p, r.q, 0), "%s", strerror(errno));
	for (int i = 0; i < 30; i++) {
		char buf[1000] = {};

		memcpy(buf, &i, sizeof(i));
		check(send(r.c, buf, sizeof(buf), 0) == sizeof(buf), "%s", strerror(errno));
	}
	udp_nothing(r.p);
	printf("ready\n");
	fflush(stdout);
	check(fgets(line, sizeof(line), stdin), "no word");
	check(!so_error(r.p) && !so_error(r.q), "an error");
	while (recv(r.p, &number, sizeof(number), MSG_DONTWAIT) > 0) {
		check(last < 0 || number == last + 1, "%d after %d", number, last);
		last = number;
	}
	check(last == 29, "the last is %d", last);
	udp_give(r.q, 'a', 1);
	printf("fine\n");
	return 0;
}

const struct sock_case udp_race_cases[] = {
	{ "udp-reads-wait", reads_wait },
	{ "udp-sleeping-reader", sleeping_reader },
	{ "udp-readers-from-before", old_readers },
	{ "udp-cork", cork },
	{ "udp-cork-from-before", cork_from_before },
	{ "udp-cork-both-ways", cork_both_ways },
	{ "udp-begins-under-flood", begins_under_flood },
	{ "udp-closed-under-flood", closed_under_flood },
	{ "udp-memory", memory },
	{ "udp-sockmap", sockmap },
	{ NULL }
};
