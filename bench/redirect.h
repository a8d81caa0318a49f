/* SPDX-License-Identifier: GPL-2.0 */
/* What the sockmap proxy's BPF program and its loader share. */
#ifndef REDIRECT_H
#define REDIRECT_H

/* A socket by its ports, in host order: all are on one machine, in one namespace. */
struct end {
	__u32 local, remote;
};

#endif
