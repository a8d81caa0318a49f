/* SPDX-License-Identifier: GPL-2.0 */
/* What the relay's BPF programs and their loader share. */
#ifndef RELAY_H
#define RELAY_H

/* A socket by its ports: all are on one machine, in one namespace. */
struct end {
	__u32 local, remote;
};

#endif
