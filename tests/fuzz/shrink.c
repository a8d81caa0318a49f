// SPDX-License-Identifier: GPL-2.0
/*
 * From a program that fails to a small one that still does: operations are left out,
 * in halves first and one by one in the end, and what remains is made plainer. Every
 * part of a program is a program.
 */
#include "fuzz.h"

static bool try(struct program *p, const struct program *candidate, fails_fn fails)
{
	if (!fails(candidate))
		return false;
	*p = *candidate;
	return true;
}

static bool remove_ops(struct program *p, fails_fn fails, int size)
{
	bool changed = false;

	for (int at = 0; at < p->count;) {
		struct program c = *p;
		int n = at + size < c.count ? size : c.count - at;

		memmove(&c.op[at], &c.op[at + n], (c.count - at - n) * sizeof(c.op[0]));
		c.count -= n;
		if (try(p, &c, fails))
			changed = true;
		else
			at += size;
	}
	return changed;
}

static void plainer_op(struct program *p, int i, fails_fn fails)
{
	struct program c = *p;

	c.op[i].by = BY_MAIN;
	if (p->op[i].by != BY_MAIN)
		try(p, &c, fails);
	for (int bit = 1; bit && bit <= p->op[i].flags; bit <<= 1) {
		c = *p;
		c.op[i].flags &= ~bit;
		if (p->op[i].flags & bit)
			try(p, &c, fails);
	}
	c = *p;
	c.op[i].how = 0;
	if (p->op[i].how && (p->op[i].what == SEND || p->op[i].what == RECV))
		try(p, &c, fails);
	for (int n = 1; n < p->op[i].n; n *= 8) {
		c = *p;
		c.op[i].n = n;
		if (try(p, &c, fails))
			break;
	}
}

static void plainer_start(struct program *p, fails_fn fails)
{
	struct program c = *p;

	c.family = 4;
	if (p->family != 4)
		try(p, &c, fails);
	c = *p;
	c.swap = false;
	if (p->swap)
		try(p, &c, fails);
	c = *p;
	c.early = 0;
	c.defer = false;
	if (p->early)
		try(p, &c, fails);
	c = *p;
	c.cold = c.defer = false;
	c.early = 0;
	if (p->cold)
		try(p, &c, fails);
	c = *p;
	c.big = false;
	if (p->big)
		try(p, &c, fails);
}

void shrink(struct program *p, fails_fn fails)
{
	for (int size = p->count / 2; size; size /= 2)
		remove_ops(p, fails, size);
	while (remove_ops(p, fails, 1))
		;
	plainer_start(p, fails);
	for (int i = 0; i < p->count; i++)
		plainer_op(p, i, fails);
	while (remove_ops(p, fails, 1))
		;
}
