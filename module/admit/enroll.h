/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_ENROLL_H
#define SOCKSPLICE_ENROLL_H

/*
 * The room admit/ decides which connections are paired, and finds the two ends of each. BPF
 * programs ask for it by kfuncs (kfunc.c), enroll.c checks the socket, and match.c finds its
 * peer. The room may call upkeep/, pair/ and core/. Only ctl/ and main.c may call it.
 */

#include <net/sock.h>

#include "uapi/socksplice.h"

/**
 * sks_enroll - enrol one end of a connection for pairing
 * @sk: a socket that is becoming ESTABLISHED right now. The caller has it
 *	locked, or is the softirq that owns it.
 * @active: it called connect()
 * @opts: options, or NULL for the defaults
 *
 * Context: softirq or process, never sleeps, takes no other socket's lock.
 * Return: 1 if it is paired now, 0 if it waits for its peer, or
 *	-EINVAL	    @opts are bad, or @sk is no TCP socket
 *	-EEXIST	    it is enrolled already
 *	-EOPNOTSUPP it is not eligible and stays on TCP; the reason is counted
 *	-ENOMEM	    there is no memory for it; it stays on TCP
 */
int sks_enroll(struct sock *sk, bool active, const struct socksplice_pair_opts *opts);

int sks_enroll_init(void);

#endif /* SOCKSPLICE_ENROLL_H */
