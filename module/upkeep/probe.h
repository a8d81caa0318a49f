/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a pair's packets still get through.
 *
 * Bytes of a ring pass no firewall and keep no connection-tracking entry alive.
 * So while a ring is in use and TCP is silent, each end sends one packet a
 * second: an ACK without data whose sequence number lies one before what the
 * peer expects, which makes the peer answer with an ACK (as keepalive does,
 * but by no timer, option or error that the application could see). Without
 * answers the pair goes back to TCP (unpair.h), sks_path_timeout after the
 * path was lost, and its bytes meet there what stopped the packets. A probe never
 * resets anything. A pair that was idle for so long sends by TCP until that was answered.
 *
 * What it notices is a path on which no packet gets through in one direction,
 * not a rule that looks at length, content or rate.
 */
#ifndef SOCKSPLICE_PROBE_H
#define SOCKSPLICE_PROBE_H

/* There is a live pair: probe from now on. Any context. */
void sks_probe_start(void);

/* No end is left. */
void sks_probe_exit(void);

#endif /* SOCKSPLICE_PROBE_H */
