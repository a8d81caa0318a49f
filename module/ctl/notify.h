/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sends verdicts to the listeners of `socksplice pair monitor`, over netlink.
 *
 * Without a listener a verdict costs one test. An event is a snapshot, taken while other tasks may
 * send. A work sends it, because any user can make the way to the listeners long, by namespaces of
 * its own. If a socket of such a namespace joins the group, the module builds events, but the
 * socket gets none.
 */
#ifndef SOCKSPLICE_NOTIFY_H
#define SOCKSPLICE_NOTIFY_H

/* Registers as a sink of verdicts. Called before anything can be paired. */
void sks_notify_init(void);

/* Stops taking events, and returns when all that were queued have been sent. May sleep. */
void sks_notify_stop(void);

#endif /* SOCKSPLICE_NOTIFY_H */
