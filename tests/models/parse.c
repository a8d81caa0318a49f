// SPDX-License-Identifier: GPL-2.0
/*
 * Reads a litmus test. The format is the kernel's
 * (tools/memory-model/Documentation/litmus-tests.txt). It understands the part of it that our
 * tests use: marked accesses, fences, release and acquire, a few atomic operations, spin locks,
 * if; no RCU, no plain accesses. If a file uses more, it says so.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

struct test test;
const char *at;
jmp_buf unsupported;
char why[128];

void give_up(const char *what)
{
	snprintf(why, sizeof(why), "%s: \"%.*s\"", what, (int)strcspn(at, "\n"), at);
	longjmp(unsupported, 1);
}

static void blanks(void)
{
	for (;;) {
		while (isspace((unsigned char)*at))
			at++;
		if (!strncmp(at, "(*", 2) && at[2] != '(')
			at = strstr(at, "*)") ? strstr(at, "*)") + 2 : at + strlen(at);
		else if (!strncmp(at, "//", 2))
			at += strcspn(at, "\n");
		else
			return;
	}
}

bool accept(const char *token)
{
	size_t len = strlen(token);

	blanks();
	if (strncmp(at, token, len))
		return false;
	if (isalnum((unsigned char)token[len - 1]) &&
	    (isalnum((unsigned char)at[len]) || at[len] == '_'))
		return false;
	at += len;
	return true;
}

void need(const char *token)
{
	if (!accept(token))
		give_up(token);
}

const char *word(void)
{
	static char w[32];
	size_t n = 0;

	blanks();
	while ((isalnum((unsigned char)*at) || *at == '_') && n < sizeof(w) - 1)
		w[n++] = *at++;
	w[n] = 0;
	if (!n)
		give_up("a name");
	return w;
}

int number(void)
{
	char *end;
	long v;

	blanks();
	v = strtol(at, &end, 0);
	if (end == at)
		give_up("a number");
	at = end;
	for (int i = 0; i < test.n_values; i++)
		if (test.values[i] == v)
			return v;
	if (test.n_values == MAX_VALUES)
		give_up("too many values");
	test.values[test.n_values++] = v;
	return v;
}

static int find(char (*names)[32], int *n, const char *name, bool add)
{
	for (int i = 0; i < *n; i++)
		if (!strcmp(names[i], name))
			return i;
	if (!add)
		return -1;
	if (*n == MAX_NAMES)
		give_up("too many names");
	strcpy(names[*n], name);
	return (*n)++;
}

int var_of(const char *name)
{
	return find(test.var_names, &test.n_vars, name, false);
}

int variable(void)
{
	accept("*");
	accept("&");
	return find(test.var_names, &test.n_vars, word(), true);
}

/* Registers are named as in the condition: 1:r0. */
int reg_of(int thread, const char *name, bool add)
{
	char full[48];

	snprintf(full, sizeof(full), "%d:%s", thread, name);
	full[31] = 0;
	return find(test.reg_names, &test.n_regs, full, add);
}

static struct value value(int thread)
{
	struct value v = { -1, 0 };

	blanks();
	if (isdigit((unsigned char)*at) || *at == '-') {
		v.number = number();
	} else {
		v.reg = reg_of(thread, word(), false);
		if (v.reg < 0)
			give_up("a register");
	}
	return v;
}

static struct op *new_op(int thread, enum op_kind kind)
{
	struct op *op = &test.ops[thread][test.n_ops[thread]++];

	if (test.n_ops[thread] > MAX_OPS)
		give_up("too many statements");
	memset(op, 0, sizeof(*op));
	op->kind = kind;
	op->reg = -1;
	return op;
}

static void fence(int thread, enum tag tag)
{
	new_op(thread, OP_FENCE)->tag = tag;
}

/* Parses a statement that yields a value: "r = ..." */
static void assignment(int thread, int reg)
{
	struct op *op;

	if (accept("READ_ONCE(") || accept("atomic_read(") || accept("rcu_dereference(")) {
		op = new_op(thread, OP_READ);
		op->tag = ONCE;
		op->var = variable();
		need(")");
	} else if (accept("smp_load_acquire(")) {
		op = new_op(thread, OP_READ);
		op->tag = ACQUIRE;
		op->var = variable();
		need(")");
	} else if (accept("xchg(") || accept("atomic_xchg(")) {
		fence(thread, MB);
		op = new_op(thread, OP_XCHG);
		op->tag = ONCE;
		op->var = variable();
		need(",");
		op->value = value(thread);
		op->reg = reg;
		need(")");
		fence(thread, MB);
	} else {
		op = new_op(thread, OP_SET);
		op->value = value(thread);
	}
	op->reg = reg;
	need(";");
}

static void atomic_add(int thread, int number_added)
{
	struct op *op = new_op(thread, OP_ADD);

	op->value.reg = -1;
	op->value.number = number_added;
	op->var = variable();
	need(")");
	need(";");
}

static void lock(int thread, enum op_kind kind)
{
	new_op(thread, kind)->var = variable();
	need(")");
	need(";");
}

static void store(int thread, enum tag tag)
{
	struct op *op = new_op(thread, OP_WRITE);

	op->tag = tag;
	op->var = variable();
	need(",");
	op->value = value(thread);
	need(")");
	need(";");
}

static void statement(int thread);

static void block(int thread)
{
	if (!accept("{")) {
		statement(thread);
		return;
	}
	while (!accept("}"))
		statement(thread);
}

static void condition_of_if(int thread, struct op *op)
{
	bool not = accept("!");

	op->reg = reg_of(thread, word(), false);
	if (op->reg < 0)
		give_up("a register");
	op->value.reg = -1;
	op->unequal = false;	/* skip the block if the value is 0 */
	if (accept("==")) {
		op->value = value(thread);
		op->unequal = true;
	} else if (accept("!=")) {
		op->value = value(thread);
	}
	op->unequal ^= not;
	need(")");
}

static void statement(int thread)
{
	static const struct { const char *name; enum tag tag; } fences[] = {
		{ "smp_mb()", MB }, { "smp_rmb()", RMB }, { "smp_wmb()", WMB },
		{ "smp_mb__before_atomic()", BEFORE_ATOMIC },
		{ "smp_mb__after_atomic()", AFTER_ATOMIC },
	};

	for (size_t i = 0; i < sizeof(fences) / sizeof(*fences); i++) {
		if (accept(fences[i].name)) {
			need(";");
			fence(thread, fences[i].tag);
			return;
		}
	}
	if (accept("WRITE_ONCE(") || accept("atomic_set(")) {
		store(thread, ONCE);
	} else if (accept("smp_store_release(") || accept("rcu_assign_pointer(")) {
		store(thread, RELEASE);
	} else if (accept("spin_lock(")) {
		lock(thread, OP_LOCK);
	} else if (accept("spin_unlock(")) {
		lock(thread, OP_UNLOCK);
	} else if (accept("atomic_inc(")) {
		atomic_add(thread, 1);
	} else if (accept("atomic_dec(")) {
		atomic_add(thread, -1);
	} else if (accept("if")) {
		int branch = test.n_ops[thread], over;

		need("(");
		condition_of_if(thread, new_op(thread, OP_BRANCH));
		block(thread);
		if (accept("else")) {
			over = test.n_ops[thread];
			new_op(thread, OP_BRANCH);	/* without a register: always taken */
			test.ops[thread][branch].target = test.n_ops[thread];
			block(thread);
			test.ops[thread][over].target = test.n_ops[thread];
		} else {
			test.ops[thread][branch].target = test.n_ops[thread];
		}
	} else if (accept("int")) {
		int reg = reg_of(thread, word(), true);

		if (accept("="))
			assignment(thread, reg);
		else
			need(";");
	} else {
		int reg = reg_of(thread, word(), false);

		if (reg < 0)
			give_up("a statement");
		need("=");
		assignment(thread, reg);
	}
}

static void initial_values(void)
{
	int v;

	need("{");
	while (!accept("}")) {
		bool atomic = accept("atomic_t");

		if (!atomic)
			accept("int");
		v = variable();
		if (!accept("=")) {
			need(";");
			continue;
		}
		if (accept("ATOMIC_INIT(")) {
			test.init[v] = number();
			need(")");
		} else {
			test.init[v] = number();
		}
		accept(";");
	}
}

/* atomic_inc() and atomic_dec() make values that the file does not contain. */
static void values_made(void)
{
	for (int t = 0; t < test.n_threads; t++) {
		for (int i = 0; i < test.n_ops[t]; i++) {
			int n = test.n_values;

			if (test.ops[t][i].kind != OP_ADD)
				continue;
			for (int k = 0; k < n; k++) {
				char made[16];

				sprintf(made, "%d", test.values[k] + test.ops[t][i].value.number);
				at = made;
				number();
			}
		}
	}
}

void parse(const char *text)
{
	const char *result = strstr(text, "Result:");

	memset(&test, 0, sizeof(test));
	test.n_values = 1;	/* 0 */
	if (result)
		sscanf(result, "Result: %15[A-Za-z]", test.expected);

	at = text;
	need("C");
	at += strcspn(at, "\n");
	initial_values();
	while (accept("P0(") || accept("P1(") || accept("P2(") || accept("P3(")) {
		at = strchr(at, ')');
		need(")");
		need("{");
		if (test.n_threads == MAX_THREADS)
			give_up("too many threads");
		while (!accept("}"))
			statement(test.n_threads);
		test.n_threads++;
	}
	need("exists");
	test.condition = at;
	values_made();
}
