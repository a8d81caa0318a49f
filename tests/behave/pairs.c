// SPDX-License-Identifier: GPL-2.0
/*
 * A small generic-netlink client: the module's list of live pairs, found by
 * socket cookie, and its command that takes pairs back to TCP.
 */
#include "behave.h"

#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "../../module/uapi/socksplice.h"

static int nl = -1, family;

struct request {
	struct nlmsghdr h;
	struct genlmsghdr g;
	char attr[64];
};

static int request_with(int type, int cmd, int flags, int attribute, const void *value,
			size_t size)
{
	struct request r = {
		.h = { .nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN), .nlmsg_type = type,
		       .nlmsg_flags = NLM_F_REQUEST | flags },
		.g = { .cmd = cmd, .version = 1 },
	};

	if (value) {
		struct nlattr *a = (void *)r.attr;

		a->nla_type = attribute;
		a->nla_len = NLA_HDRLEN + size;
		memcpy(r.attr + NLA_HDRLEN, value, size);
		r.h.nlmsg_len += NLA_ALIGN(a->nla_len);
	}
	return send(nl, &r, r.h.nlmsg_len, 0) < 0 ? -1 : 0;
}

static int request(int type, int cmd, int flags)
{
	return request_with(type, cmd, flags, 0, NULL, 0);
}

static const struct nlattr *attr(const void *from, int len, int type, const struct nlattr *after)
{
	const struct nlattr *a = from;

	while (len >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= len) {
		int step = NLA_ALIGN(a->nla_len);

		if ((a->nla_type & NLA_TYPE_MASK) == type && (!after || a > after))
			return a;
		a = (const void *)((const char *)a + step);
		len -= step;
	}
	return NULL;
}

static uint64_t number(const struct nlattr *nest, int type)
{
	const struct nlattr *a = attr((const char *)nest + NLA_HDRLEN, nest->nla_len - NLA_HDRLEN,
				      type, NULL);
	uint64_t v = 0;

	if (a)
		memcpy(&v, (const char *)a + NLA_HDRLEN, a->nla_len - NLA_HDRLEN);
	return v;
}

/* Opens the socket in the initial namespace, where the family lives. */
int pairs_open(void)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK };
	char buf[8192];
	const struct nlmsghdr *h = (void *)buf;
	const struct nlattr *a;
	long n;

	nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (nl < 0 || bind(nl, (void *)&sa, sizeof(sa)) < 0)
		return -1;
	if (request_with(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, CTRL_ATTR_FAMILY_NAME,
			 SOCKSPLICE_GENL_NAME, sizeof(SOCKSPLICE_GENL_NAME)))
		return -1;
	n = recv(nl, buf, sizeof(buf), 0);
	if (n < (long)NLMSG_LENGTH(GENL_HDRLEN) || h->nlmsg_type == NLMSG_ERROR)
		return -1;
	a = attr(buf + NLMSG_LENGTH(GENL_HDRLEN), h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN),
		 CTRL_ATTR_FAMILY_ID, NULL);
	if (!a)
		return -1;
	family = *(const uint16_t *)((const char *)a + NLA_HDRLEN);
	return 0;
}

static void read_pair(const struct nlmsghdr *h, uint64_t ca, uint64_t cb, struct pair_info *info)
{
	const char *body = (const char *)h + NLMSG_LENGTH(GENL_HDRLEN);
	int len = h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), i = 0;
	const struct nlattr *end[2] = { NULL, NULL }, *a = NULL;
	bool match = false;

	while (i < 2 && (a = attr(body, len, SOCKSPLICE_A_PAIR_END, a))) {
		uint64_t c = number(a, SOCKSPLICE_A_END_COOKIE);

		match |= c && (c == ca || c == cb);
		end[i++] = a;
	}
	if (!match || i < 2)
		return;
	info->found = true;
	a = attr(body, len, SOCKSPLICE_A_PAIR_ID, NULL);
	memcpy(&info->id, (const char *)a + NLA_HDRLEN, sizeof(info->id));
	a = attr(body, len, SOCKSPLICE_A_PAIR_DRAINING, NULL);
	info->draining = a && *((const char *)a + NLA_HDRLEN);
	for (i = 0; i < 2; i++) {
		info->tx_ring[i] = number(end[i], SOCKSPLICE_A_END_TX_RING_BYTES);
		info->tx_tcp[i] = number(end[i], SOCKSPLICE_A_END_TX_TCP_BYTES);
		info->rings[i] = number(end[i], SOCKSPLICE_A_END_RING_QUEUED);
		info->closed[i] = number(end[i], SOCKSPLICE_A_END_CLOSED);
	}
}

int pairs_find(uint64_t cookie_a, uint64_t cookie_b, struct pair_info *info)
{
	char buf[65536];

	memset(info, 0, sizeof(*info));
	if (request(family, SOCKSPLICE_CMD_PAIR_GET, NLM_F_DUMP))
		fail("PAIR_GET: %s", strerror(errno));
	for (;;) {
		long n = recv(nl, buf, sizeof(buf), 0);

		if (n <= 0)
			fail("PAIR_GET: %s", strerror(errno));
		for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return info->found ? 0 : -1;
			if (h->nlmsg_type == NLMSG_ERROR)
				fail("PAIR_GET: error %d", *(int *)NLMSG_DATA(h));
			read_pair(h, cookie_a, cookie_b, info);
		}
	}
}

static int acknowledged(void)
{
	char buf[8192];
	const struct nlmsghdr *h = (void *)buf;

	if (recv(nl, buf, sizeof(buf), 0) <= 0 || h->nlmsg_type != NLMSG_ERROR)
		fail("PAIR_DROP: no answer");
	return *(int *)NLMSG_DATA(h);
}

int pairs_drop(uint32_t id)
{
	if (request_with(family, SOCKSPLICE_CMD_PAIR_DROP, NLM_F_ACK, SOCKSPLICE_A_PAIR_ID,
			 &id, sizeof(id)))
		fail("PAIR_DROP: %s", strerror(errno));
	return acknowledged();
}

void pairs_drop_all(void)
{
	if (request(family, SOCKSPLICE_CMD_PAIR_DROP, NLM_F_ACK) || acknowledged())
		fail("PAIR_DROP of all failed");
}
