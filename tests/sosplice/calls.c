// SPDX-License-Identifier: GPL-2.0
/* The results of setsockopt(2) and getsockopt(2). A refusal changes nothing. */
#include <limits.h>
#include <linux/bpf.h>
#include <linux/kcm.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/syscall.h>

#include "sosplice.h"

static int try(int from, int to, int64_t max, long sec, long usec)
{
	struct splice s = { .sp_fd = to, .sp_max = max };

	s.sp_idle.tv_sec = sec;
	s.sp_idle.tv_usec = usec;
	return socksplice_splice(from, &s) ? errno : 0;
}

#define refused(err, from, to, ...) do {				\
	int got = try(from, to, __VA_ARGS__);				\
	check(got == (err), "%s", strerror(got));			\
} while (0)

/* The proxy still gets what the client sends. */
static void still_plain(struct relay *r)
{
	stream_write(r->c, 0, 1000);
	stream_read(r->p, 0, 1000);
	stream_write(r->q, 0, 1000);
	stream_read(r->s, 0, 1000);
}

static void ebusy_source(void)
{
	struct relay r, o;

	relay_open(&r, AF_INET, AF_INET);
	relay_open(&o, AF_INET, AF_INET);
	splice_on(&r);
	refused(EBUSY, r.p, o.q, 0, 0, 0);
	still_plain(&o);
	stream_write(r.c, 0, 100);
	stream_read(r.s, 0, 100);
}

static void ebusy_sink(void)
{
	struct relay r, o;

	relay_open(&r, AF_INET, AF_INET);
	relay_open(&o, AF_INET, AF_INET);
	splice_on(&r);
	refused(EBUSY, o.p, r.q, 0, 0, 0);
	still_plain(&o);
}

static void enotconn_source(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	refused(ENOTCONN, fd, r.q, 0, 0, 0);
	still_plain(&r);
}

static void enotconn_sink(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	refused(ENOTCONN, r.p, fd, 0, 0, 0);
	still_plain(&r);
}

static void enotconn_unsplice(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	refused(ENOTCONN, r.p, -1, 0, 0, 0);
	still_plain(&r);
}

static void eopnotsupp_listener(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0);
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	listen(l, 1);
	refused(EOPNOTSUPP, r.p, l, 0, 0, 0);
	refused(EOPNOTSUPP, l, r.q, 0, 0, 0);
	still_plain(&r);
}

static void eprotonosupport(void)
{
	int udp = socket(AF_INET, SOCK_DGRAM, 0), un[2];
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	socketpair(AF_UNIX, SOCK_STREAM, 0, un);
	refused(EPROTONOSUPPORT, r.p, udp, 0, 0, 0);
	refused(EPROTONOSUPPORT, r.p, un[0], 0, 0, 0);
	refused(EPROTONOSUPPORT, udp, r.q, 0, 0, 0);
	still_plain(&r);
}

static void ebadf(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	refused(EBADF, r.p, 999, 0, 0, 0);
	still_plain(&r);
}

static void enotsock(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	refused(ENOTSOCK, r.p, 1, 0, 0, 0);
	still_plain(&r);
}

static void einval(void)
{
	struct relay r;
	char c = 0;

	relay_open(&r, AF_INET, AF_INET);
	refused(EINVAL, r.p, r.q, -1, 0, 0);
	refused(EINVAL, r.p, r.q, 0, -1, 0);
	refused(EINVAL, r.p, r.q, 0, 0, -1);
	refused(EINVAL, r.p, r.q, 0, 0, 1000000);
	check(setsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &c, 1) && errno == EINVAL,
	      "%s", strerror(errno));
	still_plain(&r);
}

static void efault(void)
{
	struct relay r;
	char tiny[4];
	socklen_t len = sizeof(tiny);

	relay_open(&r, AF_INET, AF_INET);
	check(setsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, (void *)1,
			 sizeof(struct splice)) && errno == EFAULT, "%s", strerror(errno));
	check(getsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, tiny, &len) &&
	      errno == EINVAL, "%s", strerror(errno));
	still_plain(&r);
}

/* kTLS on the source or on the sink: EINVAL. While spliced, a socket refuses kTLS with EBUSY. */
static void einval_ktls(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	if (setsockopt(r.p, IPPROTO_TCP, TCP_ULP, "tls", 3)) {
		printf("# no kTLS here\n");
	} else {
		refused(EINVAL, r.p, r.q, 0, 0, 0);
		refused(EINVAL, r.q, r.p, 0, 0, 0);
	}
	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	check(setsockopt(r.p, IPPROTO_TCP, TCP_ULP, "tls", 3) && errno == EBUSY,
	      "%s", strerror(errno));
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	still_plain(&r);
}

/* The sink's owner may set SO_INCOMING_CPU to any number. */
static void any_incoming_cpu(void)
{
	const int cpus[] = { -1, -2, 0, 1, 63, 64, 512, 8192, 8193, 100000, INT_MAX, INT_MIN };
	struct relay r;
	size_t i;

	relay_open(&r, AF_INET, AF_INET6);
	splice_on(&r);
	for (i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++) {
		check(!setsockopt(r.q, SOL_SOCKET, SO_INCOMING_CPU, &cpus[i], sizeof(cpus[i])),
		      "%s", strerror(errno));
		stream_write(r.c, i, 1);
		stream_read(r.s, i, 1);
	}
	wait_moved(r.p, i);
}

static int load_filter(void)
{
	struct bpf_insn prog[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insns = (uintptr_t)prog,
		.insn_cnt = 2,
		.license = (uintptr_t)"GPL",
	};
	int fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));

	check(fd >= 0, "%s", strerror(errno));
	return fd;
}

/* KCM, which reads sockets in the kernel, refuses a spliced socket. It takes the socket after the
 * splice, and then the socket cannot be spliced.
 */
static void einval_kcm(void)
{
	int kcm = socket(AF_KCM, SOCK_DGRAM, KCMPROTO_CONNECTED), filter;
	struct kcm_attach a;
	struct relay r;

	if (kcm < 0) {
		printf("# no KCM here\n");
		return;
	}
	filter = load_filter();
	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	a = (struct kcm_attach){ .fd = r.p, .bpf_fd = filter };
	check(ioctl(kcm, SIOCKCMATTACH, &a) && errno == EALREADY, "%s", strerror(errno));
	a.fd = r.q;
	check(ioctl(kcm, SIOCKCMATTACH, &a) && errno == EALREADY, "%s", strerror(errno));
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	a.fd = r.p;
	check(!ioctl(kcm, SIOCKCMATTACH, &a), "%s", strerror(errno));
	refused(EINVAL, r.p, r.q, 0, 0, 0);
	refused(EINVAL, r.q, r.p, 0, 0, 0);
}

/* getsockopt(TCP_ULP) shows no ULP, and keeps TCP's rules for the length. */
static void ulp_is_hidden(void)
{
	socklen_t len = 16;
	struct relay r;
	char name[16];

	relay_open(&r, AF_INET, AF_INET);
	splice_on(&r);
	check(!getsockopt(r.p, IPPROTO_TCP, TCP_ULP, name, &len) && !len, "%u", len);
	len = -1;
	check(getsockopt(r.p, IPPROTO_TCP, TCP_ULP, name, &len) && errno == EINVAL,
	      "%s", strerror(errno));
}

/* A splice excludes TCP_REPAIR on its sink. The end of the splice allows it at once. */
static void sink_is_free_at_once(void)
{
	int on = 1, off = -1, i;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	for (i = 0; i < 50; i++) {
		splice_on(&r);
		check(setsockopt(r.q, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) && errno == EBUSY,
		      "%s", strerror(errno));
		check(!socksplice_unsplice(r.p), "%s", strerror(errno));
		check(!setsockopt(r.q, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)),
		      "%s", strerror(errno));
		check(!setsockopt(r.q, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)),
		      "%s", strerror(errno));
	}
	still_plain(&r);
}

static void in_user_namespace(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	check(!unshare(CLONE_NEWUSER), "%s", strerror(errno));
	refused(EPERM, r.p, r.q, 0, 0, 0);
	still_plain(&r);
}

/* With the feature off, a new splice is refused. The old one goes on, reports its count and can
 * be ended.
 */
static void enoprotoopt_off(void)
{
	struct relay r, o;
	int err, udp = socket(AF_INET, SOCK_DGRAM, 0);

	relay_open(&r, AF_INET, AF_INET);
	relay_open(&o, AF_INET, AF_INET);
	splice_on(&r);
	set_switch("so_splice", "0");
	err = try(o.p, o.q, 0, 0, 0);
	if (err == ENOPROTOOPT)
		err = try(udp, o.q, 0, 0, 0);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
	wait_moved(r.p, 1000);
	if (!err || socksplice_unsplice(r.p))
		err = errno;
	set_switch("so_splice", "1");
	check(err == ENOPROTOOPT, "%s", strerror(err));
	still_plain(&o);
	stream_write(r.c, 1000, 100);
	stream_read(r.p, 1000, 100);
}

/* Every user may splice in the initial user namespace, unless unprivileged_splice is off. */
static void unprivileged(void)
{
	struct relay r;
	int status;

	relay_open(&r, AF_INET, AF_INET);
	set_switch("unprivileged_splice", "0");
	if (!fork()) {
		check(!setuid(65534), "%s", strerror(errno));
		refused(EPERM, r.p, r.q, 0, 0, 0);
		_exit(0);
	}
	wait(&status);
	set_switch("unprivileged_splice", "1");
	check(!status, "refused while switched on");
	check(!setuid(65534), "%s", strerror(errno));
	splice_on(&r);
	stream_write(r.c, 0, 1000);
	stream_read(r.s, 0, 1000);
}

/* setsockopt(2) takes an int, the struct, or no argument, which ends the splice. */
static void argument_forms(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	check(!setsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &r.q, sizeof(int)),
	      "%s", strerror(errno));
	stream_write(r.c, 0, 100);
	stream_read(r.s, 0, 100);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	splice_on(&r);
	check(!setsockopt(r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, NULL, 0),
	      "%s", strerror(errno));
	still_plain(&r);
}

/* The count stays after the splice. The next splice begins at 0. */
static void count_is_kept(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	check(!socksplice_moved(r.p), "%s", strerror(errno));
	splice_on(&r);
	stream_write(r.c, 0, 5000);
	stream_read(r.s, 0, 5000);
	wait_moved(r.p, 5000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(socksplice_moved(r.p) == 5000, "%lld", (long long)socksplice_moved(r.p));
	splice_on(&r);
	check(!socksplice_moved(r.p), "%lld", (long long)socksplice_moved(r.p));
}

/* accept(2) on a spliced socket is refused. It would give a new socket the spliced one's
 * operations.
 */
static void no_accept(void)
{
	struct relay r;

	relay_open(&r, AF_INET, AF_INET6);
	splice_on(&r);
	check(accept(r.p, NULL, NULL) < 0 && errno == EOPNOTSUPP, "%s", strerror(errno));
	check(accept(r.q, NULL, NULL) < 0 && errno == EOPNOTSUPP, "%s", strerror(errno));
	stream_write(r.c, 0, 5000);
	stream_read(r.s, 0, 5000);
	check(!socksplice_unsplice(r.p), "%s", strerror(errno));
	check(accept(r.p, NULL, NULL) < 0 && errno == EINVAL, "%s", strerror(errno));
}

const struct sock_case call_cases[] = {
	{ "EBUSY-source-is-spliced", ebusy_source },
	{ "EBUSY-sink-is-spliced", ebusy_sink },
	{ "ENOTCONN-source", enotconn_source },
	{ "ENOTCONN-sink", enotconn_sink },
	{ "ENOTCONN-nothing-to-end", enotconn_unsplice },
	{ "EOPNOTSUPP-listener", eopnotsupp_listener },
	{ "EPROTONOSUPPORT-not-TCP", eprotonosupport },
	{ "no-accept", no_accept },
	{ "EBADF", ebadf },
	{ "ENOTSOCK", enotsock },
	{ "EINVAL-values", einval },
	{ "EFAULT-and-short", efault },
	{ "EINVAL-kTLS", einval_ktls },
	{ "EINVAL-KCM", einval_kcm },
	{ "TCP_ULP-is-hidden", ulp_is_hidden },
	{ "any-incoming-CPU", any_incoming_cpu },
	{ "sink-is-free-at-once", sink_is_free_at_once },
	{ "EPERM-user-namespace", in_user_namespace },
	{ "ENOPROTOOPT-off", enoprotoopt_off },
	{ "EPERM-switch", unprivileged },
	{ "argument-forms", argument_forms },
	{ "count-is-kept", count_is_kept },
	{}
};
