// SPDX-License-Identifier: GPL-2.0
/*
 * many N ROUNDS: N splices at once, both directions of N / 2 relays, all with bytes to
 * move in each round, every byte looked at. Prints how long each part took, and what
 * kernel memory a splice took.
 * With "drain" as third argument the splices are ended from outside in the
 * middle, and the process carries on by itself. With "end" they are ended once all is
 * moved, and listed before.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include "sosplice.h"

#define CHUNK	1000

/* The @i-th connection. 10,000 to an address: for more, connect() would go through all
 * that have one half of the 28,000 ephemeral ports before it comes to the other one.
 */
static int dial(int listener, unsigned int i, int *other)
{
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	check(!getsockname(listener, (void *)&addr, &len), "%s", strerror(errno));
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i / 10000);
	check(fd >= 0 && !connect(fd, (void *)&addr, len), "%s", strerror(errno));
	*other = accept(listener, NULL, NULL);
	check(*other >= 0, "%s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void round_trip(struct relay *r, unsigned int n, uint64_t pos)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		stream_write(r[i].c, pos, CHUNK);
		stream_write(r[i].s, pos, CHUNK);
	}
	for (i = 0; i < n; i++) {
		stream_read(r[i].s, pos, CHUNK);
		stream_read(r[i].c, pos, CHUNK);
	}
}

/* One direction, which the application carries on with. */
struct way {
	int in, from, to, out;
	uint64_t total, got;	/* bytes given to in, taken from out */
	char buf[4096];
	size_t have, done;
	bool any;		/* the splice had left some */
};

/* False when all has arrived. */
static bool carry(struct way *w, uint64_t pos)
{
	ssize_t n;

	if (w->got == w->total)
		return false;
	if (w->done == w->have) {
		n = recv(w->from, w->buf, sizeof(w->buf), MSG_DONTWAIT);
		w->done = 0;
		w->have = n > 0 ? n : 0;
		w->any |= n > 0;
	}
	if (w->done < w->have) {
		n = send(w->to, w->buf + w->done, w->have - w->done, MSG_DONTWAIT | MSG_NOSIGNAL);
		w->done += n > 0 ? n : 0;
	}
	w->got += stream_take(w->out, pos + w->got);
	check(w->got <= w->total, "%llu bytes more", (unsigned long long)(w->got - w->total));
	return true;
}

/* Ends the splices from outside while their sinks are full. */
static void drained(struct relay *r, unsigned int n, uint64_t pos)
{
	struct way *ways = calloc(2 * n, sizeof(*ways)), *w;
	unsigned int i, left = 0;
	bool more;

	for (i = 0; i < n; i++) {
		ways[2 * i] = (struct way){
			.in = r[i].c, .from = r[i].p, .to = r[i].q, .out = r[i].s,
		};
		ways[2 * i + 1] = (struct way){
			.in = r[i].s, .from = r[i].q, .to = r[i].p, .out = r[i].c,
		};
	}
	for (w = ways; w < ways + 2 * n; w++) {
		set_buf(w->to, 16384, 0);
		set_buf(w->out, 0, 16384);
	}
	do {
		more = false;
		for (w = ways; w < ways + 2 * n; w++) {
			size_t one = stream_give(w->in, pos + w->total);

			w->total += one;
			more |= one;
		}
	} while (more);
	check(!system("socksplice drain --timeout 60"), "drain failed");
	check(!counter("so_splices_live"), "some live on");
	do {
		more = false;
		for (w = ways; w < ways + 2 * n; w++)
			more |= carry(w, pos);
	} while (more);
	for (w = ways; w < ways + 2 * n; w++)
		left += w->any;
	printf("# %u of %u splices had bytes left\n", left, 2 * n);
	check(left, "none was full");
}

/* How long it is since the last call, or the start of @what. */
static void took(const char *what)
{
	static long last;
	const long now = ms();

	if (what)
		printf("# %s: %ld ms\n", what, now - last);
	last = now;
}

/* Bytes that the kernel has of its own, but for pages that sockets have. */
static uint64_t slab(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long long kb;
	char line[128];

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Slab: %llu kB", &kb) == 1) {
			fclose(f);
			return kb * 1024;
		}
	die("no Slab in /proc/meminfo");
}

/* How many lines of `splice show` are a splice that has moved @bytes. */
static unsigned int listed(uint64_t bytes)
{
	FILE *f = popen("socksplice -j splice show", "r");
	unsigned int found = 0;
	char *line = NULL, key[64];
	size_t size = 0;

	snprintf(key, sizeof(key), "\"moved\":%llu,", (unsigned long long)bytes);
	while (getdelim(&line, &size, '}', f) > 0)
		found += !!strstr(line, key);
	free(line);
	check(!pclose(f), "splice show failed");
	return found;
}

/* All at once, when nothing is left to move. */
static void ended(unsigned int splices, uint64_t moved)
{
	unsigned int found = listed(moved);

	check(found == splices, "%u listed that moved %llu bytes", found,
	      (unsigned long long)moved);
	took("list them");
	check(!system("socksplice drain --timeout 300"), "drain failed");
	check(!counter("so_splices_live"), "some live on");
	took("drain");
}

int main(int argc, char **argv)
{
	const unsigned int n = argc > 1 ? atoi(argv[1]) / 2 : 0;
	const unsigned int rounds = argc > 2 ? atoi(argv[2]) : 0;
	const char *mode = argc > 3 ? argv[3] : "";
	struct rlimit files = { 4 * n + 64, 4 * n + 64 };
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct relay *r = calloc(n, sizeof(*r));
	int l = socket(AF_INET, SOCK_STREAM, 0);
	uint64_t bytes = counter("so_splice_bytes"), live, memory;
	unsigned int i;

	if (!n || !rounds || !r) {
		fprintf(stderr, "usage: many N ROUNDS [drain|end]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	check(!setrlimit(RLIMIT_NOFILE, &files), "%s", strerror(errno));
	check(!bind(l, (void *)&any, sizeof(any)) && !listen(l, 16), "%s", strerror(errno));
	took(NULL);
	for (i = 0; i < n; i++) {
		r[i].c = dial(l, 2 * i, &r[i].p);
		r[i].q = dial(l, 2 * i + 1, &r[i].s);
	}
	took("connect");
	memory = slab();
	for (i = 0; i < n; i++) {
		splice_fds(r[i].p, r[i].q, 0, 0);
		splice_fds(r[i].q, r[i].p, 0, 0);
	}
	memory = slab() - memory;
	took("splice");
	printf("# %llu bytes of slab for each splice\n", (unsigned long long)memory / (2 * n));
	live = counter("so_splices_live");
	check(live >= 2 * n, "%llu live", (unsigned long long)live);
	for (i = 0; i < rounds; i++)
		round_trip(r, n, (uint64_t)i * CHUNK);
	for (i = 0; i < n; i++) {
		wait_moved(r[i].p, (uint64_t)rounds * CHUNK);
		wait_moved(r[i].q, (uint64_t)rounds * CHUNK);
	}
	bytes = counter("so_splice_bytes") - bytes;
	check(bytes >= 2ULL * n * rounds * CHUNK, "%llu bytes moved", (unsigned long long)bytes);
	took("move");
	if (!strcmp(mode, "drain"))
		drained(r, n, (uint64_t)rounds * CHUNK);
	else if (!strcmp(mode, "end"))
		ended(2 * n, (uint64_t)rounds * CHUNK);
	printf("ok %u-splices%s%s\n", 2 * n, *mode ? "-" : "", mode);
	return 0;
}
