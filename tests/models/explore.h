/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An explicit-state model checker: runs every interleaving of the steps of a few
 * threads, remembers each state that it has seen, whole, and says how the first
 * wrong one is reached.
 *
 * A model keeps all that changes in one object, its state. A thread is a function
 * that is called for each step and goes on where it left off: AT() ends one step
 * and begins the next, and names the place in the code that the next stands for.
 * What must survive an AT() is kept in the state, not in local variables. Between
 * two AT() a thread may use what its locks keep still, and at most one of the
 * variables that others read or write meanwhile, by SHARED(): two in one step
 * would hide interleavings, and are an error of the model.
 */
#ifndef TEST_MODELS_EXPLORE_H
#define TEST_MODELS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum step {
	BLOCKED,	/* cannot go on now; changed nothing */
	RAN,
};

struct model {
	const char *name;
	void *state;		/* where the steps find it; no pointer into it moves */
	size_t size;		/* of the state, without holes that are not zero */
	unsigned int threads;
	enum step (*step)(unsigned int thread);
	const char *(*thread_name)(unsigned int thread);
	/* Each may call violated(). */
	void (*check)(void);	/* in each state */
	void (*quiet)(void);	/* where only LATER() steps are left */
	void (*end)(void);	/* where no step is left */
	void (*show)(void);	/* prints the state, for a trace; NULL if there is nothing */
};

struct verdict {
	unsigned long states, steps, depth, ends;
	char why[256];		/* what is wrong; empty if nothing is */
};

/* Explores everything that follows from the present state. With @trace, prints the
 * way to what is wrong. A way that leads back to a state on it is wrong too: every
 * run of a model ends.
 */
void explore(const struct model *m, struct verdict *v, bool trace);

/* Explores, prints the counts and the result as a test's line; true if all is as
 * expected: nothing wrong, or what contains @why. _sound prints the way to what is
 * wrong; _found does with @trace.
 */
bool expect_sound(const struct model *m);
bool expect_found(const struct model *m, const char *why, bool trace);

/* For steps */

extern const char *explore_label;	/* where the running step began */
extern unsigned int explore_shared;	/* accesses of the running step */
extern bool explore_later, explore_joined;

/* One of 0 .. @n - 1: all of them are tried. Once a step at most. */
unsigned int choose(unsigned int n);

void violated(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The running step may never happen, and nobody may rely on it: a timeout, or what
 * an application does next.
 */
#define LATER()		((void)(explore_later = true))

/* The running step takes a lock, or touches nothing of the others, and goes together
 * with the step after it: whatever others could do between the two they could do
 * before both, with the same result. Giving up a lock likewise belongs into the step
 * of the access before it.
 */
#define JOINED()	((void)(explore_joined = true))
#define LOCK(lock)	do {						\
		AWAIT(!(lock));						\
		(lock) = me(t);						\
		JOINED();						\
	} while (0)

/* An access to what others access meanwhile. */
#define SHARED(x)	(*(explore_shared++, &(x)))

/* In a function with a "struct ... *t" that has a u16 pc. */
#define BEGIN		switch (t->pc) { case 0:
#define AT(label)	AT_(label, __COUNTER__)
#define AT_(label, n)	do {						\
		t->pc = (n) + 1;					\
		return RAN;						\
	case (n) + 1:							\
		explore_label = (label);				\
	} while (0)
#define AWAIT(cond)	do { if (!(cond)) return BLOCKED; } while (0)
#define PC_DONE		0xffff
#define END		t->pc = PC_DONE; return RAN;			\
	case PC_DONE: return BLOCKED;					\
	} return BLOCKED

#endif /* TEST_MODELS_EXPLORE_H */
