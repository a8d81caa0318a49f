// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that no other connection could have sent.
 */
#include "load.h"

static uint64_t key(const struct header *h)
{
	uint64_t k = ((uint64_t)h->tenant << 48) ^ ((uint64_t)h->conn << 24) ^ h->round;

	return (k + 1) * 0x9e3779b97f4a7c15ULL;
}

void message_make(void *buf, const struct header *h)
{
	unsigned char *p = buf;
	uint64_t k = key(h);

	memcpy(p, h, sizeof(*h));
	for (uint32_t i = sizeof(*h); i < h->len; i++)
		p[i] = (k >> (i % 8 * 8)) + i / 8;
}

bool message_good(const void *buf, const struct header *h)
{
	const unsigned char *p = buf;
	uint64_t k = key(h);

	if (memcmp(p, h, sizeof(*h)))
		return false;
	for (uint32_t i = sizeof(*h); i < h->len; i++) {
		if (p[i] != (unsigned char)((k >> (i % 8 * 8)) + i / 8))
			return false;
	}
	return true;
}

/* Sends one message and takes its echo. 0; -1 and errno; dies of a wrong byte. */
int message_exchange(int fd, unsigned int tenant, unsigned int conn, unsigned int round,
		     unsigned int size)
{
	static unsigned char buf[LOAD_MAX];
	struct header h = { LOAD_MAGIC, tenant, conn, round,
			    size < sizeof(h) ? sizeof(h) : size > LOAD_MAX ? LOAD_MAX : size };
	long n;

	message_make(buf, &h);
	for (uint32_t done = 0; done < h.len; done += n) {
		n = send(fd, buf + done, h.len - done, 0);
		if (n <= 0)
			return -1;
	}
	memset(buf, 0, h.len);
	for (uint32_t done = 0; done < h.len; done += n) {
		n = recv(fd, buf + done, h.len - done, 0);
		if (n <= 0) {
			errno = n ? errno : EPIPE;
			return -1;
		}
	}
	if (!message_good(buf, &h)) {
		const struct header *g = (void *)buf;

		die("WRONG BYTES: tenant %u connection %u round %u got tenant %u connection %u round %u",
		    tenant, conn, round, g->tenant, g->conn, g->round);
	}
	return 0;
}
