/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A run in a child of its own, and what it leaves in memory for its parent. The
 * behaviour suite and the fuzzer run everything so.
 */
#ifndef BEHAVE_CHILD_H
#define BEHAVE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Written by the child and its own children and threads; read by the parent when
 * they are gone. steps and where also while they run.
 */
struct shared {
	int done, failed, skipped;
	unsigned int steps;		/* calls of where() */
	char why[512];
	char where[256];
	int proofs, pairs;
	uint64_t ring, tcp;
	uint32_t len;
	char text[1 << 17];		/* what say() was told */
};
extern struct shared *sh;

/* Makes sh; false if there is no memory. */
bool child_init(void);

/*
 * Calls @run in a child. Returns NULL, also where the child has skipped, or what went
 * wrong, in @msg. A child that takes longer than @limit seconds has hung, or with
 * @by_progress one that has come to no new where() for that long.
 */
const char *child_run(void (*run)(const void *arg), const void *arg, int limit,
		      bool by_progress, char *msg, size_t msglen);

/* Prints the first line in which two transcripts differ. */
void show_difference(const char *plain, const char *paired);

#endif
