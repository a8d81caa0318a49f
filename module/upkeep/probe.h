/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a pair's packets still get through.
 *
 * Bytes of a ring pass no firewall and keep no connection-tracking entry alive.
 * So while a ring is in use and TCP is silent, each end sends one packet a
 * second: an ACK without data whose sequence number lies one before what the
 * peer expects, which makes the peer answer with an ACK (as keepalive does,
 * but by no timer, option or error that the application could see). Without
 * answers the pair goes back to TCP (unpair.h), socksplice_path_timeout after the
 * path was lost, and its bytes meet there what stopped the packets. A probe never
 * resets anything. A pair that was idle for so long sends by TCP until that was answered.
 *
 * What it notices is a path on which no packet gets through in one direction,
 * not a rule that looks at length, content or rate.
 */
#ifndef SOCKSPLICE_PROBE_H
#define SOCKSPLICE_PROBE_H

#include <net/tcp.h>

/* Seconds. Above five, probes come less often than once a second. */
#define SOCKSPLICE_PATH_TIMEOUT_MIN	3
#define SOCKSPLICE_PATH_TIMEOUT_MAX	300
extern unsigned int socksplice_path_timeout;

/* The state of @sk lets it send probes: else it hears of nothing new. */
static inline bool socksplice_probe_asks(const struct sock *sk)
{
	return (1 << READ_ONCE(sk->sk_state)) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

/* A packet that answers @sk has come within the time-out. @sk need not be locked. */
static inline bool socksplice_probe_is_fresh(const struct sock *sk)
{
	return tcp_jiffies32 - READ_ONCE(tcp_sk(sk)->rcv_tstamp) <=
	       READ_ONCE(socksplice_path_timeout) * HZ;
}

/* There is a live pair: probe from now on. Any context. */
void socksplice_probe_start(void);

/* No chan is left. */
void socksplice_probe_exit(void);

#endif /* SOCKSPLICE_PROBE_H */
