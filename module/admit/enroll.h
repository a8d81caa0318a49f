/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_ENROLL_H
#define SOCKSPLICE_ENROLL_H

#include <net/sock.h>

#include "uapi/socksplice.h"

/* Switches; written by module parameters and netlink, read with READ_ONCE. */
extern bool socksplice_pairing;
extern bool socksplice_shadow;
/* Set once the module can no longer fail to load: from then on sockets may refer to it. */
extern bool socksplice_loaded;
extern unsigned int socksplice_ring_size;
extern unsigned int socksplice_ring_max;	/* what it may grow to; 0: it does not */
bool socksplice_ring_size_valid(u32 size);

/**
 * socksplice_enroll - one end of a connection wants to be paired
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
int socksplice_enroll(struct sock *sk, bool active,
		      const struct socksplice_pair_opts *opts);

int socksplice_enroll_init(void);

#endif /* SOCKSPLICE_ENROLL_H */
