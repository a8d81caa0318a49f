// SPDX-License-Identifier: GPL-2.0
/*
 * relay: relays that people run, with their sockets in a sockmap, and splice(2)
 * between them. First with our feature off, where bytes have to be lost: that is
 * the bug, and shows that the set-up is the one that has it. Then with it on:
 * every byte both ways at once, end of file on one way while the other goes on,
 * and the counters say that splice(2) moved them.
 *
 *	client ---- relay ---- server		client and server are this program
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "relay.h"

#define CGROUP		"/sys/fs/cgroup/psock-relay"
#define TAIL		5000		/* sent after the other way has ended */
#define AHEAD		(1 << 20)	/* how far a sender is ahead of its reader */

enum way { WAY_MSG, WAY_VERDICT };
static const char * const way_names[] = { "msg", "verdict" };

struct relay {
	const char *name;
	bool all_by_splice;		/* or as much as it thinks fit */
	bool by_chance;			/* or perhaps nothing at all */
	bool loses;			/* bytes, where splice(2) does not see them */
	const char *options;
	void (*start)(struct relay *r, int family, const struct sockaddr_storage *to);
	struct sockaddr_storage at;
	pid_t pid;
	FILE *says;
};

/* One way of one connection. */
struct leg {
	pthread_t sender, reader;
	int from, to;
	uint64_t seed;
	size_t len, got;
	atomic_ullong taken;
	bool shut;			/* ends with a FIN */
	bool lossy;			/* it need not arrive */
	bool paced;			/* not far ahead of the reader */
	int end;			/* 0: end of file, else errno */
};

struct link_up {
	int client, server;
	struct leg up, down;
};

static int ends = -1;
static int listener;

static socklen_t loopback(struct sockaddr_storage *ss, int family)
{
	*ss = (struct sockaddr_storage){ .ss_family = family };
	if (family == AF_INET)
		((struct sockaddr_in *)ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)ss)->sin6_addr = in6addr_loopback;
	return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static void address(char *buf, size_t len, const struct sockaddr_storage *ss)
{
	/* the port stands at the same place in both families */
	snprintf(buf, len, ss->ss_family == AF_INET ? "127.0.0.1:%d" : "[::1]:%d",
		 ntohs(((const struct sockaddr_in *)ss)->sin_port));
}

static int listen_at(struct sockaddr_storage *ss, int family)
{
	socklen_t len = loopback(ss, family);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	check(fd >= 0 && !bind(fd, (void *)ss, len) && !listen(fd, 64), "%s", strerror(errno));
	len = sizeof(*ss);
	check(!getsockname(fd, (void *)ss, &len), "%s", strerror(errno));
	return fd;
}

static void spawn(struct relay *r, int keep, char *const argv[])
{
	int out[2];

	check(!pipe2(out, O_CLOEXEC), "%s", strerror(errno));
	r->pid = fork();
	if (!r->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		if (keep >= 0)
			fcntl(keep, F_SETFD, 0);
		execvp(argv[0], argv);
		fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	close(out[1]);
	r->says = fdopen(out[0], "r");
}

static void start_go(struct relay *r, int family, const struct sockaddr_storage *to)
{
	char target[64], line[128];
	char *argv[] = { "build/psock/gorelay", "-listen",
			 family == AF_INET ? "127.0.0.1:0" : "[::1]:0", "-to", target,
			 (char *)r->options, NULL };

	address(target, sizeof(target), to);
	spawn(r, -1, argv);
	check(fgets(line, sizeof(line), r->says) && !strncmp(line, "listening ", 10),
	      "the relay does not start");
	loopback(&r->at, family);
	((struct sockaddr_in *)&r->at)->sin_port = htons(atoi(strrchr(line, ':') + 1));
}

/* Listens on a socket that it inherits, so nobody has to wait for it. */
static void start_haproxy(struct relay *r, int family, const struct sockaddr_storage *to)
{
	char path[] = "/tmp/relay.cfg.XXXXXX", target[64];
	char *argv[] = { "/usr/sbin/haproxy", "-db", "-f", path, NULL };
	int fd = mkstemp(path), l = listen_at(&r->at, family);

	address(target, sizeof(target), to);
	check(fd >= 0, "%s", strerror(errno));
	dprintf(fd, "defaults\n"
		"\tmode tcp\n"
		"\ttimeout connect 5s\n"
		"\ttimeout client 60s\n"
		"\ttimeout server 60s\n"
		"%s"
		"listen relay\n"
		"\tbind fd@%d\n"
		"\tserver s %s\n", r->options, l, target);
	close(fd);
	spawn(r, l, argv);
	close(l);
}

static struct relay relays[] = {
	{ .name = "go", .start = start_go, .all_by_splice = true, .loses = true },
	{ .name = "haproxy", .start = start_haproxy, .loses = true,
	  .options = "\toption splice-request\n\toption splice-response\n" },
	/* uses splice(2) now and then, so what it loses is left to chance */
	{ .name = "haproxy-auto", .start = start_haproxy, .by_chance = true, .options = "\toption splice-auto\n" },
};

static int no_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, fmt, ap) : 0;
}

/* This process and its children join the cgroup whose sockets enter the map.
 * The links, and so the programs, go with the process.
 */
static void enroll(enum way way)
{
	const char *name = way == WAY_MSG ? "to_peer" : "look";
	struct bpf_program *prog, *ops;
	struct bpf_object *obj;
	int cgroup;

	mkdir(CGROUP, 0755);
	cgroup = open(CGROUP, O_RDONLY | O_CLOEXEC);
	check(cgroup >= 0, "%s: %s", CGROUP, strerror(errno));
	write_file(CGROUP "/cgroup.procs", "0");

	libbpf_set_print(no_print);
	obj = bpf_object__open("build/psock/relay.bpf.o");
	check(obj && !bpf_object__load(obj), "cannot load the BPF programs: %s", strerror(errno));
	ends = bpf_object__find_map_fd_by_name(obj, "ends");
	ops = bpf_object__find_program_by_name(obj, "enroll");
	prog = bpf_object__find_program_by_name(obj, name);
	check(ends >= 0 && ops && prog, "the BPF object is another one");
	check(!bpf_prog_attach(bpf_program__fd(prog), ends, way == WAY_MSG ?
			       BPF_SK_MSG_VERDICT : BPF_SK_SKB_STREAM_VERDICT, 0),
	      "%s: %s", name, strerror(errno));
	check(bpf_program__attach_cgroup(ops, cgroup), "enroll: %s", strerror(errno));
	close(cgroup);
}

static uint32_t port(int fd, int (*of)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	check(!of(fd, (void *)&ss, &len), "%s", strerror(errno));
	return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

/* Until both ends of the connection that @fd is one end of are in the map. */
static void await_enrolled(int fd)
{
	struct end near = { port(fd, getsockname), port(fd, getpeername) };
	struct end far = { near.remote, near.local };
	uint64_t cookie;

	while (bpf_map_lookup_elem(ends, &near, &cookie) ||
	       bpf_map_lookup_elem(ends, &far, &cookie))
		check(errno == ENOENT, "%s", strerror(errno));
}

static void link_open(struct link_up *l, const struct relay *r)
{
	struct timeval tv = { .tv_sec = 20 };

	l->client = socket(r->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(l->client >= 0 && !connect(l->client, (void *)&r->at, sizeof(r->at)), "%s",
	      strerror(errno));
	l->server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	check(l->server >= 0, "%s", strerror(errno));
	await_enrolled(l->client);
	await_enrolled(l->server);
	setsockopt(l->client, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(l->server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

static void *sender_run(void *arg)
{
	struct leg *leg = arg;
	char buf[65536] = "";
	size_t pos = 0;

	while (pos < leg->len) {
		size_t n = leg->len - pos < sizeof(buf) ? leg->len - pos : sizeof(buf);
		ssize_t sent;

		/* redirection holds nobody back */
		while (leg->paced && pos - atomic_load(&leg->taken) > AHEAD)
			usleep(100);
		if (leg->len != SIZE_MAX)	/* else nobody looks at it */
			stream_fill(leg->seed, pos, buf, n);
		sent = send(leg->from, buf, n, MSG_NOSIGNAL);
		if (sent < 0 && leg->lossy)
			break;
		check(sent > 0, "send at %zu: %s", pos, strerror(errno));
		pos += sent;
	}
	if (leg->shut)
		shutdown(leg->from, SHUT_WR);
	return NULL;
}

/* When a byte came last, on any connection: one whose turn has not come is silent
 * for as long as the others take.
 */
static atomic_long last;

/* A recv(2) that sleeps on a socket in a map says EAGAIN when something else
 * woke it, so what tells that bytes are lost is the silence of all.
 */
static void *reader_run(void *arg)
{
	struct leg *leg = arg;
	char buf[65536];

	atomic_store(&last, ms());
	while (1) {
		ssize_t n = recv(leg->to, buf, sizeof(buf), 0);

		if (n < 0 && errno == EAGAIN && ms() - atomic_load(&last) < 20000)
			continue;
		if (n <= 0) {
			leg->end = n ? errno : 0;
			return NULL;
		}
		atomic_store(&last, ms());
		check(stream_check(leg->seed, leg->got, buf, n) == (size_t)n,
		      "wrong byte at %zu", leg->got + stream_check(leg->seed, leg->got, buf, n));
		leg->got += n;
		atomic_store(&leg->taken, leg->got);
	}
}

static void leg_start(struct leg *leg, int from, int to, uint64_t seed, size_t len, bool shut)
{
	*leg = (struct leg){ .from = from, .to = to, .seed = seed, .len = len,
			     .shut = shut, .paced = true };
	check(!pthread_create(&leg->reader, NULL, reader_run, leg), "thread");
	check(!pthread_create(&leg->sender, NULL, sender_run, leg), "thread");
}

static bool has_module(void)
{
	return !access("/sys/module/socksplice", F_OK);
}

/* @len bytes each way at once, on each of @n connections. Returns how many of
 * all these bytes splice(2) moved.
 */
static uint64_t whole(struct relay *r, int n, size_t len)
{
	struct link_up *links = calloc(n, sizeof(*links));
	uint64_t bytes = psock_bytes(), calls = stat_get("psock_splice_calls");

	for (int i = 0; i < n; i++) {
		struct link_up *l = &links[i];

		link_open(l, r);
		leg_start(&l->up, l->client, l->server, 2 * i, len, true);
		leg_start(&l->down, l->server, l->client, 2 * i + 1, len, false);
	}
	for (int i = 0; i < n; i++) {
		struct link_up *l = &links[i];
		char tail[TAIL];

		pthread_join(l->up.sender, NULL);
		pthread_join(l->down.sender, NULL);
		pthread_join(l->up.reader, NULL);
		check(l->up.got == len && !l->up.end, "up: %zu bytes of %zu, then %s", l->up.got, len,
		      l->up.end ? strerror(l->up.end) : "end of file");
		/* one way is closed, the other is not */
		stream_fill(2 * i + 1, len, tail, TAIL);
		check(send(l->server, tail, TAIL, MSG_NOSIGNAL) == TAIL, "%s", strerror(errno));
		close(l->server);
		pthread_join(l->down.reader, NULL);
		check(l->down.got == len + TAIL && !l->down.end, "down: %zu bytes of %zu, then %s",
		      l->down.got, len + TAIL, l->down.end ? strerror(l->down.end) : "end of file");
		close(l->client);
	}
	bytes = psock_bytes() - bytes;
	calls = stat_get("psock_splice_calls") - calls;
	printf("# %s: %llu of %zu bytes by %llu splices\n", r->name, (unsigned long long)bytes,
	       n * (2 * len + TAIL), (unsigned long long)calls);
	if (r->all_by_splice)
		check(bytes == n * (2 * len + TAIL), "splice(2) did not move all");
	free(links);
	return bytes;
}

/* Without the module, and with the feature off, some of it must be lost: splice(2) says
 * end of file where bytes are left. The relay stands still until all of it is there.
 */
static void loss(struct relay *r, size_t len)
{
	struct timeval tv = { .tv_sec = 2 };
	struct link_up l;

	link_open(&l, r);
	check(!kill(r->pid, SIGSTOP), "%s", strerror(errno));
	setsockopt(l.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	l.up = (struct leg){
		.from = l.client, .to = l.server, .len = len, .shut = true, .lossy = true,
	};
	sender_run(&l.up);
	kill(r->pid, SIGCONT);
	reader_run(&l.up);
	printf("# %s, %s: %zu of %zu bytes arrived, then %s\n", r->name,
	       has_module() ? "feature off" : "no module", l.up.got, len,
	       l.up.end ? strerror(l.up.end) : "end of file");
	check(l.up.got < len, "nothing is lost: this shows nothing");
}

/* One way through the Go relay for a time: prints "BYTES SECONDS". */
static int bench(enum way way, bool by_splice, double seconds)
{
	struct relay r = { .start = start_go, .options = by_splice ? NULL : "-copy" };
	static char buf[128 * 1024];
	struct sockaddr_storage to;
	unsigned long long first = 0, bytes = 0;
	long start, began = 0;
	struct link_up l;

	enroll(way);
	listener = listen_at(&to, AF_INET);
	r.start(&r, AF_INET, &to);
	link_open(&l, &r);
	l.up = (struct leg){ .from = l.client, .len = SIZE_MAX, .lossy = true, .paced = true };
	check(!pthread_create(&l.up.sender, NULL, sender_run, &l.up), "thread");
	start = ms();
	while (!began || ms() - began < seconds * 1000) {
		ssize_t n = recv(l.server, buf, sizeof(buf), 0);

		check(n > 0 || (n < 0 && errno == EAGAIN), "%s", n ? strerror(errno) : "end of file");
		bytes += n > 0 ? n : 0;
		atomic_store(&l.up.taken, bytes);
		if (!began && ms() - start > 200) {
			began = ms();
			first = bytes;
		}
	}
	printf("%llu %.3f\n", bytes - first, (ms() - began) / 1000.0);
	fflush(stdout);
	/* the sender and the relay end with us */
	_exit(0);
}

static int run(struct relay *r, enum way way, int family, bool on)
{
	const char *f = family == AF_INET ? "v4" : "v6";
	struct sockaddr_storage to;
	int status;
	pid_t pid;

	if (has_module())
		write_file(PARAM "splice", on ? "1" : "0");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(150);
		enroll(way);
		listener = listen_at(&to, family);
		r->start(r, family, &to);
		if (!on) {
			loss(r, way == WAY_MSG ? 1 << 20 : 100000);
		} else {
			uint64_t spliced = whole(r, 1, amount(8 << 20)) +
					   whole(r, 8, amount(1 << 20));

			check(spliced || r->by_chance, "splice(2) moved nothing");
		}
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("%s %s/%s/%s/%s%s\n", status ? "not ok" : "ok", r->name, way_names[way], f,
	       on ? "whole" : "loses-without", !status ? "" :
	       WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": hangs" : ": see above");
	fflush(stdout);
	return !!status;
}

int main(int argc, char **argv)
{
	const bool module = has_module();
	int failed = 0;

	if (argc == 5 && !strcmp(argv[1], "bench"))
		return bench(strcmp(argv[2], "msg") ? WAY_VERDICT : WAY_MSG,
			     strcmp(argv[3], "copy"), atof(argv[4]));
	for (unsigned int i = 0; i < sizeof(relays) / sizeof(relays[0]); i++) {
		struct relay *r = &relays[i];

		if (argc > 1 && strcmp(argv[1], r->name))
			continue;
		for (enum way way = WAY_MSG; way <= WAY_VERDICT; way++) {
			if (r->loses)
				failed += run(r, way, AF_INET, false);
			if (!module)
				continue;
			failed += run(r, way, AF_INET, true);
			if (!on_debug_kernel())
				failed += run(r, way, AF_INET6, true);
		}
	}
	return failed ? 1 : 0;
}
