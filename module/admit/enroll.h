/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_ENROLL_H
#define SOCKSPLICE_ENROLL_H

#include <net/sock.h>

#include "uapi/socksplice.h"

/**
 * sks_enroll - one end of a connection wants to be paired
 * @sk: a socket that is becoming ESTABLISHED, at that very moment. The caller
 *	has it locked or is the softirq that owns it.
 * @active: it called connect()
 * @opts: or NULL for the defaults
 *
 * Context: softirq or process, never sleeps, takes no other socket's lock.
 * Return: 1 if it is paired now, 0 if it waits for its peer, or
 *	-EINVAL	    @opts are bad, or @sk is no TCP socket
 *	-EEXIST	    it is enrolled already
 *	-EOPNOTSUPP it is not eligible and stays on TCP; the reason is counted
 *	-ENOMEM	    no memory for it; it stays on TCP
 */
int sks_enroll(struct sock *sk, bool active,
	       const struct socksplice_pair_opts *opts);

int sks_enroll_init(void);

#endif /* SOCKSPLICE_ENROLL_H */
