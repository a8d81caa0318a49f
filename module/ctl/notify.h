/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells the listeners of `socksplice pair monitor` of verdicts, over netlink.
 *
 * Where nobody listens, a verdict costs one test. What is told is a snapshot, taken while
 * others may send. A work sends it, because the way to the listeners is as long as any
 * user's namespace makes it. A socket that joins the group in such a namespace hears
 * nothing, but has events made.
 */
#ifndef SOCKSPLICE_NOTIFY_H
#define SOCKSPLICE_NOTIFY_H

/* Becomes a sink of verdicts. Before anything can be paired. */
void sks_notify_init(void);

/* Tells of nothing from now on, and returns when all that was queued has been sent. May
 * sleep.
 */
void sks_notify_stop(void);

#endif /* SOCKSPLICE_NOTIFY_H */
