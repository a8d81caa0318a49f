// SPDX-License-Identifier: GPL-2.0
/*
 * The runner: each case in a child of its own, once on plain TCP and once paired;
 * compares the two transcripts and demands the ring bytes.
 */
#include "behave.h"

#include <fnmatch.h>
#include <getopt.h>
#include <sched.h>
#include <time.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "child.h"
#include "netns.h"

#define PARAM "/sys/module/socksplice/parameters/enroll_all"

struct env env;
static int timeout_s = 30;
static bool verbose, no_swap;
static unsigned int n_ok, n_bad, n_skip;

static const struct bcase *const topics[] = {
	io_cases, ready_cases, edge_cases, wait_cases, flags_cases, urgent_cases, cmsg_cases,
	fault_cases, share_cases, shut_cases, close_cases, window_cases, splice_cases, uring_cases,
	start_cases, bulk_cases, later_cases, again_cases, drop_cases, early_cases,
};
static const char *const topic_names[] = {
	"io", "ready", "edge", "wait", "flags", "urgent", "cmsg", "fault", "share", "shut",
	"close", "window", "splice", "uring", "start", "bulk", "later", "again", "drop", "early",
};

static void enroll(bool on)
{
	int fd = open(PARAM, O_WRONLY);

	if (fd < 0 || write(fd, on ? "1" : "0", 1) != 1) {
		fprintf(stderr, "behave: cannot write %s: %s\n", PARAM, strerror(errno));
		exit(2);
	}
	close(fd);
}

static void run_case(const void *arg)
{
	const struct bcase *bc = arg;

	bc->run();
}

static const char *proof_wrong(const struct bcase *bc)
{
	if (bc->path == PATH_ANY || env.storm)
		return NULL;
	if (!sh->proofs)
		return "the case does not look at the pair";
	if (bc->path == PATH_TCP)
		return sh->ring ? "bytes went by ring that should not" : NULL;
	if (!sh->pairs)
		return "the connection was not paired";
	return sh->ring ? NULL : "no bytes went by ring";
}

/* What a case said on plain TCP; NULL if there is nothing to compare with. */
static char **plain;
static double *plain_time;
static size_t n_plain;

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void run_plain(const struct bcase *bc, const char *label)
{
	char msg[sizeof(sh->why) + 64];
	double began = seconds();
	const char *err = child_run(run_case, bc, timeout_s, false, msg, sizeof(msg));

	plain = realloc(plain, (n_plain + 1) * sizeof(*plain));
	plain_time = realloc(plain_time, (n_plain + 1) * sizeof(*plain_time));
	plain_time[n_plain] = seconds() - began;
	plain[n_plain] = NULL;
	if (sh->skipped) {
		printf("skip %s: %s\n", label, sh->why);
		n_skip++;
	} else if (err) {
		printf("%s", verbose ? sh->text : "");
		printf("not ok %s: on plain TCP: %s\n", label, err);
		n_bad++;
	} else {
		plain[n_plain] = strdup(sh->text);
	}
	n_plain++;
	if (n_plain % 50 == 0)
		printf("# %zu cases recorded on plain TCP\n", n_plain);
}

static void run_second(const struct bcase *bc, const char *label, size_t at, bool self)
{
	const char *first = plain[at];
	char msg[sizeof(sh->why) + 64];
	double began = seconds();
	const char *err;

	if (!first)
		return;
	err = child_run(run_case, bc, timeout_s, false, msg, sizeof(msg));
	if (!err && sh->skipped)
		err = sh->why;
	if (verbose)
		printf("%s", first);
	if (err || strcmp(first, sh->text)) {
		show_difference(first, sh->text);
		if (verbose)
			printf("%s", sh->text);
		printf("not ok %s: %s\n", label, err ?: "the transcripts differ");
		n_bad++;
		return;
	}
	if (!self)
		err = proof_wrong(bc);
	if (err) {
		printf("not ok %s: %s\n", label, err);
		n_bad++;
		return;
	}
	printf("ok %s (%.1f s, then %.1f s", label, plain_time[at], seconds() - began);
	if (!self)
		printf(", ring %llu, tcp %llu bytes", (unsigned long long)sh->ring,
		       (unsigned long long)sh->tcp);
	printf("%s%s)\n", bc->why ? "; " : "", bc->why ?: "");
	n_ok++;
}

static bool wanted(const char *name, char **globs, int n)
{
	for (int i = 0; i < n; i++) {
		if (!fnmatch(globs[i], name, 0))
			return true;
	}
	return !n;
}

/* First every case on plain TCP, then every case paired: switching the pairing
 * patches the kernel's code, which is dear and which emulators get wrong if it
 * is done hundreds of times under load.
 */
static void run_phase(char **globs, int n, bool list, bool self, const int *families, int nfam,
		      bool second)
{
	size_t at = 0;

	for (size_t t = 0; t < ARRAY_SIZE(topics); t++) {
		for (const struct bcase *bc = topics[t]; bc->name; bc++) {
			char name[100], label[160];

			snprintf(name, sizeof(name), "%s/%s", topic_names[t], bc->name);
			if (!wanted(name, globs, n))
				continue;
			if (env.storm && (bc->pair || topics[t] == drop_cases))
				continue;
			if (list) {
				printf("%s%s%s\n", name, bc->why ? ": " : "", bc->why ?: "");
				continue;
			}
			for (int f = 0; f < nfam; f++) {
				if (bc->slow && !n && !getenv("TEST_FULL") &&
				    (env.netns || env.storm || families[f] != 4))
					continue;
				for (int swap = 0; swap <= (!bc->once && !no_swap); swap++) {
					env.family = families[f];
					env.swap = swap;
					snprintf(label, sizeof(label), "behave/%s/v%d%s%s", name,
						 env.family, env.netns ? "/netns" : "",
						 swap ? "/swapped" : "");
					if (second)
						run_second(bc, label, at++, self);
					else
						run_plain(bc, label);
					fflush(stdout);
				}
			}
		}
	}
}

/* While the cases run, all pairs are taken back to TCP again and again, at moments
 * that no two runs share.
 */
static pid_t storm_start(void)
{
	uint64_t random = env.seed;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pairs_open())
		_exit(1);
	for (;;) {
		pairs_drop_all();
		usleep(rnd(&random) % 60000);
	}
}

static void run_all(char **globs, int n, bool self, const int *families, int nfam)
{
	pid_t stormer;

	n_plain = 0;
	if (!self)
		enroll(false);
	run_phase(globs, n, false, self, families, nfam, false);
	env.paired = !self;
	if (!self)
		enroll(true);
	stormer = env.storm ? storm_start() : 0;
	run_phase(globs, n, false, self, families, nfam, true);
	if (stormer) {
		if (waitpid(stormer, NULL, WNOHANG)) {
			printf("not ok behave/storm: it ended early\n");
			n_bad++;
		}
		kill(stormer, SIGKILL);
		waitpid(stormer, NULL, 0);
	}
	env.paired = false;
	for (size_t i = 0; i < n_plain; i++)
		free(plain[i]);
}

/* Time stamping is patched into the kernel's code by its first user and out by
 * its last, with a delay. One user for all the time keeps that still.
 */
static void keep_stamping(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
}

static void usage(void)
{
	fprintf(stderr,
		"usage: behave [--list] [--self] [--family 4|6|46] [--netns] [--timeout SECONDS]\n"
		"              [--seed N] [--repeat N] [--no-swap] [--storm] [-v] [TOPIC/CASE-GLOB…]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "list", no_argument, NULL, 'l' },
		{ "self", no_argument, NULL, 's' },
		{ "family", required_argument, NULL, 'f' },
		{ "netns", no_argument, NULL, 'n' },
		{ "timeout", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 'e' },
		{ "repeat", required_argument, NULL, 'r' },
		{ "no-swap", no_argument, NULL, 'S' },
		{ "storm", no_argument, NULL, 'd' },
		{ "verbose", no_argument, NULL, 'v' },
		{ }
	};
	int families[3] = { 4, 6 }, nfam = 2, repeat = 1, c, was = '0';
	bool list = false, self = false, chosen = false;

	env.seed = 1;
	while ((c = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			list = true;
			break;
		case 's':
			self = true;
			break;
		case 'f':
			if (!chosen)
				nfam = 0;
			chosen = true;
			if (nfam == 3)
				usage();
			families[nfam++] = atoi(optarg);
			if (!strstr("4 6 46", optarg))
				usage();
			break;
		case 'n':
			env.netns = true;
			break;
		case 't':
			timeout_s = atoi(optarg);
			break;
		case 'e':
			env.seed = strtoul(optarg, NULL, 0);
			break;
		case 'r':
			repeat = atoi(optarg);
			break;
		case 'S':
			no_swap = true;
			break;
		case 'd':
			env.storm = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			usage();
		}
	}
	if (!child_init())
		return 2;
	if (!list) {
		struct rlimit rl = { 65536, 65536 };

		setrlimit(RLIMIT_NOFILE, &rl);
		if (env.netns)
			netns_setup();
		if (!self) {
			int fd = open(PARAM, O_RDONLY);

			if (fd < 0 || read(fd, &was, 1) != 1 || pairs_open()) {
				fprintf(stderr, "behave: the module socksplice is not loaded\n");
				return 2;
			}
			close(fd);
		}
	}
	if (list) {
		run_phase(argv + optind, argc - optind, true, true, families, 1, false);
		return 0;
	}
	keep_stamping();
	while (repeat--)
		run_all(argv + optind, argc - optind, self, families, nfam);
	if (!self)
		enroll((char)was == '1' || (char)was == 'Y');
	printf("# %u ok, %u not ok, %u skipped\n", n_ok, n_bad, n_skip);
	return n_bad != 0;
}
