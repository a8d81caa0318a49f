// SPDX-License-Identifier: GPL-2.0
/*
 * One measurement between two processes: how many transactions, or how many
 * bytes, in a given time. Prints a line "COUNT SECONDS".
 *
 *	bench [OPTION...] rr SIZE SECONDS	SIZE bytes there and back again
 *	bench [OPTION...] stream SIZE SECONDS	sends of SIZE bytes, one way
 *	bench [OPTION...] idle CONNECTIONS	see hold() for the dialogue
 *
 *	-u		AF_UNIX, else TCP
 *	-n		TCP_NODELAY
 *	-m OBJECT	redirect by sk_msg and a sockmap (sockmap.bpf.o)
 *	-a ADDRESS	where the server listens (127.0.0.1)
 *	-s NETNS	the server's network namespace, by the name ip(8) gave it
 *	-c NETNS	the client's
 *	-g PATH		the cgroup of both
 *
 * The scheduler places the processes. What goes on in the first tenth of a
 * second is not counted: connections start over TCP and windows grow.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP		0.1
#define READ_SIZE	(128 * 1024)

static bool use_unix, nodelay;
static const char *sockmap_object, *address = "127.0.0.1", *cgroup;
static int sockmap = -1;
static double duration;
static size_t size;

/* What the two processes share. */
static struct {
	volatile bool stop;
	double seconds;
	uint64_t count;
} *shared;

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void set_alarm(double seconds)
{
	struct itimerval it = {
		.it_value.tv_sec = (time_t)seconds,
		.it_value.tv_usec = (suseconds_t)((seconds - (time_t)seconds) * 1e6),
	};

	if (setitimer(ITIMER_REAL, &it, NULL))
		err(2, "setitimer");
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/*
 * The clock of the side that counts. Called with the count so far each time
 * round; looks at the real clock only when an alarm went off. True at the end.
 */
static bool time_is_over(uint64_t count)
{
	static uint64_t first;
	static double began;
	static int seen = -1;

	if (alarms == seen)
		return false;
	switch (seen = alarms) {
	case 0:
		set_alarm(WARM_UP);
		return false;
	case 1:
		first = count;
		began = now();
		set_alarm(duration);
		return false;
	default:
		shared->count = count - first;
		shared->seconds = now() - began;
		shared->stop = true;
		return true;
	}
}

static void enter(const char *netns)
{
	char path[512];
	int fd;

	if (cgroup) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			err(2, "cannot enter %s", cgroup);
		close(fd);
	}
	if (netns) {
		snprintf(path, sizeof(path), "/run/netns/%s", netns);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || setns(fd, CLONE_NEWNET))
			err(2, "cannot enter the network namespace %s", netns);
		close(fd);
	}
}

static void load_sockmap(void)
{
	struct bpf_object *obj;
	struct bpf_program *prog;

	libbpf_set_print(NULL);
	obj = bpf_object__open_file(sockmap_object, NULL);
	if (!obj || bpf_object__load(obj))
		err(2, "cannot load %s", sockmap_object);
	sockmap = bpf_object__find_map_fd_by_name(obj, "sockets");
	prog = bpf_object__find_program_by_name(obj, "redirect");
	if (sockmap < 0 || !prog ||
	    bpf_prog_attach(bpf_program__fd(prog), sockmap, BPF_SK_MSG_VERDICT, 0))
		err(2, "cannot attach %s", sockmap_object);
}

static void set_up(int sk)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	uint64_t value = sk;
	uint32_t port;
	int one = 1;

	if (use_unix)
		return;
	if (nodelay && setsockopt(sk, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		err(2, "TCP_NODELAY");
	if (sockmap < 0)
		return;
	if (getsockname(sk, (struct sockaddr *)&sin, &len))
		err(2, "getsockname");
	port = ntohs(sin.sin_port);
	if (bpf_map_update_elem(sockmap, &port, &value, BPF_ANY))
		err(2, "cannot put a socket into the sockmap");
}

static int listen_on(struct sockaddr_storage *to, socklen_t *len)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	int sk = socket(use_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sa_family_t family = AF_UNIX;

	if (sk < 0)
		err(2, "socket");
	if (use_unix) {
		/* a name of the kernel's choice */
		if (bind(sk, (struct sockaddr *)&family, sizeof(family)))
			err(2, "bind");
	} else {
		if (inet_pton(AF_INET, address, &sin.sin_addr) != 1)
			errx(2, "bad address %s", address);
		if (bind(sk, (struct sockaddr *)&sin, sizeof(sin)))
			err(2, "bind %s", address);
	}
	if (listen(sk, 4096))
		err(2, "listen");
	*len = sizeof(*to);
	if (getsockname(sk, (struct sockaddr *)to, len))
		err(2, "getsockname");
	return sk;
}

static int connect_to(const struct sockaddr_storage *to, socklen_t len)
{
	int sk = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sk < 0 || connect(sk, (const struct sockaddr *)to, len))
		err(2, "connect");
	return sk;
}

/* False at the end of the measurement, which the alarm or the peer brings. A
 * blocking recv() on a socket in a sockmap says EAGAIN now and then.
 */
static bool again(ssize_t n)
{
	if (n < 0 && (errno == EINTR || (errno == EAGAIN && sockmap >= 0)))
		return true;
	if (n > 0)
		return true;
	if (!shared->stop)
		errx(2, "the connection broke: %s", n ? strerror(errno) : "end of file");
	return false;
}

static bool send_all(int sk, const char *buf, size_t len)
{
	ssize_t n;

	while (len) {
		n = send(sk, buf, len, MSG_NOSIGNAL);
		if (!again(n))
			return false;
		if (n > 0) {
			buf += n;
			len -= n;
		}
	}
	return true;
}

static bool recv_all(int sk, char *buf, size_t len)
{
	ssize_t n;

	while (len) {
		n = recv(sk, buf, len, 0);
		if (!again(n))
			return false;
		if (n > 0) {
			buf += n;
			len -= n;
		}
	}
	return true;
}

static void rr_client(int sk, char *buf)
{
	uint64_t count = 0;

	while (!time_is_over(count)) {
		if (!send_all(sk, buf, size) || !recv_all(sk, buf, size))
			return;
		count++;
	}
}

static void rr_server(int sk, char *buf)
{
	while (recv_all(sk, buf, size) && send_all(sk, buf, size))
		;
}

static void stream_client(int sk, char *buf)
{
	while (!shared->stop && send_all(sk, buf, size))
		;
}

static void stream_server(int sk, char *buf)
{
	uint64_t count = 0;
	ssize_t n;

	while (!time_is_over(count)) {
		n = recv(sk, buf, READ_SIZE, 0);
		if (!again(n))
			return;
		if (n > 0)
			count += n;
	}
}

/* Each tells the other that its socket is set up; bytes before that would not
 * go the way that is to be measured.
 */
static void meet(int ctl)
{
	char c = 0;

	if (write(ctl, &c, 1) != 1 || read(ctl, &c, 1) != 1)
		errx(2, "the other side failed");
}

static int measure(const char *kind, const char *server_ns, const char *client_ns)
{
	const bool rr = !strcmp(kind, "rr");
	struct sigaction sa = { .sa_handler = on_alarm };
	struct sockaddr_storage to;
	int ctl[2], status, bad = 0;
	socklen_t len;
	char *buf;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ctl))
		err(2, "socketpair");
	buf = mmap(NULL, READ_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buf == MAP_FAILED)
		err(2, "mmap");
	memset(buf, 'x', READ_SIZE);
	sigaction(SIGALRM, &sa, NULL);

	if (!fork()) {
		int l, sk;

		close(ctl[1]);
		enter(server_ns);
		l = listen_on(&to, &len);
		if (write(ctl[0], &len, sizeof(len)) != sizeof(len) ||
		    write(ctl[0], &to, sizeof(to)) != sizeof(to))
			err(2, "write");
		sk = accept(l, NULL, NULL);
		if (sk < 0)
			err(2, "accept");
		set_up(sk);
		meet(ctl[0]);
		(rr ? rr_server : stream_server)(sk, buf);
		_exit(0);
	}
	if (!fork()) {
		int sk;

		close(ctl[0]);
		enter(client_ns);
		if (read(ctl[1], &len, sizeof(len)) != sizeof(len) ||
		    read(ctl[1], &to, sizeof(to)) != sizeof(to))
			errx(2, "the server failed");
		sk = connect_to(&to, len);
		set_up(sk);
		meet(ctl[1]);
		(rr ? rr_client : stream_client)(sk, buf);
		_exit(0);
	}
	close(ctl[0]);
	close(ctl[1]);
	while (wait(&status) > 0)
		bad |= status;
	if (bad || !shared->seconds)
		return 2;
	printf("%llu %.6f\n", (unsigned long long)shared->count, shared->seconds);
	return 0;
}

static void await(const char *word)
{
	char line[64];

	printf("%s\n", word);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

/*
 * Holds connections open, both ends in this process, for others to look
 * at their memory. Prints a word and waits for a line: "none" before there is a
 * connection, "idle" when all are established, "busy" when each has carried
 * bytes both ways that have been read, "closed" after that.
 */
static int hold(unsigned int n)
{
	struct rlimit files = { 2 * n + 64, 2 * n + 64 };
	struct sockaddr_storage to;
	socklen_t len;
	int *sk, l, r;
	char c = 0;

	if (setrlimit(RLIMIT_NOFILE, &files))
		err(2, "setrlimit");
	sk = calloc(2 * n, sizeof(*sk));
	if (!sk)
		err(2, "calloc");
	enter(NULL);
	l = listen_on(&to, &len);
	await("none");
	for (unsigned int i = 0; i < n; i++) {
		sk[2 * i] = connect_to(&to, len);
		sk[2 * i + 1] = accept(l, NULL, NULL);
		if (sk[2 * i + 1] < 0)
			err(2, "accept");
	}
	await("idle");
	/* the first byte of each direction starts over TCP */
	for (r = 0; r < 4; r++) {
		for (unsigned int i = 0; i < 2 * n; i++)
			if (send(sk[i], &c, 1, 0) != 1)
				err(2, "send");
		for (unsigned int i = 0; i < 2 * n; i++)
			if (recv(sk[i], &c, 1, 0) != 1)
				err(2, "recv");
	}
	await("busy");
	for (unsigned int i = 0; i < 2 * n; i++)
		close(sk[i]);
	await("closed");
	return 0;
}

int main(int argc, char **argv)
{
	const char *server_ns = NULL, *client_ns = NULL;
	int opt;

	while ((opt = getopt(argc, argv, "unm:a:s:c:g:")) != -1) {
		switch (opt) {
		case 'u': use_unix = true; break;
		case 'n': nodelay = true; break;
		case 'm': sockmap_object = optarg; break;
		case 'a': address = optarg; break;
		case 's': server_ns = optarg; break;
		case 'c': client_ns = optarg; break;
		case 'g': cgroup = optarg; break;
		default: return 2;
		}
	}
	argv += optind;
	argc -= optind;
	if (argc == 2 && !strcmp(argv[0], "idle"))
		return hold(atoi(argv[1]));
	if (argc != 3 || (strcmp(argv[0], "rr") && strcmp(argv[0], "stream")))
		errx(2, "see the head of bench.c");
	size = strtoul(argv[1], NULL, 0);
	duration = atof(argv[2]);
	if (!size || size > READ_SIZE || duration <= 0)
		errx(2, "bad size or time");

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(2, "mmap");
	if (sockmap_object)
		load_sockmap();
	return measure(argv[0], server_ns, client_ns);
}
