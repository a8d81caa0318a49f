// SPDX-License-Identifier: GPL-2.0
/*
 * The axioms of the kernel's memory model, for executions without locks, RCU and plain accesses.
 * Names and definitions are those of linux-kernel.cat in the kernel's tools/memory-model. "Marked"
 * is left out, since all accesses are marked.
 */
#include <stdint.h>
#include <string.h>

#include "litmus.h"

/* Row i: the events that event i is related to. */
struct rel {
	uint32_t to[EVENTS];
};

static int n;

static struct rel seq(struct rel a, struct rel b)
{
	struct rel r = { { 0 } };

	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (a.to[i] >> k & 1)
				r.to[i] |= b.to[k];
	return r;
}

static struct rel or(struct rel a, struct rel b)
{
	for (int i = 0; i < n; i++)
		a.to[i] |= b.to[i];
	return a;
}

static struct rel and(struct rel a, struct rel b)
{
	for (int i = 0; i < n; i++)
		a.to[i] &= b.to[i];
	return a;
}

static struct rel minus(struct rel a, struct rel b)
{
	for (int i = 0; i < n; i++)
		a.to[i] &= ~b.to[i];
	return a;
}

static struct rel set(uint32_t events)		/* [events] */
{
	struct rel r = { { 0 } };

	for (int i = 0; i < n; i++)
		r.to[i] = events & 1U << i;
	return r;
}

static struct rel maybe(struct rel a)		/* a? */
{
	return or(a, set(~0U));
}

static struct rel star(struct rel a)		/* a* */
{
	a = maybe(a);
	for (int k = 0; k < n; k++)
		for (int i = 0; i < n; i++)
			if (a.to[i] >> k & 1)
				a.to[i] |= a.to[k];
	return a;
}

static bool acyclic(struct rel a)
{
	a = seq(a, star(a));
	for (int i = 0; i < n; i++)
		if (a.to[i] >> i & 1)
			return false;
	return true;
}

static bool empty(struct rel a)
{
	for (int i = 0; i < n; i++)
		if (a.to[i])
			return false;
	return true;
}

static uint32_t tagged(const struct execution *x, enum kind kind, enum tag tag)
{
	uint32_t events = 0;

	for (int i = 0; i < n; i++)
		if (x->e[i].kind == kind && x->e[i].tag == tag)
			events |= 1U << i;
	return events;
}

static bool allowed(const struct execution *x)
{
	struct rel po = { { 0 } }, internal = po, external = po, loc = po;
	struct rel rf = po, co = po, fr = po, rmw = po, data = po, ctrl = po;
	uint32_t reads = 0, writes = 0, mem, atomics = 0;

	for (int i = 0; i < n; i++) {
		const struct event *a = &x->e[i];

		if (a->kind == R) {
			reads |= 1U << i;
			rf.to[x->rf[i]] |= 1U << i;
		}
		if (a->kind == W)
			writes |= 1U << i;
		if (a->kind == W && a->rmw >= 0) {
			rmw.to[a->rmw] |= 1U << i;
			if (a->tag != LOCK)
				atomics |= 1U << i | 1U << a->rmw;
		}
		for (int k = 0; k < n; k++) {
			const struct event *b = &x->e[k];

			if (a->thread == b->thread && a->thread >= 0) {
				internal.to[i] |= 1U << k;
				if (i < k)
					po.to[i] |= 1U << k;
			} else {
				external.to[i] |= 1U << k;
			}
			if (a->kind != F && b->kind != F && a->var == b->var) {
				loc.to[i] |= 1U << k;
				if (a->kind == W && b->kind == W && x->co[i] < x->co[k])
					co.to[i] |= 1U << k;
			}
			if (b->data >> i & 1)
				data.to[i] |= 1U << k;
			if (b->ctrl >> i & 1)
				ctrl.to[i] |= 1U << k;
		}
	}
	mem = reads | writes;
	for (int i = 0; i < n; i++)
		if (reads >> i & 1)
			fr.to[i] = co.to[x->rf[i]];

	const struct rel rfe = and(rf, external), rfi = and(rf, internal);
	const struct rel fre = and(fr, external), coe = and(co, external);

#define FENCEREL(tag)	seq(seq(po, set(tagged(x, F, tag))), po)
#define BETWEEN(a, r, b) seq(seq(set(a), r), set(b))

	/* let rmb, wmb, mb, ... */
	const uint32_t R4rmb = reads & ~tagged(x, R, NORETURN);
	const struct rel rmb = BETWEEN(R4rmb, FENCEREL(RMB), R4rmb);
	const struct rel wmb = BETWEEN(writes, FENCEREL(WMB), writes);
	const struct rel mb = or(BETWEEN(mem, FENCEREL(MB), mem),
		or(BETWEEN(mem, seq(seq(FENCEREL(BEFORE_ATOMIC), set(atomics)), maybe(po)), mem),
		   BETWEEN(mem, seq(seq(maybe(po), set(atomics)), FENCEREL(AFTER_ATOMIC)), mem)));
	const uint32_t LKR = tagged(x, R, LOCK), UL = tagged(x, W, UNLOCK);
	const uint32_t acquires = tagged(x, R, ACQUIRE) | LKR;
	const uint32_t releases = tagged(x, W, RELEASE) | UL;
	const struct rel acq_po = seq(set(acquires), seq(po, set(mem)));
	const struct rel po_rel = seq(set(mem), seq(po, set(releases)));
	const struct rel po_unlock_lock_po =
		seq(seq(BETWEEN(mem, po, UL), or(po, rf)), BETWEEN(LKR, po, mem));
	const struct rel strong_fence = mb;
	const struct rel fence = or(or(or(strong_fence, po_rel), or(acq_po, wmb)), rmb);

	/* acyclic po-loc | com as coherence; empty rmw & (fre ; coe) as atomic */
	if (!acyclic(or(and(po, loc), or(rf, or(co, fr)))))
		return false;
	if (!empty(and(rmw, seq(fre, coe))))
		return false;

	/* let ppo */
	const struct rel rwdep = seq(or(data, ctrl), set(writes));
	const struct rel overwrite = or(co, fr);
	const struct rel to_w = or(rwdep, and(overwrite, internal));
	const struct rel to_r = seq(data, rfi);
	const struct rel ppo = or(or(to_r, to_w), and(or(fence, po_unlock_lock_po), internal));

	/* let prop */
	const struct rel rmw_sequence = star(seq(rf, rmw));
	const struct rel cumul = seq(maybe(rfe), or(strong_fence, po_rel));
	const struct rel cumul_fence = seq(or(cumul, or(wmb, po_unlock_lock_po)),
					    rmw_sequence);
	const struct rel prop = seq(maybe(and(overwrite, external)),
				    seq(star(cumul_fence), maybe(rfe)));

	/* acyclic hb as happens-before; acyclic pb as propagation */
	const struct rel hb = or(or(ppo, rfe), and(minus(prop, set(~0U)), internal));
	const struct rel pb = seq(prop, seq(strong_fence, star(hb)));

	return acyclic(hb) && acyclic(pb);
}

int execution_final(const struct execution *x, int var)
{
	int last = -1;

	for (int i = 0; i < x->n; i++)
		if (x->e[i].kind == W && x->e[i].var == var && (last < 0 || x->co[i] > x->co[last]))
			last = i;
	return last < 0 ? 0 : x->e[last].val;
}

static void choose_reads(struct execution *x, int i, void (*fn)(const struct execution *))
{
	while (i < x->n && x->e[i].kind != R)
		i++;
	if (i == x->n) {
		if (allowed(x))
			fn(x);
		return;
	}
	for (int w = 0; w < x->n; w++) {
		const struct event *e = &x->e[w];

		if (e->kind == W && e->var == x->e[i].var && e->val == x->e[i].val) {
			x->rf[i] = w;
			choose_reads(x, i + 1, fn);
		}
	}
}

/* Orders the writes of @var from @place on. The initial write comes first. */
static void choose_places(struct execution *x, int n_vars, int var, int place,
			  void (*fn)(const struct execution *))
{
	bool left = false;

	if (var == n_vars) {
		choose_reads(x, 0, fn);
		return;
	}
	for (int w = 0; w < x->n; w++) {
		const struct event *e = &x->e[w];

		if (e->kind != W || e->var != var || x->co[w] >= 0)
			continue;
		left = true;
		if (!place && e->thread >= 0)
			continue;
		x->co[w] = place;
		choose_places(x, n_vars, var, place + 1, fn);
		x->co[w] = -1;
	}
	if (!left)
		choose_places(x, n_vars, var + 1, 0, fn);
}

void execution_judge(struct execution *x, int n_vars, void (*fn)(const struct execution *x))
{
	n = x->n;
	for (int i = 0; i < n; i++)
		x->co[i] = -1;
	choose_places(x, n_vars, 0, 0, fn);
}
