/* SPDX-License-Identifier: GPL-2.0 */
/* Candidate executions of a litmus test: litmus.c builds them, relations.c judges. */
#ifndef TEST_MODELS_LITMUS_H
#define TEST_MODELS_LITMUS_H

#include <stdbool.h>

#define EVENTS	32

enum kind { R, W, F };

enum tag {
	ONCE, ACQUIRE, RELEASE, NORETURN, LOCK, UNLOCK,	/* of R and W */
	MB, RMB, WMB, BEFORE_ATOMIC, AFTER_ATOMIC,	/* of F */
};

struct event {
	enum kind kind;
	enum tag tag;
	int thread;		/* -1: the value that a variable begins with */
	int var, val;
	int rmw;		/* the read of the same atomic operation, or -1 */
	unsigned int ctrl;	/* the reads that a branch before it depended on */
	unsigned int data;	/* the reads that its value comes from */
};

/* Events of a thread stand in program order. */
struct execution {
	int n;
	struct event e[EVENTS];
	int rf[EVENTS];			/* of a read: the write that it reads from */
	int co[EVENTS];			/* of a write: its place in its variable's order */
};

/* Tries every source of each read of @x and every order of the writes. Calls @fn for each
 * combination that the model allows.
 */
void execution_judge(struct execution *x, int n_vars, void (*fn)(const struct execution *x));

/* The value that a variable ends with. */
int execution_final(const struct execution *x, int var);

#endif /* TEST_MODELS_LITMUS_H */
