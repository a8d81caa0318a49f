// SPDX-License-Identifier: GPL-2.0
/*
 * The loop: each program on plain TCP and then paired, the transcripts compared,
 * and what fails made small.
 */
#include "fuzz.h"

#include <getopt.h>
#include <time.h>
#include <sys/random.h>
#include <sys/resource.h>

#define PARAM "/sys/module/socksplice/parameters/"

#define FAILURES_MAX	3	/* then it is enough to look at */
#define AGAIN		3	/* runs in which a failure should show again */

struct env env;
static bool plain_only, verbose, no_shrink;
static int limit_s = 30;	/* without any progress */
static unsigned long n_runs, n_ring, ring_bytes, tcp_bytes;

enum outcome { SAME, DIFFERENT, PAIRED_WRONG, PLAIN_WRONG };
static enum outcome sought;
static char plain_text[sizeof(((struct shared *)NULL)->text)];
static char message[sizeof(((struct shared *)NULL)->why) + 64];

static int param(const char *name, int value)
{
	char path[128], was = '0';
	int fd;

	snprintf(path, sizeof(path), PARAM "%s", name);
	fd = open(path, O_RDWR);
	if (fd < 0 || read(fd, &was, 1) != 1 ||
	    (value >= 0 && pwrite(fd, value ? "1" : "0", 1, 0) != 1)) {
		fprintf(stderr, "fuzz: %s: %s (is the module socksplice loaded?)\n", path,
			strerror(errno));
		exit(2);
	}
	close(fd);
	return was == '1' || was == 'Y';
}

static void number(const char *name, unsigned int value)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), PARAM "%s", name);
	f = fopen(path, "w");
	if (!f || fprintf(f, "%u", value) < 0 || fclose(f)) {
		perror(path);
		exit(2);
	}
}


static bool run(const struct program *p, bool paired)
{
	bool wrong;

	if (!plain_only) {
		param("pairing", paired);
		/* for every other program rings may grow */
		number("ring_max", p->seed % 2 ? 1 << 20 : 0);
	}
	env.paired = paired && !plain_only;
	wrong = child_run(play, p, limit_s, true, message, sizeof(message));
	if (sh->skipped) {
		snprintf(message, sizeof(message), "skipped: %s", sh->why);
		wrong = true;
	}
	return !wrong;
}

static enum outcome compare(const struct program *p)
{
	const bool right = run(p, false);

	if (verbose)
		printf("%s", sh->text);
	if (!right)
		return PLAIN_WRONG;
	memcpy(plain_text, sh->text, sizeof(plain_text));
	n_runs++;
	if (!run(p, true))
		return PAIRED_WRONG;
	n_ring += sh->ring > 0;
	ring_bytes += sh->ring;
	tcp_bytes += sh->tcp;
	if (!strcmp(plain_text, sh->text))
		return SAME;
	snprintf(message, sizeof(message), "the results differ");
	return DIFFERENT;
}

static bool fails(const struct program *p)
{
	return compare(p) == sought;
}

static bool fails_often(const struct program *p)
{
	for (int i = 0; i < AGAIN; i++) {
		if (fails(p))
			return true;
	}
	return false;
}

static void report(struct program *p, enum outcome outcome)
{
	static const char *const names[] = {
		[DIFFERENT] = "", [PAIRED_WRONG] = "paired: ", [PLAIN_WRONG] = "on plain TCP: ",
	};
	char first[sizeof(message)];
	int times = 0;

	memcpy(first, message, sizeof(first));
	printf("# seed %llu, %s%s\n", (unsigned long long)p->seed, names[outcome], first);
	if (outcome == DIFFERENT)
		show_difference(plain_text, sh->text);
	fflush(stdout);
	sought = outcome;
	limit_s = limit_s > 10 ? 10 : limit_s;
	for (int i = 0; i < AGAIN; i++)
		times += fails(p);
	if (times && !no_shrink) {
		shrink(p, times == AGAIN ? fails : fails_often);
		for (int i = 0; i < AGAIN && !fails(p); i++)
			;
		printf("# shrunk to:\n");
	} else {
		printf("# %d of %d times again; the program:\n", times, AGAIN);
	}
	program_print(p);
	if (times && outcome == DIFFERENT)
		show_difference(plain_text, sh->text);
	printf("not ok fuzz/sequences: seed %llu: %s%s (build/fuzz/fuzz --seed %llu runs it again)\n",
	       (unsigned long long)p->seed, names[outcome], first, (unsigned long long)p->seed);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int fuzz(uint64_t seed, unsigned long count)
{
	double began = seconds(), told = began;
	static struct program p;
	enum outcome outcome;
	int failures = 0;

	printf("# seeds from %llu on\n", (unsigned long long)seed);
	for (unsigned long i = 0; i < count && failures < FAILURES_MAX; i++) {
		plan(&p, seed + i);
		outcome = compare(&p);
		if (outcome != SAME) {
			const int limit = limit_s;

			report(&p, outcome);
			limit_s = limit;
			failures++;
		}
		if (seconds() - told > 30) {
			told = seconds();
			printf("# %lu sequences in %.0f s\n", i + 1, told - began);
		}
		fflush(stdout);
	}
	printf("# %lu sequences in %.1f s; %lu of them used a ring, %lu bytes by ring, %lu by TCP\n",
	       n_runs, seconds() - began, n_ring, ring_bytes, tcp_bytes);
	if (!failures && !plain_only && count >= 20 && n_ring < n_runs / 2) {
		printf("not ok fuzz/sequences: too few of them used a ring\n");
		failures++;
	}
	if (!failures)
		printf("ok fuzz/sequences (%lu)\n", n_runs);
	return failures != 0;
}

/* One result of the paired run is falsified: of a read of more than a byte from an end
 * that has got a FIN. That must be found, and shrunk to at most a send, a shutdown or
 * close, and a read.
 */
static int self_test(uint64_t seed)
{
	static struct program p;

	mutate = true;
	sought = DIFFERENT;
	for (int i = 0; i < 500; i++) {
		plan(&p, seed + i);
		if (compare(&p) != DIFFERENT)
			continue;
		printf("# found after %d sequences, in one of %d operations; shrunk to:\n", i + 1,
		       p.count);
		shrink(&p, fails);
		program_print(&p);
		if (p.count > 3) {
			printf("not ok fuzz/self-test: not as small as it could be\n");
			return 1;
		}
		printf("ok fuzz/self-test\n");
		return 0;
	}
	printf("not ok fuzz/self-test: a falsified result was not found\n");
	return 1;
}

static void usage(void)
{
	fprintf(stderr,
		"usage: fuzz [--seed N] [--count N | --forever] [--limit SECONDS] [--no-shrink]\n"
		"            [--self-test] [--plain] [--print] [-v]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "forever", no_argument, NULL, 'f' },
		{ "limit", required_argument, NULL, 'l' },
		{ "no-shrink", no_argument, NULL, 'S' },
		{ "self-test", no_argument, NULL, 't' },
		{ "plain", no_argument, NULL, 'p' },
		{ "print", no_argument, NULL, 'P' },
		{ "verbose", no_argument, NULL, 'v' },
		{ }
	};
	struct rlimit no_core = { 0, 0 };
	bool test = false, print = false, enrolled = false, pairing = false;
	unsigned long count = 0;
	uint64_t seed;
	int opt, ret;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return 2;
	seed >>= 20;
	while ((opt = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			count = count ?: 1;
			break;
		case 'n':
			count = strtoul(optarg, NULL, 0);
			break;
		case 'f':
			count = ~0ul;
			break;
		case 'l':
			limit_s = atoi(optarg);
			break;
		case 'S':
			no_shrink = true;
			break;
		case 't':
			test = true;
			break;
		case 'p':
			plain_only = true;
			break;
		case 'P':
			print = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			usage();
		}
	}
	if (optind < argc)
		usage();
	if (print) {
		struct program p;

		plan(&p, seed);
		program_print(&p);
		return 0;
	}
	setrlimit(RLIMIT_CORE, &no_core);
	if (!child_init())
		return 2;
	if (!plain_only) {
		if (pairs_open()) {
			fprintf(stderr, "fuzz: the module socksplice is not loaded\n");
			return 2;
		}
		pairing = param("pairing", -1);
		enrolled = param("enroll_all", 1);
	}
	ret = test ? self_test(seed) : fuzz(seed, count ?: 500);
	if (!plain_only) {
		number("ring_max", 0);
		param("enroll_all", enrolled);
		param("pairing", pairing);
	}
	return ret;
}
