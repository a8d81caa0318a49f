// SPDX-License-Identifier: GPL-2.0
/* torture: what goes on beside the workers: netlink dumps, parameters, rmmod. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "torture.h"
#include "../../module/uapi/socksplice.h"

struct genl {
	struct nlmsghdr n;
	struct genlmsghdr g;
	char attrs[64];
};

static int genl_ask(int fd, struct genl *q, uint16_t type, uint16_t flags, uint8_t cmd, int extra)
{
	q->n = (struct nlmsghdr){ .nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + extra,
				  .nlmsg_type = type,
				  .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = 1 };
	q->g = (struct genlmsghdr){ .cmd = cmd, .version = 1 };
	return send(fd, q, q->n.nlmsg_len, 0) == (ssize_t)q->n.nlmsg_len ? 0 : -1;
}

static uint16_t genl_family(int fd)
{
	char buf[8192];
	struct genl q = { 0 };
	struct nlattr *a = (void *)q.attrs;
	struct nlmsghdr *n = (void *)buf;
	ssize_t len, off;

	a->nla_type = CTRL_ATTR_FAMILY_NAME;
	a->nla_len = NLA_HDRLEN + sizeof(SOCKSPLICE_GENL_NAME);
	memcpy(a + 1, SOCKSPLICE_GENL_NAME, sizeof(SOCKSPLICE_GENL_NAME));
	if (genl_ask(fd, &q, GENL_ID_CTRL, 0, CTRL_CMD_GETFAMILY, NLA_ALIGN(a->nla_len)))
		return 0;
	len = recv(fd, buf, sizeof(buf), 0);
	if (len < (ssize_t)NLMSG_LENGTH(GENL_HDRLEN) || n->nlmsg_type == NLMSG_ERROR)
		return 0;
	for (off = NLMSG_LENGTH(GENL_HDRLEN); off + (ssize_t)NLA_HDRLEN <= len;
	     off += NLA_ALIGN(a->nla_len)) {
		a = (void *)(buf + off);
		if (a->nla_type == CTRL_ATTR_FAMILY_ID)
			return *(uint16_t *)(a + 1);
		if (a->nla_len < NLA_HDRLEN)
			break;
	}
	return 0;
}

/* One counter's message. */
static void counter(struct nlmsghdr *n)
{
	const char *name = "";
	uint64_t value = 0;
	size_t off;

	for (off = NLMSG_LENGTH(GENL_HDRLEN); off + NLA_HDRLEN <= n->nlmsg_len;) {
		struct nlattr *a = (void *)((char *)n + off);

		if (a->nla_len < NLA_HDRLEN)
			break;
		if (a->nla_type == SOCKSPLICE_A_STAT_NAME)
			name = (char *)(a + 1);
		if (a->nla_type == SOCKSPLICE_A_STAT_VALUE)
			memcpy(&value, a + 1, 8);
		off += NLA_ALIGN(a->nla_len);
	}
	/* the counters start anew with the module: keep the most that was seen */
	if (!strcmp(name, "ring_bytes") && value > atomic_load(&sh->ring_bytes))
		atomic_store(&sh->ring_bytes, value);
	if (!strcmp(name, "pairs_made") && value > atomic_load(&sh->pairs))
		atomic_store(&sh->pairs, value);
}

static void genl_dump(int fd, uint16_t family, uint8_t cmd)
{
	static char buf[65536];
	struct genl q = { 0 };

	if (genl_ask(fd, &q, family, NLM_F_DUMP, cmd, 0))
		return;
	for (;;) {
		ssize_t len = recv(fd, buf, sizeof(buf), 0);
		struct nlmsghdr *n = (void *)buf;

		if (len <= 0)
			return;
		for (; NLMSG_OK(n, len); n = NLMSG_NEXT(n, len)) {
			if (n->nlmsg_type == NLMSG_DONE || n->nlmsg_type == NLMSG_ERROR)
				return;
			if (cmd == SOCKSPLICE_CMD_STATS_GET)
				counter(n);
		}
	}
}

void dumper(void)
{
	struct timeval tv = { .tv_sec = 5 };

	while (!stopped()) {
		int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
		uint16_t family;
		int i;

		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		family = genl_family(fd);
		for (i = 0; family && i < 20 && !stopped(); i++) {
			genl_dump(fd, family, SOCKSPLICE_CMD_PAIR_GET);
			genl_dump(fd, family, SOCKSPLICE_CMD_STATS_GET);
			atomic_fetch_add(&sh->dumps, 1);
			usleep(20000);
		}
		close(fd);
		if (!family)
			usleep(50000);
	}
}

void toggler(void)
{
	reseed(777);
	while (!stopped()) {
		usleep(below(400000));
		if (atomic_load(&sh->draining))
			continue;
		switch (below(5)) {
		case 0: put(PARAMS "enroll_all", "0"); break;
		case 1: put(PARAMS "pairing", "0"); break;
		case 2: put(PARAMS "splice", below(2) ? "0" : "1"); break;
		case 3: put(PARAMS "ring_size", below(2) ? "4096" : "65536"); break;
		case 4: put(PARAMS "shadow", "1"); break;
		}
		usleep(below(50000));
		if (!atomic_load(&sh->draining))
			put(PARAMS "enroll_all", "1");
		put(PARAMS "pairing", "1");
		put(PARAMS "shadow", "0");
	}
}

/* True if the module is unloaded, which it is not with live pairs. Tries for @ms. */
static bool unload(int ms)
{
	for (; syscall(SYS_delete_module, "socksplice", O_NONBLOCK); ms -= 20) {
		if (ms <= 0 || stopped())
			return false;
		usleep(20000);
	}
	atomic_fetch_add(&sh->unloads, 1);
	return true;
}

void unloader(void)
{
	int fd = open(module, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		bad("cannot open %s", module);
		return;
	}
	reseed(888);
	while (!stopped()) {
		/* with new pairs all the time the count seldom gets to zero */
		const bool drains = !below(3);

		if (drains) {
			atomic_store(&sh->draining, true);
			put(PARAMS "enroll_all", "0");
		}
		if (unload(drains ? 5000 : 0) && syscall(SYS_finit_module, fd, "enroll_all=1", 0)) {
			bad("the module does not load again: %s", strerror(errno));
			return;
		}
		atomic_store(&sh->draining, false);
		put(PARAMS "enroll_all", "1");
		usleep(below(300000));
	}
	close(fd);
}
