// SPDX-License-Identifier: GPL-2.0
#include <netinet/tcp.h>

#include "icmp.h"

static uint16_t checksum(const void *data, size_t len)
{
	const uint16_t *p = data;
	uint32_t sum = 0;

	for (; len; len -= 2)
		sum += *p++;
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* The sequence number of the next byte that @fd sends. */
static uint32_t send_seq(int fd)
{
	int on = 1, off = -1, queue = TCP_SEND_QUEUE;
	socklen_t len = sizeof(uint32_t);
	uint32_t seq;

	check(!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) &&
	      !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) &&
	      !getsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &seq, &len) &&
	      !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)),
	      "%s", strerror(errno));
	return seq;
}

void unreachable_for(struct unreachable *u, int fd)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);
	int one = 1;

	*u = (struct unreachable) {
		.fd = fd,
		.m.icmp = { .type = ICMP_DEST_UNREACH, .code = ICMP_HOST_UNREACH },
		.m.ip = { .version = 4, .ihl = 5, .protocol = IPPROTO_TCP, .ttl = 64,
			  .tot_len = htons(40) },
	};
	check(!getsockname(fd, (void *)&u->to, &len) && !getpeername(fd, (void *)&peer, &len),
	      "%s", strerror(errno));
	check(!setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one)), "%s", strerror(errno));
	u->m.ip.saddr = u->to.sin_addr.s_addr;
	u->m.ip.daddr = peer.sin_addr.s_addr;
	u->m.source = u->to.sin_port;
	u->m.dest = peer.sin_port;
	u->m.seq = htonl(send_seq(fd));
	u->m.icmp.checksum = checksum(&u->m, sizeof(u->m));
}

void say_unreachable(const struct unreachable *u)
{
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	long start = ms();

	while (!(poll_now(u->fd) & POLLERR)) {
		check(ms() - start < 20000, "no error");
		check(sendto(raw, &u->m, sizeof(u->m), 0, (void *)&u->to, sizeof(u->to)) ==
		      sizeof(u->m), "%s", strerror(errno));
		sleep_ms(10);
	}
	close(raw);
}
