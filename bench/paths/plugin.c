// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's emulator: counts the instructions that the guest executes, by the
 * block of code that they stand in, while a program in the guest wants it.
 *
 *	-plugin plugin.so,on=ADDRESS,off=ADDRESS,done=ADDRESS,out=FILE
 *
 * The addresses are those of three functions of that program: from the call of the first to
 * that of the second everything counts, in whatever task. At the third what was counted is
 * appended to FILE, a line "ADDRESS INSTRUCTIONS" for each block that has run, and "done";
 * and counted anew. One emulated CPU only: nothing here is atomic.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of QEMU's plugin interface, which Debian packages no header of. PLUGIN_API is
 * its version, which must be one that the emulator knows: these are in all of them.
 */
#define EXPORTED	__attribute__((visibility("default")))

struct qemu_plugin_tb;	/* a block that is translated in one piece */

typedef void translated_fn(uint64_t id, struct qemu_plugin_tb *tb);
typedef void runs_fn(unsigned int cpu, void *data);

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn *cb);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, runs_fn *cb, int flags,
						 void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

EXPORTED int qemu_plugin_version = PLUGIN_API;

struct block {
	uint64_t address;
	uint64_t length;	/* instructions */
	uint64_t runs;		/* since the last done */
	struct block *next;
};

#define BUCKETS	(1 << 16)

static struct block *blocks[BUCKETS];
static uint64_t on_at, off_at, done_at;
static bool on;
static FILE *out;

/* QEMU may throw its translations away, and translates anew then. */
static struct block *block_of(uint64_t address, uint64_t length)
{
	struct block **bucket = &blocks[(address ^ address >> 16) % BUCKETS], *b;

	for (b = *bucket; b; b = b->next)
		if (b->address == address && b->length == length)
			return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		abort();
	b->address = address;
	b->length = length;
	b->next = *bucket;
	*bucket = b;
	return b;
}

static void block_runs(unsigned int cpu, void *data)
{
	struct block *b = data;

	(void)cpu;
	b->runs += on;
}

static void switch_on(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	on = true;
}

static void switch_off(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	on = false;
}

static void write_out(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct block *b = blocks[i]; b; b = b->next) {
			if (b->runs)
				fprintf(out, "%" PRIx64 " %" PRIu64 "\n", b->address, b->runs * b->length);
			b->runs = 0;
		}
	}
	fprintf(out, "done\n");
	if (fflush(out)) {
		perror("the plugin's file");
		abort();
	}
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);

	(void)id;
	if (address == on_at)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, switch_on, 0, NULL);
	else if (address == off_at)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, switch_off, 0, NULL);
	else if (address == done_at)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, write_out, 0, NULL);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, 0,
						     block_of(address, qemu_plugin_tb_n_insns(tb)));
}

EXPORTED int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	const char *path = NULL;

	(void)info;
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			continue;
		*value++ = '\0';
		if (!strcmp(argv[i], "on"))
			on_at = strtoull(value, NULL, 16);
		else if (!strcmp(argv[i], "off"))
			off_at = strtoull(value, NULL, 16);
		else if (!strcmp(argv[i], "done"))
			done_at = strtoull(value, NULL, 16);
		else if (!strcmp(argv[i], "out"))
			path = value;
	}
	if (!on_at || !off_at || !done_at || !path) {
		fprintf(stderr, "plugin.so wants on=, off=, done= and out=\n");
		return -1;
	}
	out = fopen(path, "w");
	if (!out) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
