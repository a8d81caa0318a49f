/* SPDX-License-Identifier: GPL-2.0 */
/* An ICMP message that tells a socket with IP_RECVERR that its peer is unreachable. */
#ifndef ICMP_H
#define ICMP_H

#include <netinet/ip.h>
#include <netinet/ip_icmp.h>

#include "sosplice.h"

struct unreachable {
	int fd;
	struct sockaddr_in to;
	struct {
		struct icmphdr icmp;
		struct iphdr ip;
		uint16_t source, dest;
		uint32_t seq;
	} m;
};

/* Prepares the message for a TCP socket, which must not be spliced yet. */
void unreachable_for(struct unreachable *u, int fd);

/* Sends the message until the socket has the error. TCP ignores ICMP while a task owns the
 * socket.
 */
void say_unreachable(const struct unreachable *u);

#endif
