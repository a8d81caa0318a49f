/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The socket option by which the module offers SO_SPLICE. <socksplice.h> wraps it.
 *
 * setsockopt(fd, SOL_IP, SOCKSPLICE_SO_SPLICE, …) takes an int, the sink's file descriptor, or a
 * struct socksplice_so_splice. A negative descriptor, or an argument of length 0, ends the splice.
 * getsockopt gives the bytes moved, an __s64. so_splice(4) lists the errors.
 */
#ifndef _UAPI_SOCKSPLICE_SO_SPLICE_H
#define _UAPI_SOCKSPLICE_SO_SPLICE_H

#include <linux/types.h>

#define SOCKSPLICE_SO_SPLICE	0x5350	/* level SOL_IP, IPv6 sockets too */

struct socksplice_so_splice {
	__s32 sp_fd;		/* the sink, or -1 */
	__u32 pad;		/* ignored */
	__s64 sp_max;		/* bytes; 0: no limit */
	__s64 sp_idle_sec;	/* both 0: no limit */
	__s64 sp_idle_usec;	/* 0 to 999999 */
};

#endif /* _UAPI_SOCKSPLICE_SO_SPLICE_H */
