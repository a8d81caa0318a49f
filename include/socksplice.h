/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SO_SPLICE for programs: the kernel forwards what one socket, TCP or UDP, receives into
 * another one. See so_splice(4) for what it does and which errors it gives.
 *
 *	struct splice s = { .sp_fd = sink, .sp_max = 1 << 20, .sp_idle = { .tv_sec = 30 } };
 *
 *	if (socksplice_splice(source, &s) < 0)
 *		...copy in user space...
 *
 * The administrator has to switch it on: socksplice feature set so-splice on.
 *
 * Needs no library. The names are those of OpenBSD and FreeBSD; their
 * setsockopt(fd, SOL_SOCKET, SO_SPLICE, ...) works as well, unless the kernel lets
 * nobody redirect its functions: what is below always works.
 */
#ifndef SOCKSPLICE_H
#define SOCKSPLICE_H

#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

/* Level and name by which the module offers the option: IPv4 and IPv6 sockets. */
#define SOCKSPLICE_LEVEL	IPPROTO_IP
#define SOCKSPLICE_SO_SPLICE	0x5350

/* struct splice - argument of SO_SPLICE
 * @sp_fd: the sink, or -1 to end the splice
 * @sp_max: bytes after which the splice ends with EFBIG; 0: no limit
 * @sp_idle: time without a byte moved after which it ends with ETIMEDOUT; 0: none
 */
#ifndef SO_SPLICE
#define SO_SPLICE		0x1023
struct splice {
	int		sp_fd;
	off_t		sp_max;
	struct timeval	sp_idle;
};
#endif

/* Splices @fd as @s says. 0, or -1 with errno: those of so_splice(4), ENOPROTOOPT
 * where the module is not loaded or the feature is off.
 */
static inline int socksplice_splice(int fd, const struct splice *s)
{
	return setsockopt(fd, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, s, sizeof(*s));
}

/* Ends the splice whose source is @fd. 0, or -1 with errno. */
static inline int socksplice_unsplice(int fd)
{
	int none = -1;

	return setsockopt(fd, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &none, sizeof(none));
}

/* Bytes that the splice of @fd has moved so far, or the last one did; -1 with errno. */
static inline int64_t socksplice_moved(int fd)
{
	int64_t moved;
	socklen_t len = sizeof(moved);

	if (getsockopt(fd, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &moved, &len))
		return -1;
	return moved;
}

#endif /* SOCKSPLICE_H */
