/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_BUDGET_H
#define SOCKSPLICE_BUDGET_H

#include "sosplice/splice.h"

struct budget_user *sks_budget_get(kuid_t uid);
void sks_budget_put(struct budget_user *user);

/* Waits until no user is left; all splices have been freed. */
void sks_budget_exit(void);

/* Whether @s's mover may work on this CPU now: what sks_budget_leave() takes. NULL where
 * its user's movers are over their share, or too many are at work, most of them asleep. The
 * mover stands in line then, unless the splice has ended, and is queued at its turn.
 */
struct budget_cpu *sks_budget_enter(struct splice *s);

/* Charges @ns of this CPU to the user. @entered may be NULL. Has the next in line work. */
void sks_budget_leave(struct budget_user *user, struct budget_cpu *entered, u64 ns);

/* Takes a splice that has ended, and that the caller holds, out of the line. */
void sks_budget_forget(struct splice *s);

/* Whether @s stands in line: its mover, at its turn, finds what the caller has left. */
bool sks_budget_waits(const struct splice *s);

#endif /* SOCKSPLICE_BUDGET_H */
