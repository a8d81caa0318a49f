// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"

const char *explore_label;
unsigned int explore_shared;
bool explore_later, explore_joined;

static unsigned int pick, picks;	/* of the running step: the choice, out of */
static char wrong[sizeof(((struct verdict *)0)->why)];

/* All states seen, one after another, and a table of their numbers plus one. */
static unsigned char *states;
static uint32_t n_states, room;
static uint32_t *table;
static uint32_t table_size;
static unsigned char *on_path;

/* The way to the present state, and what has been tried in each state of it. */
struct visit {
	uint32_t state;
	uint16_t thread;	/* the step that is being tried */
	uint16_t pick, picks;
	bool ran, surely;	/* some step ran; one that was not LATER() */
};

static struct visit *path;
static size_t path_room;

unsigned int choose(unsigned int n)
{
	if (picks != 1)
		violated("the model chooses twice in the step \"%s\"", explore_label);
	picks = n;
	return pick;
}

void violated(const char *fmt, ...)
{
	va_list args;

	if (*wrong)
		return;
	va_start(args, fmt);
	vsnprintf(wrong, sizeof(wrong), fmt, args);
	va_end(args);
}

static void *must(void *p)
{
	if (!p) {
		perror("explore");
		exit(2);
	}
	return p;
}

static uint64_t hash(const unsigned char *p, size_t size)
{
	uint64_t h = size;

	for (; size >= 8; size -= 8, p += 8) {
		uint64_t w;

		memcpy(&w, p, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 32;
	}
	while (size--)
		h = (h ^ *p++) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static void table_grow(size_t size)
{
	table_size = table_size ? 2 * table_size : 1 << 16;
	free(table);
	table = must(calloc(table_size, sizeof(*table)));
	for (uint32_t i = 0; i < n_states; i++) {
		uint32_t slot = hash(states + i * size, size) & (table_size - 1);

		while (table[slot])
			slot = (slot + 1) & (table_size - 1);
		table[slot] = i + 1;
	}
}

/* The number of the model's present state; @fresh if it is seen for the first time. */
static uint32_t remember(const struct model *m, bool *fresh)
{
	uint32_t slot;

	if (2 * n_states >= table_size)
		table_grow(m->size);
	slot = hash(m->state, m->size) & (table_size - 1);
	for (; table[slot]; slot = (slot + 1) & (table_size - 1)) {
		uint32_t i = table[slot] - 1;

		if (!memcmp(states + i * m->size, m->state, m->size)) {
			*fresh = false;
			return i;
		}
	}
	if (n_states == room) {
		room = room ? 2 * room : 1 << 12;
		states = must(realloc(states, room * m->size));
		on_path = must(realloc(on_path, room));
	}
	memcpy(states + n_states * m->size, m->state, m->size);
	on_path[n_states] = 0;
	table[slot] = ++n_states;
	*fresh = true;
	return n_states - 1;
}

/* With @trace, prints the labels of the steps. */
static enum step run(const struct model *m, const struct visit *v, bool trace)
{
	enum step ret;

	memcpy(m->state, states + v->state * m->size, m->size);
	pick = v->pick;
	picks = 1;
	explore_shared = 0;
	explore_later = false;
	for (ret = BLOCKED;; ret = RAN) {
		explore_joined = false;
		if (m->step(v->thread) == BLOCKED)
			return ret;
		if (trace)
			printf("%s%s", ret == RAN ? " | " : "", explore_label);
		if (!explore_joined)
			break;
	}
	if (explore_shared > 1)
		violated("the step \"%s\" makes %u accesses at once", explore_label, explore_shared);
	return RAN;
}

static void print_way(const struct model *m, size_t depth)
{
	printf("# %s: %s\n", m->name, wrong);
	for (size_t i = 0; i <= depth; i++) {
		if (path[i].thread >= m->threads)
			continue;	/* nothing more happened in the last one */
		printf("#  %3zu %-10s ", i + 1, m->thread_name(path[i].thread));
		run(m, &path[i], true);
		if (path[i].picks > 1)
			printf(" [%u]", path[i].pick);
		if (m->show) {
			printf("\t");
			m->show();
		}
		printf("\n");
	}
}

static void enter(size_t depth, uint32_t state)
{
	if (depth == path_room) {
		path_room = path_room ? 2 * path_room : 1 << 10;
		path = must(realloc(path, path_room * sizeof(*path)));
	}
	path[depth] = (struct visit){ .state = state, .picks = 1 };
	on_path[state] = 1;
}

/* Takes the next step that is to be tried in the state of @v; false if all were. */
static bool next_step(const struct model *m, struct visit *v)
{
	for (; v->thread < m->threads; v->thread++, v->pick = 0) {
		if (v->pick && v->pick >= v->picks)
			continue;
		if (run(m, v, false) == BLOCKED)
			continue;
		v->picks = picks;
		v->ran = true;
		v->surely |= !explore_later;
		return true;
	}
	return false;
}

static void leave(const struct model *m, struct verdict *r, const struct visit *v)
{
	memcpy(m->state, states + v->state * m->size, m->size);
	if (!v->surely)
		m->quiet();
	if (!v->ran) {
		r->ends++;
		m->end();
	}
	on_path[v->state] = 0;
}

void explore(const struct model *m, struct verdict *r, bool trace)
{
	size_t depth = 0;
	bool fresh;

	memset(r, 0, sizeof(*r));
	*wrong = 0;
	n_states = 0;
	if (table)
		memset(table, 0, table_size * sizeof(*table));
	/* States of different models differ in size. */
	free(states);
	states = NULL;
	room = 0;

	/* To each thread's first label, before which it does nothing. */
	for (unsigned int i = 0; i < m->threads; i++)
		m->step(i);
	enter(0, remember(m, &fresh));
	for (;;) {
		struct visit *v = &path[depth];
		uint32_t next;

		if (next_step(m, v)) {
			r->steps++;
			m->check();
			if (*wrong)
				break;
			next = remember(m, &fresh);
			if (on_path[next]) {
				violated("goes round in circles at \"%s\"", explore_label);
				break;
			}
			if (fresh) {
				enter(++depth, next);
				if (depth > r->depth)
					r->depth = depth;
			} else {
				v->pick++;
			}
			continue;
		}
		leave(m, r, v);
		if (*wrong || !depth)
			break;
		path[--depth].pick++;
	}
	r->states = n_states;
	strcpy(r->why, wrong);
	if (*wrong && trace)
		print_way(m, depth);
}

bool expect_sound(const struct model *m)
{
	struct verdict v;

	explore(m, &v, true);
	printf("# %s: %lu states, %lu steps, %lu ends, the longest way has %lu\n",
	       m->name, v.states, v.steps, v.ends, v.depth);
	if (!*v.why && v.ends)
		printf("ok models/%s\n", m->name);
	else
		printf("not ok models/%s: %s\n", m->name, *v.why ? v.why : "no run ends");
	return !*v.why && v.ends;
}

bool expect_found(const struct model *m, const char *why, bool trace)
{
	struct verdict v;

	explore(m, &v, trace);
	if (strstr(v.why, why) && *why)
		printf("# %s: %s (after %lu states)\nok models/%s is found\n",
		       m->name, v.why, v.states, m->name);
	else
		printf("not ok models/%s is found: %s, after %lu states\n", m->name,
		       *v.why ? v.why : "nothing is wrong", v.states);
	return strstr(v.why, why) && *why;
}
