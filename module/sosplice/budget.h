/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_BUDGET_H
#define SOCKSPLICE_BUDGET_H

#include "sosplice/splice.h"

struct budget_user *sks_budget_get(kuid_t uid);
void sks_budget_put(struct budget_user *user);

/* Waits until no user is left. The caller knows that all splices have been freed. */
void sks_budget_exit(void);

/* Asks whether @s's mover may work on this CPU now. If so, returns what sks_budget_leave() takes.
 * NULL if its user's movers are over their share, or if too many of them are at work, most of them
 * asleep. Then the mover stands in line, unless the splice has ended, and is queued at its turn.
 */
struct budget_cpu *sks_budget_enter(struct splice *s);

/* Charges @ns of this CPU to the user, and queues the next mover in line. @entered may be NULL. */
void sks_budget_leave(struct budget_user *user, struct budget_cpu *entered, u64 ns);

/* Takes a splice out of the line. It has ended, and the caller holds it. */
void sks_budget_forget(struct splice *s);

/* True if @s stands in line. Then its mover, at its turn, finds what the caller has published. */
bool sks_budget_waits(const struct splice *s);

#endif /* SOCKSPLICE_BUDGET_H */
