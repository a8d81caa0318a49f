/* SPDX-License-Identifier: GPL-2.0 */
/* A litmus test as parse.c reads it. litmus.c executes it, and arm64.c translates it. */
#ifndef TEST_MODELS_PARSE_H
#define TEST_MODELS_PARSE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include "litmus.h"

#define MAX_THREADS	4
#define MAX_OPS		32
#define MAX_NAMES	32	/* variables, or registers of all threads */
#define MAX_VALUES	8

enum op_kind { OP_READ, OP_WRITE, OP_FENCE, OP_ADD, OP_XCHG, OP_LOCK, OP_UNLOCK, OP_SET,
	       OP_BRANCH };

struct value {
	int reg;	/* or -1 */
	int number;
};

struct op {
	enum op_kind kind;
	enum tag tag;
	int var, reg;
	struct value value;	/* written, added, set; compared with, for a branch */
	bool unequal;		/* a branch is taken if the two differ */
	int target;
};

struct test {
	char var_names[MAX_NAMES][32];
	char reg_names[MAX_NAMES][32];	/* as in the condition, 1:r0 */
	int n_vars, n_regs, n_threads, n_values;
	int init[MAX_NAMES];
	struct op ops[MAX_THREADS][MAX_OPS];
	int n_ops[MAX_THREADS];
	int values[MAX_VALUES];		/* each that a variable or a register may have */
	const char *condition;		/* the text after "exists" */
	char expected[16];		/* the word after "Result:" */
};

extern struct test test;

/* Where the parser is, and where it goes, with the reason, if a file uses what it does not know. */
extern const char *at;
extern jmp_buf unsupported;
extern char why[128];

void parse(const char *text);

/* The parser's tools, for the condition. */
void give_up(const char *what);
bool accept(const char *token);
void need(const char *token);
const char *word(void);
int number(void);
int variable(void);
int var_of(const char *name);				/* -1: not there */
int reg_of(int thread, const char *name, bool add);	/* -1: not there, and not added */

/* arm64.c: writes the test in instructions, with atomic operations of ARMv8.1 or, without @lse, by
 * exclusive loads and stores.
 */
void arm64_print(FILE *f, const char *title, bool lse);

#endif /* TEST_MODELS_PARSE_H */
