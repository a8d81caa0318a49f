// SPDX-License-Identifier: GPL-2.0
/*
 * Translates a litmus test into the instructions that the kernel's primitives become on arm64, as
 * arch/arm64/include/asm has them: barrier.h, atomic_lse.h, atomic_ll_sc.h, cmpxchg.h, and for
 * spin locks the fast path of asm-generic/qspinlock.h. herd7 judges them by Arm's model, so both
 * the kernel's choice of instructions and ours of primitives are judged.
 *
 * The kernel repeats what an exclusive store or a lock did not get at once. Such an execution ends
 * here in X29 = 1, which the condition excludes: repeated, it becomes one of the others.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define MAX_LINES	96
#define TEMPORARY	8	/* and the three after it */
#define ADDRESSES	12	/* of variable 0, 1, ... */

static char lines[MAX_THREADS][MAX_LINES][40];
static int n_lines[MAX_THREADS];
static bool may_fail[MAX_THREADS];

__attribute__((format(printf, 2, 3)))
static void emit(int thread, const char *format, ...)
{
	va_list args;

	if (n_lines[thread] == MAX_LINES)
		give_up("too many instructions");
	va_start(args, format);
	vsnprintf(lines[thread][n_lines[thread]++], sizeof(lines[0][0]), format, args);
	va_end(args);
}

/* A register's number is its place among those of its thread. */
static int number_of(int reg)
{
	int n = 0;

	for (int i = 0; i < reg; i++)
		n += test.reg_names[i][0] == test.reg_names[reg][0];
	if (n >= TEMPORARY)
		give_up("too many registers");
	return n;
}

/* Returns the register that has the value, which may be a temporary one. */
static int operand(int t, const struct value *v)
{
	if (v->reg >= 0)
		return number_of(v->reg);
	emit(t, "MOV W%d,#%d", TEMPORARY, v->number);
	return TEMPORARY;
}

static void fail_unless_zero(int t, int reg)
{
	emit(t, "CBNZ W%d,L%d%02d", reg, t, MAX_OPS);
	may_fail[t] = true;
}

static void fence(int t, enum tag tag)
{
	emit(t, "DMB %s", tag == RMB ? "ISHLD" : tag == WMB ? "ISHST" : "ISH");
}

static void add(int t, const struct op *op, bool lse)
{
	int number = op->value.number;

	if (lse) {
		emit(t, "MOV W%d,#%d", TEMPORARY, number);
		emit(t, "STADD W%d,[X%d]", TEMPORARY, ADDRESSES + op->var);
		return;
	}
	emit(t, "LDXR W%d,[X%d]", TEMPORARY, ADDRESSES + op->var);
	emit(t, "%s W%d,W%d,#%d", number < 0 ? "SUB" : "ADD", TEMPORARY, TEMPORARY, abs(number));
	emit(t, "STXR W%d,W%d,[X%d]", TEMPORARY + 1, TEMPORARY, ADDRESSES + op->var);
	fail_unless_zero(t, TEMPORARY + 1);
}

/* The parser has put a full barrier on each side of it, since it is fully ordered. */
static void exchange(int t, const struct op *op, bool lse)
{
	int to = op->reg < 0 ? TEMPORARY + 1 : number_of(op->reg), value = operand(t, &op->value);

	if (lse) {
		emit(t, "SWPAL W%d,W%d,[X%d]", value, to, ADDRESSES + op->var);
		return;
	}
	emit(t, "LDXR W%d,[X%d]", to, ADDRESSES + op->var);
	emit(t, "STLXR W%d,W%d,[X%d]", TEMPORARY + 2, value, ADDRESSES + op->var);
	fail_unless_zero(t, TEMPORARY + 2);
	fence(t, MB);
}

static void take_lock(int t, int var, bool lse)
{
	emit(t, "MOV W%d,#1", TEMPORARY);
	if (lse) {
		emit(t, "MOV W%d,#0", TEMPORARY + 1);
		emit(t, "CASA W%d,W%d,[X%d]", TEMPORARY + 1, TEMPORARY, ADDRESSES + var);
		fail_unless_zero(t, TEMPORARY + 1);
		return;
	}
	emit(t, "LDAXR W%d,[X%d]", TEMPORARY + 1, ADDRESSES + var);
	fail_unless_zero(t, TEMPORARY + 1);
	emit(t, "STXR W%d,W%d,[X%d]", TEMPORARY + 2, TEMPORARY, ADDRESSES + var);
	fail_unless_zero(t, TEMPORARY + 2);
}

static void branch(int t, const struct op *op)
{
	if (op->reg < 0) {
		emit(t, "B L%d%02d", t, op->target);
		return;
	}
	if (op->value.reg < 0 && !op->value.number) {
		emit(t, "%s W%d,L%d%02d", op->unequal ? "CBNZ" : "CBZ", number_of(op->reg),
		     t, op->target);
		return;
	}
	emit(t, "CMP W%d,W%d", number_of(op->reg), operand(t, &op->value));
	emit(t, "B.%s L%d%02d", op->unequal ? "NE" : "EQ", t, op->target);
}

static void instructions(int t, const struct op *op, bool lse)
{
	int value;

	switch (op->kind) {
	case OP_READ:
		emit(t, "%s W%d,[X%d]", op->tag == ACQUIRE ? "LDAR" : "LDR", number_of(op->reg),
		     ADDRESSES + op->var);
		break;
	case OP_WRITE:
		value = operand(t, &op->value);
		emit(t, "%s W%d,[X%d]", op->tag == RELEASE ? "STLR" : "STR", value,
		     ADDRESSES + op->var);
		break;
	case OP_FENCE:
		fence(t, op->tag);
		break;
	case OP_ADD:
		add(t, op, lse);
		break;
	case OP_XCHG:
		exchange(t, op, lse);
		break;
	case OP_LOCK:
		take_lock(t, op->var, lse);
		break;
	case OP_UNLOCK:
		emit(t, "STLR WZR,[X%d]", ADDRESSES + op->var);
		break;
	case OP_SET:
		emit(t, "MOV W%d,W%d", number_of(op->reg), operand(t, &op->value));
		break;
	case OP_BRANCH:
		branch(t, op);
		break;
	}
}

static bool is_target(int t, int i)
{
	for (int k = 0; k < test.n_ops[t]; k++)
		if (test.ops[t][k].kind == OP_BRANCH && test.ops[t][k].target == i)
			return true;
	return false;
}

/* The barriers around an exchange are part of its instructions. */
static bool belongs_to_exchange(int t, int i)
{
	return test.ops[t][i].kind == OP_FENCE &&
	       ((i && test.ops[t][i - 1].kind == OP_XCHG) ||
		(i + 1 < test.n_ops[t] && test.ops[t][i + 1].kind == OP_XCHG));
}

static void thread(int t, bool lse)
{
	n_lines[t] = 0;
	may_fail[t] = false;
	for (int i = 0; i <= test.n_ops[t]; i++) {
		if (is_target(t, i))
			emit(t, "L%d%02d:", t, i);
		if (i < test.n_ops[t] && !belongs_to_exchange(t, i))
			instructions(t, &test.ops[t][i], lse);
	}
	if (!may_fail[t])
		return;
	emit(t, "B L%d%02d", t, MAX_OPS + 1);
	emit(t, "L%d%02d:", t, MAX_OPS);
	emit(t, "MOV W29,#1");
	emit(t, "L%d%02d:", t, MAX_OPS + 1);
}

/* The registers of the condition have other names here. */
static void print_condition(FILE *f)
{
	const char *c = test.condition, *colon, *end;
	char name[32];
	int reg;

	fputs("exists (", f);
	while (*c) {
		colon = isdigit((unsigned char)*c) && c[1] == ':' ? c + 1 : NULL;
		if (!colon) {
			fputc(*c++, f);
			continue;
		}
		for (end = colon + 1; isalnum((unsigned char)*end) || *end == '_'; end++)
			;
		snprintf(name, sizeof(name), "%.*s", (int)(end - colon - 1), colon + 1);
		reg = reg_of(*c - '0', name, false);
		if (reg < 0)
			give_up("a register in the condition");
		fprintf(f, "%c:X%d", *c, number_of(reg));
		c = end;
	}
	for (int t = 0; t < test.n_threads; t++)
		if (may_fail[t])
			fprintf(f, "/\\ %d:X29=0 ", t);
	fputs(")\n", f);
}

void arm64_print(FILE *f, const char *title, bool lse)
{
	int rows = 0;

	fprintf(f, "AArch64 %s\n{\n", title);
	for (int v = 0; v < test.n_vars; v++)
		fprintf(f, "int %s = %d;\n", test.var_names[v], test.init[v]);
	for (int t = 0; t < test.n_threads; t++) {
		for (int v = 0; v < test.n_vars; v++)
			fprintf(f, "%d:X%d=%s; ", t, ADDRESSES + v, test.var_names[v]);
		thread(t, lse);
		rows = n_lines[t] > rows ? n_lines[t] : rows;
	}
	fputs("\n}\n", f);
	for (int t = 0; t < test.n_threads; t++)
		fprintf(f, " P%-20d %c", t, t + 1 < test.n_threads ? '|' : ';');
	for (int i = 0; i < rows; i++) {
		fputc('\n', f);
		for (int t = 0; t < test.n_threads; t++)
			fprintf(f, " %-21s %c", i < n_lines[t] ? lines[t][i] : "",
				t + 1 < test.n_threads ? '|' : ';');
	}
	fputc('\n', f);
	print_condition(f);
}
