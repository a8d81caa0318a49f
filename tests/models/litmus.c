// SPDX-License-Identifier: GPL-2.0
/*
 * litmus FILE.litmus...: applies the kernel's memory model to litmus tests, on machines without
 * herd7. For each file it prints whether the verdict is the one after "Result:" in the file. It
 * builds every candidate execution and checks it by the axioms of linux-kernel.cat (relations.c).
 *
 * litmus --arm64 DIR FILE.litmus...: writes them into DIR as tests in the instructions of arm64
 * (arm64.c), which herd7 judges by Arm's own model. It leaves out those that it does not
 * understand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* One execution of it */
static struct execution x;
static int regs[MAX_NAMES];
static unsigned int from[MAX_NAMES];	/* the reads that a register's value comes from */
static unsigned long n_yes, n_all;

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
		i = var_of(name);
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
	at = test.condition;
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

	if (t == test.n_threads) {
		execution_judge(&x, test.n_vars, judge);
		return;
	}
	if (i == test.n_ops[t]) {
		run(t + 1, 0, 0);
		return;
	}
	op = &test.ops[t][i];
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
		for (int k = 0; k < test.n_values; k++) {
			e = new_event(t, R, op->kind == OP_ADD ? NORETURN : op->tag, op->var,
				      test.values[k], ctrl);
			if (op->kind != OP_READ) {
				v = op->kind == OP_ADD ? test.values[k] + op->value.number :
							 eval(&op->value, &of);
				new_event(t, W, ONCE, op->var, v, ctrl);
				x.e[e + 1].data = op->kind == OP_ADD ? 1U << e : of;
				x.e[e + 1].rmw = e;
			}
			if (op->reg >= 0) {
				regs[op->reg] = test.values[k];
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
	for (int v = 0; v < test.n_vars; v++)
		new_event(-1, W, ONCE, v, test.init[v], 0);
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

/* Reads a file. Returns its name. */
static const char *take(const char *path)
{
	static char name[64];
	const char *slash = strrchr(path, '/');

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
	name[strlen(name) - strlen(".litmus")] = 0;
	parse(slurp(path));
	return name;
}

static bool check(const char *path)
{
	const char *name, *is;

	if (setjmp(unsupported)) {
		printf("not ok models/litmus/%s: %s is not understood\n", path, why);
		return false;
	}
	name = take(path);
	is = verdict();
	if (strcmp(is, test.expected)) {
		printf("not ok models/litmus/%s: %s (%lu of %lu executions), not %s\n",
		       name, is, n_yes, n_all, test.expected);
		return false;
	}
	printf("# %s: %s, %lu of %lu executions\nok models/litmus/%s\n",
	       name, is, n_yes, n_all, name);
	return true;
}

/* Writes the test as arm64 executes it, with either kind of atomic operations. */
static bool translate(const char *path, const char *dir)
{
	static const char *const kinds[] = { "llsc", "lse" };
	char to[4096], title[80];
	FILE *volatile f = NULL;
	const char *name;

	if (setjmp(unsupported)) {
		printf("# %s: %s is not understood\n", path, why);
		if (f) {	/* a part of the test is in it */
			fclose(f);
			remove(to);
		}
		return true;
	}
	name = take(path);
	for (int lse = 0; lse < 2; lse++) {
		snprintf(title, sizeof(title), "%s.%s", name, kinds[lse]);
		snprintf(to, sizeof(to), "%s/%s.litmus", dir, title);
		f = fopen(to, "w");
		if (!f) {
			perror(to);
			return false;
		}
		arm64_print(f, title, lse);
		if (fclose(f)) {
			perror(to);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	bool good = true, arm64 = argc > 2 && !strcmp(argv[1], "--arm64");

	for (int i = arm64 ? 3 : 1; i < argc; i++)
		good &= arm64 ? translate(argv[i], argv[2]) : check(argv[i]);
	return !good;
}
