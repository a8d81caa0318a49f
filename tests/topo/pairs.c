// SPDX-License-Identifier: GPL-2.0
/*
 * What the module itself says of pairs and counters, by generic netlink.
 */
#include "load.h"

#include <time.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "../../module/uapi/socksplice.h"

static int nl;

static void request(int type, int cmd, int flags, const char *name)
{
	struct {
		struct nlmsghdr h;
		struct genlmsghdr g;
		struct nlattr a;
		char name[32];
	} r = {
		.h = { .nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN), .nlmsg_type = type,
		       .nlmsg_flags = NLM_F_REQUEST | flags },
		.g = { .cmd = cmd, .version = 1 },
	};

	if (name) {
		r.a.nla_type = CTRL_ATTR_FAMILY_NAME;
		r.a.nla_len = NLA_HDRLEN + strlen(name) + 1;
		strcpy(r.name, name);
		r.h.nlmsg_len += NLA_ALIGN(r.a.nla_len);
	}
	if (send(nl, &r, r.h.nlmsg_len, 0) < 0)
		die("netlink: %s", strerror(errno));
}

/* The @nth attribute of @type among @len bytes. */
static const struct nlattr *attr(const void *from, int len, int type, int nth)
{
	while (len >= NLA_HDRLEN) {
		const struct nlattr *a = from;
		int step = NLA_ALIGN(a->nla_len);

		if (a->nla_len < NLA_HDRLEN || a->nla_len > len)
			break;
		if ((a->nla_type & NLA_TYPE_MASK) == type && !nth--)
			return a;
		from = (const char *)from + step;
		len -= step;
	}
	return NULL;
}

static const void *data(const struct nlattr *a)
{
	return (const char *)a + NLA_HDRLEN;
}

static uint64_t number(const struct nlattr *nest, int type)
{
	const struct nlattr *a = attr(data(nest), nest->nla_len - NLA_HDRLEN, type, 0);
	uint64_t v = 0;

	if (a)
		memcpy(&v, data(a), a->nla_len - NLA_HDRLEN);
	return v;
}

static void dump(int cmd, void (*each)(const void *body, int len, void *arg), void *arg)
{
	static char buf[65536];
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK };
	const struct nlattr *a;
	struct nlmsghdr *h = (void *)buf;
	long n;

	nl = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (nl < 0 || bind(nl, (void *)&sa, sizeof(sa)))
		die("netlink: %s", strerror(errno));
	request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, SOCKSPLICE_GENL_NAME);
	n = recv(nl, buf, sizeof(buf), 0);
	if (n <= 0 || h->nlmsg_type == NLMSG_ERROR)
		die("the module is not loaded");
	a = attr(buf + NLMSG_LENGTH(GENL_HDRLEN), h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN),
		 CTRL_ATTR_FAMILY_ID, 0);
	request(*(const uint16_t *)data(a), cmd, NLM_F_DUMP, NULL);
	/* The answer to the family request is followed by its acknowledgement
	 * on some kernels only; a dump's messages end with NLMSG_DONE.
	 */
	for (;;) {
		n = recv(nl, buf, sizeof(buf), 0);
		if (n <= 0)
			die("netlink: %s", strerror(errno));
		for (h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE) {
				close(nl);
				return;
			}
			if (h->nlmsg_type == NLMSG_ERROR)
				die("netlink error %d", *(int *)NLMSG_DATA(h));
			each((char *)h + NLMSG_LENGTH(GENL_HDRLEN),
			     h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), arg);
		}
	}
}

struct summary {
	unsigned int pairs, last, across, strangers, busy, closed;
	uint64_t ring, tcp, memory, queued;
	int groups;
	char **group;		/* "INODE,INODE": namespaces that may be joined */
};

static bool in_group(const char *group, uint64_t ns)
{
	char text[24], all[256];

	snprintf(text, sizeof(text), ",%llu,", (unsigned long long)ns);
	snprintf(all, sizeof(all), ",%s,", group);
	return strstr(all, text);
}

static void add_pair(const void *body, int len, void *arg)
{
	struct summary *s = arg;
	const struct nlattr *e[2] = { attr(body, len, SOCKSPLICE_A_PAIR_END, 0),
				      attr(body, len, SOCKSPLICE_A_PAIR_END, 1) };
	const struct nlattr *a = attr(body, len, SOCKSPLICE_A_PAIR_ID, 0);
	const uint32_t id = a ? *(const uint32_t *)data(a) : 0;
	bool known = !s->groups;
	uint64_t ring = 0;

	if (!e[0] || !e[1])
		die("a pair without two ends");
	if (id <= s->last)
		die("pair %u is shown after pair %u", id, s->last);
	s->last = id;
	s->pairs++;
	for (int i = 0; i < 2; i++) {
		ring += number(e[i], SOCKSPLICE_A_END_TX_RING_BYTES);
		s->tcp += number(e[i], SOCKSPLICE_A_END_TX_TCP_BYTES);
		s->memory += number(e[i], SOCKSPLICE_A_END_RING_MEM);
		s->queued += number(e[i], SOCKSPLICE_A_END_RING_QUEUED);
		s->closed += number(e[i], SOCKSPLICE_A_END_CLOSED);
	}
	s->ring += ring;
	s->busy += ring != 0;
	s->across += number(e[0], SOCKSPLICE_A_END_NETNS) != number(e[1], SOCKSPLICE_A_END_NETNS);
	for (int i = 0; i < s->groups; i++)
		known |= in_group(s->group[i], number(e[0], SOCKSPLICE_A_END_NETNS)) &&
			 in_group(s->group[i], number(e[1], SOCKSPLICE_A_END_NETNS));
	s->strangers += !known;
}

/* One line of sums. With --want waits until that many pairs are there. Fails if
 * a pair joins namespaces that are not in one group.
 */
int pairs_summary(unsigned int want, unsigned int seconds, int argc, char **argv)
{
	time_t end = time(NULL) + seconds;
	struct summary s;

	for (;;) {
		s = (struct summary){ .groups = argc, .group = argv };
		dump(SOCKSPLICE_CMD_PAIR_GET, add_pair, &s);
		if (want == ~0u || s.pairs == want || time(NULL) > end)
			break;
		usleep(20000);
	}
	printf("pairs %u across %u strangers %u busy %u ring %llu tcp %llu memory %llu queued %llu closed %u\n",
	       s.pairs, s.across, s.strangers, s.busy, (unsigned long long)s.ring,
	       (unsigned long long)s.tcp, (unsigned long long)s.memory,
	       (unsigned long long)s.queued, s.closed);
	if (s.strangers)
		return 1;
	return want != ~0u && s.pairs != want;
}

static void print_pair(const void *body, int len, void *arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		const struct nlattr *e = attr(body, len, SOCKSPLICE_A_PAIR_END, i);

		printf("%sns %llu port %llu to %llu ring %llu tcp %llu closed %llu", i ? " | " : "",
		       (unsigned long long)number(e, SOCKSPLICE_A_END_NETNS),
		       (unsigned long long)number(e, SOCKSPLICE_A_END_SPORT),
		       (unsigned long long)number(e, SOCKSPLICE_A_END_DPORT),
		       (unsigned long long)number(e, SOCKSPLICE_A_END_TX_RING_BYTES),
		       (unsigned long long)number(e, SOCKSPLICE_A_END_TX_TCP_BYTES),
		       (unsigned long long)number(e, SOCKSPLICE_A_END_CLOSED));
	}
	printf("\n");
}

int pairs_list(void)
{
	dump(SOCKSPLICE_CMD_PAIR_GET, print_pair, NULL);
	return 0;
}

struct wanted {
	const char *name;
	bool found;
};

static void print_stat(const void *body, int len, void *arg)
{
	const struct nlattr *n = attr(body, len, SOCKSPLICE_A_STAT_NAME, 0);
	const struct nlattr *v = attr(body, len, SOCKSPLICE_A_STAT_VALUE, 0);
	struct wanted *w = arg;
	uint64_t value = 0;

	if (!n || !v || strcmp(data(n), w->name))
		return;
	memcpy(&value, data(v), sizeof(value));
	printf("%llu\n", (unsigned long long)value);
	w->found = true;
}

int stat_show(const char *name)
{
	struct wanted w = { .name = name };

	dump(SOCKSPLICE_CMD_STATS_GET, print_stat, &w);
	return w.found ? 0 : 2;
}
