/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An explicit-state model checker. It runs every interleaving of the steps of a few threads and
 * keeps each whole state that it has seen. It prints the steps that lead to the first wrong one.
 *
 * A model keeps all its variables in one object, its state. A thread is a function that is called
 * for each step and continues where it stopped. AT() ends one step and begins the next, and names
 * the place in the code that the next step models. Local variables do not survive an AT(), the
 * state does.
 *
 * Between two AT() a thread may use all variables that its locks protect. It may access at most
 * one variable that other threads access meanwhile, by SHARED(). Two in one step would hide
 * interleavings, and are an error of the model.
 */
#ifndef TEST_MODELS_EXPLORE_H
#define TEST_MODELS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum step {
	BLOCKED,	/* the thread cannot go on now, and has changed nothing */
	RAN,
};

struct model {
	const char *name;
	void *state;		/* the object that the steps use, always at this address */
	size_t size;		/* of the state; its padding must be zero */
	unsigned int threads;
	enum step (*step)(unsigned int thread);
	const char *(*thread_name)(unsigned int thread);
	/* Each may call violated(). */
	void (*check)(void);	/* in each state */
	void (*quiet)(void);	/* in states with LATER() steps only */
	void (*end)(void);	/* in states without any further step */
	void (*show)(void);	/* prints the state for a trace; may be NULL */
};

struct verdict {
	unsigned long states, steps, depth, ends;
	char why[256];		/* the fault; empty if there is none */
};

/* Explores all states that can follow the present one. With @trace, prints the steps that lead to
 * the fault. A run that returns to one of its own states is a fault too: every run must end.
 */
void explore(const struct model *m, struct verdict *v, bool trace);

/* Explores, and prints the counts and a test's result line. expect_sound() returns true if there is
 * no fault, and else prints the steps to it. expect_found() returns true if there is a fault whose
 * message contains @why, and prints the steps to it with @trace.
 */
bool expect_sound(const struct model *m);
bool expect_found(const struct model *m, const char *why, bool trace);

/* For steps */

extern const char *explore_label;	/* where the running step began */
extern unsigned int explore_shared;	/* accesses of the running step */
extern bool explore_later, explore_joined;

/* Returns one of 0 .. @n - 1. The checker tries all of them. A step calls it at most once. */
unsigned int choose(unsigned int n);

void violated(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The running step may never happen, so no thread may rely on it: a time-out, or the application's
 * next call.
 */
#define LATER()		((void)(explore_later = true))

/* Joins the running step with the one after it, because it takes a lock or touches no shared
 * variable. Other threads' steps between the two could come before both, with the same result.
 * For the same reason a lock is released in the step of the access before.
 */
#define JOINED()	((void)(explore_joined = true))
#define LOCK(lock)	do {						\
		AWAIT(!(lock));						\
		(lock) = me(t);						\
		JOINED();						\
	} while (0)

/* An access to a variable that other threads access meanwhile. */
#define SHARED(x)	(*(explore_shared++, &(x)))

/* For functions with an argument "struct ... *t" that has a u16 pc. */
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
