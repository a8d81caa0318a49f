// SPDX-License-Identifier: GPL-2.0
/*
 * load COMMAND [OPTION…]: see usage(). Exit status 1 when a byte was wrong or
 * an expectation was not met, 2 when it could not be tried.
 */
#include "load.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <linux/filter.h>
#include <sys/resource.h>

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("load: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

void address(struct sockaddr_storage *ss, socklen_t *len, const char *addr, unsigned int port)
{
	struct sockaddr_in6 *in6 = (void *)ss;
	struct sockaddr_in *in = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, addr, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		*len = sizeof(*in);
	} else if (inet_pton(AF_INET6, addr, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		*len = sizeof(*in6);
	} else {
		die("no such address: %s", addr);
	}
}

/* The port that it will be bound to may have connections in TIME_WAIT. */
static int stream_socket(const char *addr, int flags, int protocol)
{
	const int family = strchr(addr, ':') ? AF_INET6 : AF_INET, on = 1;
	int fd = socket(family, SOCK_STREAM | flags, protocol);

	if (fd < 0)
		die("socket of protocol %d: %s", protocol, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	return fd;
}

int tcp_socket(const char *addr, int flags)
{
	return stream_socket(addr, flags, 0);
}

/* A socket with --option. */
int option_socket(const struct options *o)
{
	struct sock_filter accept_all = BPF_STMT(BPF_RET | BPF_K, 0x7fffffff);
	const struct sock_fprog filter = { 1, &accept_all };
	const unsigned int rate = 100 * 1000 * 1000;
	const char *name = o->option;
	int fd, on = 1, err;

	if (!name)
		return tcp_socket(o->addr, 0);
	if (!strcmp(name, "mptcp"))
		return stream_socket(o->addr, 0, IPPROTO_MPTCP);
	fd = tcp_socket(o->addr, 0);
	if (!strcmp(name, "pacing"))
		err = setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	else if (!strcmp(name, "timestamps"))
		err = setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on));
	else if (!strcmp(name, "filter"))
		err = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
	else
		die("no such option: %s", name);
	if (err)
		die("%s: %s", name, strerror(errno));
	return fd;
}

static void usage(void)
{
	fprintf(stderr,
		"load serve ADDR PORT [--tenant T] [--fastopen] [--option mptcp]   echo; dies of a byte of another tenant\n"
		"load proxy ADDR PORT                 carry to where REDIRECT took it from\n"
		"load run ADDR PORT [--tenant T] [--conns N] [--rounds N] [--size N] [--bind PORT]\n"
		"                   [--hold] [--wait] [--fastopen] [--seconds N]\n"
		"                   [--option pacing|timestamps|filter|mptcp]\n"
		"       --wait: when connected \"connected\", then wait for a line; --hold: at the end\n"
		"       \"holding\", the same, and \"again\" repeats the rounds; --seconds: instead\n"
		"       of --rounds\n"
		"load churn ADDR PORT [--seconds N] [--workers N]  connect, send, end in every way\n"
		"load storm ADDR PORT --bind PORT [--rounds N]     one source port, again and again\n"
		"load simultaneous ADDR PORT --bind PORT           both ends connect at once\n"
		"load forge ADDR PORT --bind PORT                  mirrored sockets by TCP_REPAIR\n"
		"load pairs [--want N] [--seconds N] [INODE,INODE…]  summary; with namespaces: only these\n"
		"load list                            each pair\n"
		"load stat NAME                       one counter of the module\n");
	exit(2);
}

static int with_address(const char *cmd, const struct options *o)
{
	static const struct { const char *name; int (*fn)(const struct options *o); } list[] = {
		{ "serve", serve }, { "proxy", proxy }, { "run", run }, { "churn", churn },
		{ "storm", storm }, { "simultaneous", simultaneous }, { "forge", forge },
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (!strcmp(cmd, list[i].name))
			return list[i].fn(o);
	}
	usage();
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "tenant", required_argument, NULL, 't' },
		{ "conns", required_argument, NULL, 'c' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "size", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 'S' },
		{ "workers", required_argument, NULL, 'w' },
		{ "bind", required_argument, NULL, 'b' },
		{ "seed", required_argument, NULL, 'e' },
		{ "want", required_argument, NULL, 'W' },
		{ "option", required_argument, NULL, 'o' },
		{ "hold", no_argument, NULL, 'h' },
		{ "wait", no_argument, NULL, 'p' },
		{ "fastopen", no_argument, NULL, 'f' },
		{ }
	};
	struct options o = { .tenant = 1, .conns = 1, .rounds = 10, .size = 1000, .seconds = 5,
			     .workers = 4, .seed = 1 };
	unsigned int want = 0;
	struct rlimit rl = { 1 << 17, 1 << 17 };
	bool wanted = false;
	const char *cmd;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned int n = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (c) {
		case 't': o.tenant = n; break;
		case 'c': o.conns = n; break;
		case 'r': o.rounds = n; break;
		case 's': o.size = n; break;
		case 'S': o.seconds = n; o.timed = true; break;
		case 'w': o.workers = n; break;
		case 'b': o.bind = n; break;
		case 'e': o.seed = n; break;
		case 'W': want = n; wanted = true; break;
		case 'o': o.option = optarg; break;
		case 'h': o.hold = true; break;
		case 'p': o.wait = true; break;
		case 'f': o.fastopen = true; break;
		default: usage();
		}
	}
	if (optind == argc)
		usage();
	cmd = argv[optind++];
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &rl);
	if (!strcmp(cmd, "list"))
		return pairs_list();
	if (!strcmp(cmd, "stat") && optind < argc)
		return stat_show(argv[optind]);
	if (!strcmp(cmd, "pairs"))
		return pairs_summary(wanted ? want : ~0u, o.seconds, argc - optind, argv + optind);
	if (argc - optind != 2)
		usage();
	o.addr = argv[optind];
	o.port = atoi(argv[optind + 1]);
	return with_address(cmd, &o);
}
