// SPDX-License-Identifier: GPL-2.0
/*
 * litmus FILE.litmus...: applies the kernel's memory model to litmus tests, on machines without
 * herd7. The format is the kernel's (tools/memory-model/Documentation/litmus-tests.txt). For each
 * file it prints whether the verdict is the one after "Result:" in the file.
 *
 * It understands the part of the format that our tests use: marked accesses, fences, release and
 * acquire, a few atomic operations, spin locks, if; no RCU, no plain accesses. If a file uses
 * more, it says so. It builds every candidate execution and checks it by the axioms of
 * linux-kernel.cat (relations.c).
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The test */
static char var_names[MAX_NAMES][32], reg_names[MAX_NAMES][32];
static int n_vars, n_regs, n_threads, init[MAX_NAMES];
static struct op ops[MAX_THREADS][MAX_OPS];
static int n_ops[MAX_THREADS];
static int values[MAX_VALUES], n_values;
static const char *condition;
static char expected[16];

/* One execution of it */
static struct execution x;
static int regs[MAX_NAMES];
static unsigned int from[MAX_NAMES];	/* the reads that a register's value comes from */
static unsigned long n_yes, n_all;

/* --- the file --- */

static const char *at;
static jmp_buf unsupported;
static char why[128];

static void give_up(const char *what)
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

static bool accept(const char *token)
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

static void need(const char *token)
{
	if (!accept(token))
		give_up(token);
}

static const char *word(void)
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

static int number(void)
{
	char *end;
	long v;

	blanks();
	v = strtol(at, &end, 0);
	if (end == at)
		give_up("a number");
	at = end;
	for (int i = 0; i < n_values; i++)
		if (values[i] == v)
			return v;
	if (n_values == MAX_VALUES)
		give_up("too many values");
	values[n_values++] = v;
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

static int variable(void)
{
	accept("*");
	accept("&");
	return find(var_names, &n_vars, word(), true);
}

/* Registers are named as in the condition: 1:r0. */
static int reg_of(int thread, const char *name, bool add)
{
	char full[48];

	snprintf(full, sizeof(full), "%d:%s", thread, name);
	full[31] = 0;
	return find(reg_names, &n_regs, full, add);
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
	struct op *op = &ops[thread][n_ops[thread]++];

	if (n_ops[thread] > MAX_OPS)
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
		int branch = n_ops[thread], over;

		need("(");
		condition_of_if(thread, new_op(thread, OP_BRANCH));
		block(thread);
		if (accept("else")) {
			over = n_ops[thread];
			new_op(thread, OP_BRANCH);	/* without a register: always taken */
			ops[thread][branch].target = n_ops[thread];
			block(thread);
			ops[thread][over].target = n_ops[thread];
		} else {
			ops[thread][branch].target = n_ops[thread];
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

static void parse(const char *text)
{
	const char *result = strstr(text, "Result:");
	int v;

	n_vars = n_regs = n_threads = 0;
	memset(n_ops, 0, sizeof(n_ops));
	memset(init, 0, sizeof(init));
	values[0] = 0;
	n_values = 1;
	*expected = 0;
	if (result)
		sscanf(result, "Result: %15[A-Za-z]", expected);

	at = text;
	need("C");
	at += strcspn(at, "\n");
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
			init[v] = number();
			need(")");
		} else {
			init[v] = number();
		}
		accept(";");
	}
	while (accept("P0(") || accept("P1(") || accept("P2(") || accept("P3(")) {
		at = strchr(at, ')');
		need(")");
		need("{");
		if (n_threads == MAX_THREADS)
			give_up("too many threads");
		while (!accept("}"))
			statement(n_threads);
		n_threads++;
	}
	need("exists");
	condition = at;
	/* atomic_inc() and atomic_dec() make values that the file does not contain. */
	for (int t = 0; t < n_threads; t++) {
		for (int i = 0; i < n_ops[t]; i++) {
			int n = n_values;

			if (ops[t][i].kind != OP_ADD)
				continue;
			for (int k = 0; k < n; k++) {
				char made[16];

				sprintf(made, "%d", values[k] + ops[t][i].value.number);
				at = made;
				number();
			}
		}
	}
}

/* --- the condition --- */

static bool either(void);

static bool atom(void)
{
	char name[48];
	int i, v;

	if (accept("~"))
		return !atom();
	if (accept("(")) {
		bool yes = either();

		need(")");
		return yes;
	}
	strcpy(name, word());
	if (accept(":")) {
		i = reg_of(atoi(name), word(), false);
		if (i < 0)
			give_up("a register");
		v = regs[i];
	} else {
		i = find(var_names, &n_vars, name, false);
		if (i < 0)
			give_up("a variable");
		v = execution_final(&x, i);
	}
	if (accept("!="))
		return v != number();
	need("=");
	return v == number();
}

static bool both(void)
{
	bool yes = atom();

	while (accept("/\\"))
		yes &= atom();
	return yes;
}

static bool either(void)
{
	bool yes = both();

	while (accept("\\/"))
		yes |= both();
	return yes;
}

static void judge(const struct execution *unused)
{
	(void)unused;
	at = condition;
	n_all++;
	n_yes += either();
}

/* --- the executions --- */

static int new_event(int thread, enum kind kind, enum tag tag, int var, int val, unsigned int ctrl)
{
	int i = x.n++;

	if (x.n > EVENTS)
		give_up("too many events");
	x.e[i] = (struct event){ kind, tag, thread, var, val, -1, ctrl, 0 };
	return i;
}

static int eval(const struct value *v, unsigned int *of)
{
	*of = v->reg < 0 ? 0 : from[v->reg];
	return v->reg < 0 ? v->number : regs[v->reg];
}

/* Executes thread @t from statement @i on, then the threads after it. @ctrl are the reads on which
 * an earlier branch depended.
 */
static void run(int t, int i, unsigned int ctrl)
{
	const struct op *op;
	unsigned int of = 0, old_from = 0;
	int v, n = x.n, e, old = 0;

	if (t == n_threads) {
		execution_judge(&x, n_vars, judge);
		return;
	}
	if (i == n_ops[t]) {
		run(t + 1, 0, 0);
		return;
	}
	op = &ops[t][i];
	if (op->reg >= 0) {
		old = regs[op->reg];
		old_from = from[op->reg];
	}
	switch (op->kind) {
	case OP_FENCE:
		new_event(t, F, op->tag, -1, 0, ctrl);
		run(t, i + 1, ctrl);
		break;
	case OP_WRITE:
		v = eval(&op->value, &of);
		e = new_event(t, W, op->tag, op->var, v, ctrl);
		x.e[e].data = of;
		run(t, i + 1, ctrl);
		break;
	case OP_SET:
		v = eval(&op->value, &of);
		regs[op->reg] = v;
		from[op->reg] = of;
		run(t, i + 1, ctrl);
		break;
	case OP_BRANCH:
		if (op->reg < 0) {
			run(t, op->target, ctrl);
			break;
		}
		v = eval(&op->value, &of);
		ctrl |= of | from[op->reg];
		run(t, (regs[op->reg] == v) != op->unequal ? op->target : i + 1, ctrl);
		break;
	case OP_LOCK:	/* reads a free lock: otherwise the thread could not have taken it */
		e = new_event(t, R, LOCK, op->var, 0, ctrl);
		new_event(t, W, LOCK, op->var, 1, ctrl);
		x.e[e + 1].rmw = e;
		run(t, i + 1, ctrl);
		break;
	case OP_UNLOCK:
		new_event(t, W, UNLOCK, op->var, 0, ctrl);
		run(t, i + 1, ctrl);
		break;
	case OP_READ:
	case OP_ADD:
	case OP_XCHG:
		for (int k = 0; k < n_values; k++) {
			e = new_event(t, R, op->kind == OP_ADD ? NORETURN : op->tag, op->var,
				      values[k], ctrl);
			if (op->kind != OP_READ) {
				v = op->kind == OP_ADD ? values[k] + op->value.number :
							 eval(&op->value, &of);
				new_event(t, W, ONCE, op->var, v, ctrl);
				x.e[e + 1].data = op->kind == OP_ADD ? 1U << e : of;
				x.e[e + 1].rmw = e;
			}
			if (op->reg >= 0) {
				regs[op->reg] = values[k];
				from[op->reg] = 1U << e;
			}
			run(t, i + 1, ctrl);
			x.n = n;
		}
		break;
	}
	x.n = n;
	if (op->reg >= 0) {
		regs[op->reg] = old;
		from[op->reg] = old_from;
	}
}

static const char *verdict(void)
{
	memset(&x, 0, sizeof(x));
	memset(regs, 0, sizeof(regs));
	memset(from, 0, sizeof(from));
	n_yes = n_all = 0;
	for (int v = 0; v < n_vars; v++)
		new_event(-1, W, ONCE, v, init[v], 0);
	run(0, 0, 0);
	return !n_yes ? "Never" : n_yes == n_all ? "Always" : "Sometimes";
}

static char *slurp(const char *path)
{
	static char text[1 << 16];
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = 0;
	return text;
}

static bool test(const char *path)
{
	const char *name = strrchr(path, '/'), *is;
	int len;

	name = name ? name + 1 : path;
	len = strlen(name) - strlen(".litmus");
	if (setjmp(unsupported)) {
		printf("not ok models/litmus/%.*s: %s is not understood\n", len, name, why);
		return false;
	}
	parse(slurp(path));
	is = verdict();
	if (strcmp(is, expected)) {
		printf("not ok models/litmus/%.*s: %s (%lu of %lu executions), not %s\n",
		       len, name, is, n_yes, n_all, expected);
		return false;
	}
	printf("# %.*s: %s, %lu of %lu executions\nok models/litmus/%.*s\n",
	       len, name, is, n_yes, n_all, len, name);
	return true;
}

int main(int argc, char **argv)
{
	bool good = true;

	for (int i = 1; i < argc; i++)
		good &= test(argv[i]);
	return !good;
}
