// SPDX-License-Identifier: GPL-2.0
/*
 * splicefuzz: random sequences of operations on splices, each in a process of its own, against
 * the model of fuzz_model.c. A sequence that fails is printed as the steps that it takes.
 */
#include <getopt.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "fuzz.h"

#define SEQUENCE_SECONDS	90
#define FAILURES_MAX		3	/* then it is enough to look at */

struct tally *tally;
enum mutation mutation;
bool verbose;
static bool listing;		/* -v */
long patience = 20000;

static void play(uint64_t seed, uint64_t steps)
{
	static struct world w;

	world_open(&w, seed);
	settle(&w);
	for (int i = 0; i < STEPS_MAX; i++)
		if (steps >> i & 1)
			step(&w, i);
	finish(&w);
}

/* How many steps a sequence has: 30 to STEPS_MAX. */
static uint64_t all_steps(uint64_t seed)
{
	const int n = 30 + seed * 0x9e3779b97f4a7c15 % (STEPS_MAX - 29);

	return (1ull << n) - 1;
}

static void show(FILE *text)
{
	char line[256];

	rewind(text);
	while (fgets(line, sizeof(line), text))
		fputs(line, stdout);
}

/* True if the sequence is as it should be. Else, and with -v, prints what it did if @loud. */
static bool is_fine(uint64_t seed, uint64_t steps, bool loud)
{
	FILE *text = tmpfile();
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(SEQUENCE_SECONDS);
		if (!text || dup2(fileno(text), 1) < 0)
			_exit(2);
		play(seed, steps);
		exit(0);
	}
	waitpid(pid, &status, 0);
	if (text && loud && (status || listing))
		show(text);
	if (loud && WIFSIGNALED(status))
		printf("# %s\n", WTERMSIG(status) == SIGALRM ? "it hangs" :
		       strsignal(WTERMSIG(status)));
	fclose(text);
	return !status;
}

static bool fails(uint64_t seed, uint64_t steps, int tries)
{
	for (int i = 0; i < tries; i++)
		if (!is_fine(seed, steps, false))
			return true;
	return false;
}

/* Leaves out steps, many at once and then one by one, as long as it still fails. */
static uint64_t shrink(uint64_t seed, uint64_t steps, int tries)
{
	for (int size = 16; size; size /= 2) {
		for (int at = 0; at < STEPS_MAX; at += size) {
			const uint64_t less = steps & ~(((1ull << size) - 1) << at);

			if (less != steps && fails(seed, less, tries))
				steps = less;
		}
	}
	return steps;
}

static void report(uint64_t seed)
{
	uint64_t steps = all_steps(seed);
	const long patient = patience;
	int again = 0;

	patience = 4000;
	for (int i = 0; i < 3; i++)
		again += !is_fine(seed, steps, false);
	printf("# seed %llu fails %d of 3 times again\n", (unsigned long long)seed, again);
	if (again)
		steps = shrink(seed, steps, again == 3 ? 1 : 5);
	verbose = true;
	for (int i = 0; i < 10 && is_fine(seed, steps, true); i++)
		;
	verbose = false;
	patience = patient;
	printf("not ok splicefuzz: seed %llu (build/sosplice/splicefuzz -v --seed %llu --steps %llx"
	       " runs it again)\n", (unsigned long long)seed, (unsigned long long)seed,
	       (unsigned long long)steps);
}

static void show_tally(unsigned long n, long took)
{
	printf("# %lu sequences of %lu steps in %.1f s: %lu splices, %lu refused, %lu unspliced, "
	       "%lu raced with what they moved, %lu closed or reset; moved %lu bytes and "
	       "%lu datagrams; %lu bytes were read in %lu reads\n", n, tally->steps, took / 1000.0,
	       tally->splices, tally->refused, tally->unspliced, tally->hurried, tally->resets,
	       tally->moved, tally->datagrams, tally->bytes, tally->reads);
	printf("# ended with:");
	for (int i = 0; i < 256; i++)
		if (tally->ended[i])
			printf(" %s %lu", error_name(i), tally->ended[i]);
	printf("\n");
}

/* Each way in which a splice ends must have come about. */
static bool is_thorough(void)
{
	const int errors[] = { EFBIG, EPIPE, ELOOP, EMSGSIZE, ETIMEDOUT, ECONNREFUSED,
			       tls_is_there() ? ENOMSG : EFBIG };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (!tally->ended[errors[i]]) {
			printf("not ok splicefuzz-thorough: no splice ended with %s\n",
			       error_name(errors[i]));
			return false;
		}
	}
	return true;
}

static int fuzz(uint64_t seed, unsigned long count, uint64_t steps)
{
	const long began = ms();
	long told = began;
	unsigned long i;
	int failures = 0;

	printf("# seeds from %llu on\n", (unsigned long long)seed);
	for (i = 0; i < count && failures < FAILURES_MAX; i++) {
		if (!is_fine(seed + i, steps ? steps : all_steps(seed + i), true)) {
			failures++;
			if (!steps)
				report(seed + i);
		}
		if (ms() - told > 30000) {
			told = ms();
			printf("# %lu sequences in %ld s\n", i + 1, (told - began) / 1000);
		}
	}
	show_tally(i, ms() - began);
	if (!failures && count >= 200)
		failures = !is_thorough();
	if (!failures)
		printf("ok splicefuzz (%lu)\n", i);
	return !!failures;
}

/* One result of the kernel is falsified in each sequence, once it has come far enough. All that
 * were falsified must fail.
 */
static int self_test(uint64_t seed)
{
	static const char *const names[] = { "", "wrong-byte", "wrong-count", "wrong-error",
					     "lost-byte" };
	int failed = 0;

	for (int m = 1; m < MUTATIONS; m++) {
		int falsified = 0, missed = 0;

		patience = 2000;
		for (int i = 0; i < 100 && falsified < 10; i++) {
			bool fine;

			mutation = m;
			tally->mutated = 0;
			fine = is_fine(seed + i, all_steps(seed + i), false);
			mutation = NONE;
			falsified += !!tally->mutated;
			missed += tally->mutated && fine;
			if (!fine && !tally->mutated)
				printf("# seed %llu fails by itself\n",
				       (unsigned long long)(seed + i));
		}
		printf("%s splicefuzz-self-test-%s", falsified && !missed ? "ok" : "not ok", names[m]);
		if (!falsified || missed)
			printf(": %d of %d were not found", missed, falsified);
		printf("\n");
		failed |= !falsified || missed;
	}
	return failed;
}

static void usage(void)
{
	fprintf(stderr, "usage: splicefuzz [--seed N] [--count N] [--steps MASK] [--self-test] [-v]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "steps", required_argument, NULL, 'k' },
		{ "self-test", no_argument, NULL, 't' },
		{ "verbose", no_argument, NULL, 'v' },
		{ }
	};
	unsigned long count = 0;
	uint64_t seed, steps = 0;
	bool test = false;
	int opt;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return 2;
	seed >>= 24;
	while ((opt = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			count = count ?: 1;
			break;
		case 'n':
			count = strtoul(optarg, NULL, 0);
			break;
		case 'k':
			steps = strtoull(optarg, NULL, 16);
			break;
		case 't':
			test = true;
			break;
		case 'v':
			verbose = listing = true;
			break;
		default:
			usage();
		}
	}
	if (optind < argc)
		usage();
	signal(SIGPIPE, SIG_IGN);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	return test ? self_test(seed) : fuzz(seed, count ?: 300, steps);
}
