/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a pair's packets still get through.
 *
 * Bytes of a ring pass no firewall, and keep no entry of connection tracking alive. So while a
 * ring is in use and TCP is silent, each end sends one packet a second. It is an ACK without data
 * whose sequence number lies one before the one that the peer expects. The peer answers it with an
 * ACK. (Keepalive does the same, but its timer, option and errors are visible to the application.)
 * Without answers the pair goes back to TCP (unpair.h), sks_path_timeout after the path was lost.
 * Its bytes then meet whatever stopped the packets. A probe never resets anything. A pair that was
 * idle for that long sends by TCP until a packet has been answered.
 *
 * Probes notice a path on which no packet gets through in one direction. They do not notice a rule
 * that looks at length, content or rate.
 *
 * The room upkeep/ holds works that look after live pairs: probes, rings that are given back
 * (reclaim.h) and captures that pairs yield to (yield.h). It may call datapath/, pair/ and core/.
 * Only admit/, which starts the works, and main.c, which ends them, may call it.
 */
#ifndef SOCKSPLICE_PROBE_H
#define SOCKSPLICE_PROBE_H

/* Starts the work, because there is a live pair. Any context. */
void sks_probe_start(void);

/* Ends the work. The caller knows that no end is left. */
void sks_probe_exit(void);

#endif /* SOCKSPLICE_PROBE_H */
