// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../module/uapi/socksplice.h"
#include "lab.h"
#include "sockmap.h"

const char * const kind_names[] = {
	[KIND_TCP] = "tcp",
	[KIND_BASE] = "base",
	[KIND_PASS] = "pass",
	[KIND_SELF] = "self",
	[KIND_HASH] = "hash",
	[KIND_PULLED] = "pulled",
	[KIND_REDIR] = "redir",
	[KIND_REDIR_BASE] = "redir-base",
	[KIND_REDIR_HASH] = "redir-hash",
	[KIND_MSG] = "msg",
	[KIND_MSG_VERDICT] = "msg-verdict",
	[KIND_MSG_APPLY] = "msg-apply",
	[KIND_STRP] = "strp",
	[KIND_STRP_REDIR] = "strp-redir",
};

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("  ");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	fflush(stdout);
	_exit(1);
}

void tcp_pair(int family, int *client, int *server)
{
	struct sockaddr_storage ss = { .ss_family = family };
	socklen_t len = sizeof(ss);
	int l = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (family == AF_INET)
		((struct sockaddr_in *)&ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&ss)->sin6_addr = in6addr_loopback;
	if (l < 0 || bind(l, (void *)&ss, len) || listen(l, 4) ||
	    getsockname(l, (void *)&ss, &len))
		die("listen: %s", strerror(errno));
	*client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*client < 0 || connect(*client, (void *)&ss, len))
		die("connect: %s", strerror(errno));
	*server = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (*server < 0)
		die("accept: %s", strerror(errno));
	close(l);
}

static uint32_t local_port(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (void *)&ss, &len))
		die("getsockname: %s", strerror(errno));
	/* the port stands at the same place in both families */
	return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

static int map_fd(struct flow *f, const char *name)
{
	return bpf_object__find_map_fd_by_name(f->obj, name);
}

static void attach(struct flow *f, const char *prog, const char *map, enum bpf_attach_type type)
{
	struct bpf_program *p = bpf_object__find_program_by_name(f->obj, prog);

	if (!p || bpf_prog_attach(bpf_program__fd(p), map_fd(f, map), type, 0))
		die("cannot attach %s to %s: %s", prog, map, strerror(errno));
}

/* The programs of a socket that has left a map stay while a reader is inside,
 * and the kernel then takes it for one that is in a map with programs.
 */
static void put(struct flow *f, const char *map, uint32_t key, int fd)
{
	uint64_t value = fd;

	while (bpf_map_update_elem(map_fd(f, map), &key, &value, BPF_ANY))
		if (errno != EBUSY)
			die("cannot put a socket into %s: %s", map, strerror(errno));
}

static void rule(struct flow *f, int fd, struct rule r)
{
	uint32_t port = local_port(fd);

	if (bpf_map_update_elem(map_fd(f, "rules"), &port, &r, BPF_ANY))
		die("cannot set a rule: %s", strerror(errno));
}

static int no_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, fmt, ap) : 0;
}

/* Whether a flow of this kind attaches the program. */
static bool needs(enum kind kind, const char *prog)
{
	bool msg = kind == KIND_MSG || kind == KIND_MSG_VERDICT || kind == KIND_MSG_APPLY;

	if (!strcmp(prog, "message"))
		return msg;
	if (!strcmp(prog, "parser"))
		return kind == KIND_STRP || kind == KIND_STRP_REDIR;
	return kind != KIND_BASE && (!msg || kind == KIND_MSG_VERDICT);
}

/* The verifier takes most of the time that a flow costs on a slow machine. */
static void load(struct flow *f)
{
	const char *path = getenv("SOCKMAP_BPF");
	struct bpf_program *p;

	libbpf_set_print(no_print);
	f->obj = bpf_object__open(path ? path : "build/psock/sockmap.bpf.o");
	if (f->obj)
		bpf_object__for_each_program(p, f->obj)
			bpf_program__set_autoload(p, needs(f->kind, bpf_program__name(p)));
	if (!f->obj || bpf_object__load(f->obj))
		die("cannot load the BPF programs: %s", strerror(errno));
}

/* Where the reader stands: it is put into map @map as @key. */
void flow_open(struct flow *f, enum kind kind, int family)
{
	struct rule to = { .action = RULE_TO_DST, .key = 0, .flags = BPF_F_INGRESS };

	*f = (struct flow){ .kind = kind, .via = -1 };
	tcp_pair(family, &f->peer, &f->rd);
	f->wr = f->peer;
	if (kind == KIND_TCP)
		return;
	load(f);

	switch (kind) {
	case KIND_BASE:
		put(f, "dst", 0, f->rd);
		return;
	case KIND_PASS:
		attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		put(f, "dst", 0, f->rd);
		return;
	case KIND_SELF:
		attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		rule(f, f->rd, to);
		put(f, "dst", 0, f->rd);
		return;
	case KIND_PULLED:
		attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		rule(f, f->rd, (struct rule){ .action = RULE_PASS, .pull = 1 });
		put(f, "dst", 0, f->rd);
		return;
	case KIND_HASH:
		attach(f, "verdict", "hash", BPF_SK_SKB_STREAM_VERDICT);
		put(f, "hash", 0, f->rd);
		return;
	case KIND_STRP:
		attach(f, "parser", "dst", BPF_SK_SKB_STREAM_PARSER);
		attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		rule(f, f->rd, (struct rule){ .action = RULE_PASS, .record = RECORD });
		put(f, "dst", 0, f->rd);
		return;
	case KIND_REDIR:
	case KIND_REDIR_BASE:
	case KIND_REDIR_HASH:
	case KIND_STRP_REDIR:
		tcp_pair(family, &f->wr, &f->via);
		if (kind == KIND_REDIR)
			attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		if (kind == KIND_REDIR_HASH)
			to.action = RULE_TO_HASH;
		if (kind == KIND_STRP_REDIR) {
			to.record = RECORD;
			attach(f, "parser", "src", BPF_SK_SKB_STREAM_PARSER);
		}
		attach(f, "verdict", "src", BPF_SK_SKB_STREAM_VERDICT);
		rule(f, f->via, to);
		put(f, kind == KIND_REDIR_HASH ? "hash" : "dst", 0, f->rd);
		put(f, "src", 0, f->via);
		return;
	case KIND_MSG_APPLY:
		to.record = 1000;
		/* fall through */
	case KIND_MSG:
	case KIND_MSG_VERDICT:
		/* the writer is a socket of its own: its peer never gets a byte */
		tcp_pair(family, &f->wr, &f->via);
		if (kind == KIND_MSG_VERDICT)
			attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
		attach(f, "message", "src", BPF_SK_MSG_VERDICT);
		rule(f, f->wr, to);
		put(f, "dst", 0, f->rd);
		put(f, "src", 0, f->wr);
		return;
	default:
		die("no such kind");
	}
}

void both_open(struct flow *f, bool verdict, int family)
{
	*f = (struct flow){ .kind = verdict ? KIND_PASS : KIND_MSG, .via = -1 };
	tcp_pair(family, &f->wr, &f->rd);
	f->peer = f->wr;
	load(f);
	if (verdict) {
		attach(f, "verdict", "src", BPF_SK_SKB_STREAM_VERDICT);
		attach(f, "verdict", "dst", BPF_SK_SKB_STREAM_VERDICT);
	} else {
		attach(f, "message", "src", BPF_SK_MSG_VERDICT);
		attach(f, "message", "dst", BPF_SK_MSG_VERDICT);
		rule(f, f->wr, (struct rule){ .action = RULE_TO_DST, .flags = BPF_F_INGRESS });
		rule(f, f->rd, (struct rule){ .action = RULE_TO_SRC, .flags = BPF_F_INGRESS });
	}
	put(f, "src", 0, f->wr);
	put(f, "dst", 0, f->rd);
}

void own_open(struct flow *f, int family)
{
	*f = (struct flow){ .kind = KIND_MSG, .via = -1 };
	tcp_pair(family, &f->peer, &f->rd);
	f->wr = f->rd;
	load(f);
	attach(f, "message", "dst", BPF_SK_MSG_VERDICT);
	rule(f, f->rd, (struct rule){ .action = RULE_TO_DST, .flags = BPF_F_INGRESS });
	put(f, "dst", 0, f->rd);
}

void flow_parse(struct flow *f, int32_t record)
{
	rule(f, f->rd, (struct rule){ .action = RULE_PASS, .record = record });
}

void flow_empty(struct flow *f, bool on)
{
	rule(f, f->wr, (struct rule){ .action = RULE_TO_DST, .flags = BPF_F_INGRESS, .pull = on });
}

void flow_map_too(struct flow *f)
{
	put(f, "src", 0, f->rd);
}

void flow_redirect_fin(struct flow *f)
{
	rule(f, f->via, (struct rule){ .action = RULE_TO_DST, .flags = BPF_F_INGRESS, .fin = 1 });
}

void flow_close(struct flow *f)
{
	close(f->rd);
	close(f->peer);
	if (f->wr != f->peer && f->wr != f->rd)
		close(f->wr);
	if (f->via >= 0)
		close(f->via);
	if (f->obj)
		bpf_object__close(f->obj);
}

void flow_warm_up(void)
{
	struct flow f;

	flow_open(&f, KIND_PASS, AF_INET);
	flow_close(&f);
}

static const char *readers_map(const struct flow *f)
{
	return f->kind == KIND_HASH || f->kind == KIND_REDIR_HASH ? "hash" : "dst";
}

void flow_detach(struct flow *f)
{
	struct bpf_program *p = bpf_object__find_program_by_name(f->obj, "verdict");

	if (bpf_prog_detach2(bpf_program__fd(p), map_fd(f, readers_map(f)),
			     BPF_SK_SKB_STREAM_VERDICT))
		die("cannot detach: %s", strerror(errno));
}

void flow_unmap(struct flow *f)
{
	uint32_t key = 0;

	if (bpf_map_delete_elem(map_fd(f, readers_map(f)), &key))
		die("cannot delete from the map: %s", strerror(errno));
}

void flow_map(struct flow *f)
{
	put(f, readers_map(f), 0, f->rd);
}

bool flow_own(const struct flow *f)
{
	return f->wr == f->peer;
}

/* Generic netlink by hand: one request, answers up to NLMSG_DONE. */
struct genl_req {
	struct nlmsghdr nh;
	struct genlmsghdr gh;
	struct nlattr attr;
	char name[16];
};

static void genl_send(int fd, uint16_t type, uint8_t cmd, uint16_t flags, const char *family)
{
	struct genl_req req = {
		.nh.nlmsg_type = type,
		.nh.nlmsg_flags = NLM_F_REQUEST | flags,
		.gh = { .cmd = cmd, .version = 1 },
	};

	req.nh.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	if (family) {
		req.attr.nla_type = CTRL_ATTR_FAMILY_NAME;
		req.attr.nla_len = NLA_HDRLEN + strlen(family) + 1;
		strcpy(req.name, family);
		req.nh.nlmsg_len += NLA_ALIGN(req.attr.nla_len);
	}
	if (send(fd, &req, req.nh.nlmsg_len, 0) < 0)
		die("netlink: %s", strerror(errno));
}

static const struct nlattr *genl_attr(const struct nlmsghdr *nh, int type)
{
	int left = nh->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN);
	const char *at = (const char *)nh + NLMSG_LENGTH(GENL_HDRLEN);

	while (left >= (int)sizeof(struct nlattr)) {
		const struct nlattr *a = (const void *)at;

		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		at += NLA_ALIGN(a->nla_len);
		left -= NLA_ALIGN(a->nla_len);
	}
	return NULL;
}

uint64_t stat_get(const char *name)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	char buf[16384] __attribute__((aligned(8)));
	const struct nlattr *a;
	uint16_t family;
	int n;

	genl_send(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, SOCKSPLICE_GENL_NAME);
	n = recv(fd, buf, sizeof(buf), 0);
	if (n < 0 || !NLMSG_OK((struct nlmsghdr *)buf, (unsigned int)n) ||
	    !(a = genl_attr((struct nlmsghdr *)buf, CTRL_ATTR_FAMILY_ID)))
		die("the module does not answer: is socksplice.ko loaded?");
	memcpy(&family, (char *)a + NLA_HDRLEN, sizeof(family));

	genl_send(fd, family, SOCKSPLICE_CMD_STATS_GET, NLM_F_DUMP, NULL);
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		struct nlmsghdr *nh = (struct nlmsghdr *)buf;

		for (; NLMSG_OK(nh, (unsigned int)n); nh = NLMSG_NEXT(nh, n)) {
			const struct nlattr *v;
			uint64_t value;

			if (nh->nlmsg_type == NLMSG_DONE || nh->nlmsg_type == NLMSG_ERROR)
				die("the module has no counter %s", name);
			a = genl_attr(nh, SOCKSPLICE_A_STAT_NAME);
			v = genl_attr(nh, SOCKSPLICE_A_STAT_VALUE);
			if (!a || !v || strcmp((char *)a + NLA_HDRLEN, name))
				continue;
			memcpy(&value, (char *)v + NLA_HDRLEN, sizeof(value));
			close(fd);
			return value;
		}
	}
	die("netlink: %s", strerror(errno));
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

void stream_fill(uint64_t seed, uint64_t pos, void *buf, size_t len)
{
	unsigned char *p = buf;
	size_t i = 0;

	while (i < len) {
		uint64_t word = mix(seed + (pos + i) / 8);
		unsigned int at = (pos + i) % 8;

		for (; at < 8 && i < len; at++, i++)
			p[i] = word >> (8 * at);
	}
}

size_t stream_check(uint64_t seed, uint64_t pos, const void *buf, size_t len)
{
	const unsigned char *p = buf;
	unsigned char want[4096];
	size_t i = 0;

	while (i < len) {
		size_t n = len - i < sizeof(want) ? len - i : sizeof(want);

		stream_fill(seed, pos + i, want, n);
		if (memcmp(p + i, want, n)) {
			size_t k = 0;

			while (p[i + k] == want[k])
				k++;
			return i + k;
		}
		i += n;
	}
	return len;
}
