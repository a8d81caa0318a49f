// SPDX-License-Identifier: GPL-2.0
/*
 * What is asked of a socket after it was paired: options, other users of the
 * socket, and calls that must fail as ever.
 */
#include "behave.h"

#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/kcm.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#define UNPAIR "a paired socket is not handed over"

static int opt(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	errno = 0;
	if (getsockopt(fd, level, name, &v, &len) < 0)
		return -errno;
	return v;
}

static void traffic(struct conn *k)
{
	uint64_t out = 0, in = 0;

	for (int i = 0; i < 4; i++) {
		send_pattern(k->a, 3000, &out, 0);
		recv_pattern(k->b, 3000, &in);
	}
	say("a to b %llu", (unsigned long long)in);
	out = in = 0;
	for (int i = 0; i < 4; i++) {
		send_pattern(k->b, 3000, &out, 0);
		recv_pattern(k->a, 3000, &in);
	}
	say("b to a %llu", (unsigned long long)in);
}

static void options_unchanged(void)
{
	static const struct { int level, name; const char *text; } list[] = {
#define O(l, n) { l, n, #n }
		O(SOL_SOCKET, SO_TYPE), O(SOL_SOCKET, SO_PROTOCOL), O(SOL_SOCKET, SO_DOMAIN),
		O(SOL_SOCKET, SO_ERROR), O(SOL_SOCKET, SO_KEEPALIVE), O(SOL_SOCKET, SO_ACCEPTCONN),
		O(SOL_SOCKET, SO_RCVLOWAT), O(SOL_SOCKET, SO_SNDLOWAT), O(SOL_SOCKET, SO_ZEROCOPY),
		O(SOL_SOCKET, SO_OOBINLINE), O(SOL_SOCKET, SO_PEEK_OFF),
		O(SOL_SOCKET, SO_BUSY_POLL), O(SOL_SOCKET, SO_PRIORITY), O(SOL_SOCKET, SO_MARK),
		O(IPPROTO_TCP, TCP_NODELAY), O(IPPROTO_TCP, TCP_CORK), O(IPPROTO_TCP, TCP_KEEPIDLE),
		O(IPPROTO_TCP, TCP_KEEPINTVL), O(IPPROTO_TCP, TCP_KEEPCNT),
		O(IPPROTO_TCP, TCP_USER_TIMEOUT), O(IPPROTO_TCP, TCP_DEFER_ACCEPT),
		O(IPPROTO_TCP, TCP_REPAIR), O(IPPROTO_TCP, TCP_INQ), O(IPPROTO_TCP, TCP_FASTOPEN),
		O(IPPROTO_TCP, TCP_SAVE_SYN), O(IPPROTO_TCP, TCP_NOTSENT_LOWAT),
		O(IPPROTO_TCP, 9999), O(SOL_SOCKET, 9999), O(4711, 1),
	};
	struct conn k;

	conn_start(&k);
	traffic(&k);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		say("%s %d %d", list[i].text, opt(k.a, list[i].level, list[i].name),
		    opt(k.b, list[i].level, list[i].name));
	conn_end(&k);
}

static struct tcp_info info(int fd)
{
	struct tcp_info i = {};
	socklen_t len = sizeof(i);

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len));
	return i;
}

static void say_counted(const char *when, const struct tcp_info *a, const struct tcp_info *b)
{
	say("%s: sent %llu, acked %llu, received %llu", when,
	    b->tcpi_bytes_sent - a->tcpi_bytes_sent, b->tcpi_bytes_acked - a->tcpi_bytes_acked,
	    b->tcpi_bytes_received - a->tcpi_bytes_received);
	say("segments with data go out %d, come in %d, all %d %d",
	    b->tcpi_data_segs_out > a->tcpi_data_segs_out,
	    b->tcpi_data_segs_in > a->tcpi_data_segs_in,
	    b->tcpi_segs_out >= b->tcpi_data_segs_out, b->tcpi_segs_in >= b->tcpi_data_segs_in);
}

/* TCP counts an acknowledgement when it comes. */
static struct tcp_info info_acked(int fd)
{
	struct tcp_info i;

	do {
		i = info(fd);
	} while (i.tcpi_unacked);
	return i;
}

/* Its byte counters know of ring bytes, too, also after the pair has gone back to TCP. All that is
 * no counter stays.
 */
static void tcp_info(void)
{
	struct tcp_info a, b, ea, eb;
	struct conn k;

	conn_start(&k);
	a = info_acked(k.a);
	b = info_acked(k.b);
	traffic(&k);
	ea = info_acked(k.a);
	eb = info_acked(k.b);
	say_counted("a", &a, &ea);
	say_counted("b", &b, &eb);
	say("state %d ca_state %d options %#x scale %d %d advmss %u pmtu %u retrans %u lost %u",
	    ea.tcpi_state, ea.tcpi_ca_state, ea.tcpi_options, ea.tcpi_snd_wscale,
	    ea.tcpi_rcv_wscale, ea.tcpi_advmss, ea.tcpi_pmtu,
	    ea.tcpi_total_retrans, ea.tcpi_lost);
	conn_proof(&k);
	say_ret("another ULP", setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "no such one", 11));
	traffic(&k);
	ea = info_acked(k.a);
	eb = info_acked(k.b);
	say_counted("a on TCP", &a, &ea);
	say_counted("b on TCP", &b, &eb);
	close(k.a);
	close(k.b);
}

static void options_set(void)
{
	static const struct { int level, name, value; const char *text; } list[] = {
#define S(l, n, v) { l, n, v, #n }
		S(SOL_SOCKET, SO_RCVBUF, 50000), S(SOL_SOCKET, SO_SNDBUF, 50000),
		S(SOL_SOCKET, SO_PRIORITY, 3), S(SOL_SOCKET, SO_MARK, 77),
		S(SOL_SOCKET, SO_KEEPALIVE, 1), S(SOL_SOCKET, SO_OOBINLINE, 1),
		S(SOL_SOCKET, SO_ZEROCOPY, 1), S(SOL_SOCKET, SO_RCVLOWAT, 3),
		S(SOL_SOCKET, SO_RCVLOWAT, 1), S(SOL_SOCKET, SO_MAX_PACING_RATE, 100000000),
		S(IPPROTO_TCP, TCP_NODELAY, 1), S(IPPROTO_TCP, TCP_QUICKACK, 1),
		S(IPPROTO_TCP, TCP_USER_TIMEOUT, 12345), S(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 70000),
		S(IPPROTO_TCP, TCP_LINGER2, 7), S(IPPROTO_TCP, TCP_WINDOW_CLAMP, 100000),
		S(IPPROTO_TCP, 9999, 1), S(SOL_SOCKET, 9999, 1), S(4711, 1, 1),
	};
	struct conn k;

	conn_start(&k);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		where("setsockopt %s", list[i].text);
		say_ret(list[i].text, setsockopt(k.b, list[i].level, list[i].name, &list[i].value,
						 sizeof(int)));
		say("reads %d", opt(k.b, list[i].level, list[i].name));
	}
	traffic(&k);
	conn_end(&k);
}

static void ulp_reads_empty(void)
{
	struct conn k;
	socklen_t len = 16;
	char name[16] = "untouched";

	conn_start(&k);
	traffic(&k);
	SAY(getsockopt(k.a, IPPROTO_TCP, TCP_ULP, name, &len));
	say("length %u name %s", len, name);
	conn_end(&k);
}

static void ktls_asked(void)
{
	struct conn k;
	int r;

	conn_start(&k);
	r = setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "tls", 3);
	if (r < 0 && errno == ENOENT && !env.paired)
		skip("the kernel has no TLS module");
	SAY_OR(r, EBUSY, UNPAIR);
	traffic(&k);
	conn_end(&k);
}

static void unknown_ulp(void)
{
	struct conn k;

	conn_start(&k);
	SAY_OR(setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "nosuch", 6) < 0 && errno == ENOENT ? 0 : -1,
	       EBUSY, UNPAIR);
	traffic(&k);
	conn_end(&k);
}

/* Un-pairing is none. */
static void unknown_ulp_and_an_edge(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET }, got;
	int ep = MUST(epoll_create1(0));
	struct conn k;

	conn_start(&k);
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, k.a, &ev));
	SAY(epoll_wait(ep, &got, 1, -1));
	SAY_OR(setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "nosuch", 6) < 0 && errno == ENOENT ? 0 : -1,
	       EBUSY, UNPAIR);
	SAY(epoll_wait(ep, &got, 1, 0));
	traffic(&k);
	conn_end(&k);
	close(ep);
}

static void repair_asked(void)
{
	int on = 1, off = -1;
	struct conn k;

	conn_start(&k);
	traffic(&k);
	if (SAY_OR(setsockopt(k.a, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)), EBUSY, UNPAIR) == 0)
		MUST(setsockopt(k.a, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)));
	traffic(&k);
	conn_end(&k);
}

/* What TCP refuses anyhow leaves the pair as it is, and signals nothing. */
static void refused_options(void)
{
	int on = 1;
	struct conn k;
	sigset_t io;
	char b[8];

	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	sigprocmask(SIG_BLOCK, &io, NULL);
	conn_start(&k);
	SAY(send(k.b, "abc", 3, 0));
	arrive(k.a, 3);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_REPAIR, &on, 2));
	SAY(recv(k.a, b, 8, 0));
	MUST(fcntl(k.a, F_SETOWN, getpid()));
	MUST(fcntl(k.a, F_SETFL, fcntl(k.a, F_GETFL) | O_ASYNC));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_REPAIR, &on, 3));
	conn_proof(&k);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_ULP, "none", 4));
	sigpending(&io);
	say("SIGIO %d", sigismember(&io, SIGIO));
	conn_end(&k);
}

static int sockmap_add(int type, int fd)
{
	union bpf_attr attr = { .map_type = type, .key_size = 4, .value_size = 4,
				.max_entries = 1 };
	int key = 0, map, r;

	map = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	if (map < 0)
		skip("no sockmap: %s", strerror(errno));
	memset(&attr, 0, sizeof(attr));
	attr.map_fd = map;
	attr.key = (unsigned long)&key;
	attr.value = (unsigned long)&fd;
	r = syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr));
	return r;
}

static void sockmap_asked(void)
{
	struct conn k;

	conn_start(&k);
	traffic(&k);
	SAY_OR(sockmap_add(BPF_MAP_TYPE_SOCKMAP, k.a), EOPNOTSUPP, UNPAIR);
	SAY_OR(sockmap_add(BPF_MAP_TYPE_SOCKHASH, k.b), EOPNOTSUPP, UNPAIR);
	traffic(&k);
	conn_end(&k);
}

/* A filter that drops every segment: nothing comes until it is taken off. */
static int kcm_attach(int kcm, int fd)
{
	/* Each message has 100 bytes. */
	static const struct bpf_insn hundred[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 100 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insn_cnt = 2,
				.insns = (unsigned long)hundred, .license = (unsigned long)"GPL" };
	struct kcm_attach at = { .fd = fd };

	at.bpf_fd = MUST(syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)));
	return ioctl(kcm, SIOCKCMATTACH, &at);
}

static int kcm_socket(void)
{
	int kcm = socket(AF_KCM, SOCK_SEQPACKET, KCMPROTO_CONNECTED);

	if (kcm < 0)
		skip("no AF_KCM: %s", strerror(errno));
	return kcm;
}

/* A consumer in the kernel takes the socket over, and reads below the calls that
 * applications use.
 */
static void kcm_attached(void)
{
	char msg[100], got[200];
	uint64_t pos = 0;
	struct conn k;
	int kcm;

	conn_start(&k);
	traffic(&k);
	kcm = kcm_socket();
	SAY(kcm_attach(kcm, k.b));
	for (int i = 0; i < 5; i++) {
		fill(msg, sizeof(msg), pos);
		SAY(send(k.a, msg, sizeof(msg), 0));
		SAY(recv(kcm, got, sizeof(got), 0));
		say("whole %d", is_pattern(got, sizeof(msg), pos));
		pos += sizeof(msg);
	}
	close(kcm);
	conn_end(&k);
}

/* It does not see what the ring holds; that waits until the socket is given back. */
static void kcm_attached_unread(void)
{
	char msg[100], got[200];
	struct conn k;
	int kcm;

	conn_start(&k);
	traffic(&k);
	kcm = kcm_socket();
	fill(msg, sizeof(msg), 0);
	SAY(send(k.a, msg, sizeof(msg), 0));
	arrive(k.b, sizeof(msg));
	conn_proof(&k);
	SAY(kcm_attach(kcm, k.b));
	if (env.paired) {
		struct kcm_unattach un = { .fd = k.b };

		MUST(ioctl(kcm, SIOCKCMUNATTACH, &un));
		MUST(recv(k.b, got, sizeof(got), 0));
	} else {
		MUST(recv(kcm, got, sizeof(got), 0));
	}
	say("whole %d", is_pattern(got, sizeof(msg), 0));
	close(kcm);
	close(k.a);
	close(k.b);
}

static void filter_attached(void)
{
	struct sock_filter drop = { BPF_RET | BPF_K, 0, 0, 0 };
	struct sock_fprog prog = { 1, &drop };
	struct pollfd p = { .events = POLLIN };
	struct conn k;
	char b[8];

	conn_start(&k);
	traffic(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)));
	SAY(send(k.a, "abc", 3, 0));
	p.fd = k.b;
	SAY(poll(&p, 1, 100));
	SAY(recv(k.b, b, 8, MSG_DONTWAIT));
	SAY(setsockopt(k.b, SOL_SOCKET, SO_DETACH_FILTER, &prog, sizeof(prog)));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	traffic(&k);
	conn_end(&k);
}

/* Mapping received bytes: whatever is not mapped must still be read. */
static void zerocopy_receive(void)
{
	struct tcp_zerocopy_receive zc = { };
	socklen_t len = sizeof(zc);
	uint64_t out = 0, in = 0;
	struct conn k;
	void *m;

	conn_start(&k);
	m = mmap(NULL, 64 * KIB, PROT_READ, MAP_SHARED, k.b, 0);
	say("mmap of the socket %d", m != MAP_FAILED);
	send_pattern(k.a, 1000, &out, 0);
	arrive(k.b, 1000);
	zc.address = (unsigned long)m;
	zc.length = 64 * KIB;
	SAY(getsockopt(k.b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &zc, &len));
	say("mapped %u, to read %u", zc.length, zc.recv_skip_hint);
	say("read %ld", recv_pattern(k.b, 1000, &in));
	conn_end(&k);
}

/* What TCP refuses it refuses while the ring holds bytes, too. */
static void zerocopy_receive_refused(void)
{
	struct {
		struct tcp_zerocopy_receive zc;
		uint64_t more;
	} arg;
	uint64_t out = 0, in = 0;
	socklen_t len;
	struct conn k;
	void *m;

	conn_start(&k);
	m = mmap(NULL, 64 * KIB, PROT_READ, MAP_SHARED, k.b, 0);
	send_pattern(k.a, 1000, &out, 0);
	arrive(k.b, 1000);
	for (int i = 0; i < 7; i++) {
		memset(&arg, 0, sizeof(arg));
		arg.zc.address = (unsigned long)m + (i == 1);
		arg.zc.length = 64 * KIB;
		arg.zc.reserved = i == 2;
		arg.zc.msg_flags = i == 3 ? 0x10 : i == 4 ? 2 : 0;
		arg.more = i == 5;
		len = i < 5 ? sizeof(arg.zc) : sizeof(arg);
		where("TCP_ZEROCOPY_RECEIVE %d", i);
		if (!say_ret("zerocopy", getsockopt(k.b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &arg, &len)))
			say("%d: mapped %u, to read %u, unread %u, error %d, flags %u, of %d", i, arg.zc.length,
			    arg.zc.recv_skip_hint, arg.zc.inq, arg.zc.err, arg.zc.msg_flags,
			    len == sizeof(arg.zc));
	}
	say("read %ld", recv_pattern(k.b, 1000, &in));
	conn_end(&k);
}

static void addrform(void)
{
	int v = PF_INET;
	struct conn k;
	int r;

	if (env.family == 4)
		skip("for IPv6 sockets");
	conn_start(&k);
	r = setsockopt(k.server, IPPROTO_IPV6, IPV6_ADDRFORM, &v, sizeof(v));
	if (r < 0 && errno == EADDRNOTAVAIL && env.family == 6)
		r = 0;
	SAY_OR(r, EBUSY, UNPAIR);
	traffic(&k);
	conn_end(&k);
}

static void names(void)
{
	struct sockaddr_storage s[4];
	struct conn k;

	conn_start(&k);
	memset(s, 0, sizeof(s));
	for (int i = 0; i < 4; i++) {
		socklen_t len = sizeof(s[i]);
		int fd = i / 2 ? k.b : k.a;

		if (i % 2)
			SAY(getpeername(fd, (void *)&s[i], &len));
		else
			SAY(getsockname(fd, (void *)&s[i], &len));
		say("length %u family %d", len, s[i].ss_family);
	}
	say("mirrored %d", env.family == 46 || (!memcmp(&s[0], &s[3], sizeof(s[0])) &&
					       !memcmp(&s[1], &s[2], sizeof(s[1]))));
	traffic(&k);
	conn_end(&k);
}

static void wrong_calls(void)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct conn k;

	conn_start(&k);
	MUST(getpeername(k.client, (void *)&ss, &len));
	SAY(listen(k.a, 5));
	SAY(accept(k.a, NULL, NULL));
	SAY(connect(k.client, (void *)&ss, len));
	SAY(bind(k.a, (void *)&ss, len));
	SAY(lseek(k.a, 0, SEEK_SET));
	SAY(pread(k.a, &ss, 1, 0));
	SAY(ftruncate(k.a, 0));
	SAY(fsync(k.a));
	traffic(&k);
	conn_end(&k);
}

const struct bcase later_cases[] = {
	CASE(options_unchanged), CASE(options_set), CASE(ulp_reads_empty), CASE_PAIR(tcp_info),
	CASE_PAIR(kcm_attached_unread),
	CASE_ANY(ktls_asked, "the socket may stay paired or not"),
	CASE_ANY(unknown_ulp, "the socket may stay paired or not"),
	CASE_ANY(unknown_ulp_and_an_edge, "the socket may stay paired or not"),
	CASE_ANY(repair_asked, "the socket may stay paired or not"),
	CASE_ANY(sockmap_asked, "the socket may stay paired or not"),
	CASE_ANY(kcm_attached, "a consumer in the kernel gets its bytes by TCP"),
	CASE_ANY(filter_attached, "a filter sees segments, so its socket goes by TCP"),
	CASE_ANY(addrform, "a socket that asks leaves its pair"),
	CASE(zerocopy_receive), CASE(zerocopy_receive_refused), CASE(names), CASE(wrong_calls),
	CASE_ONCE(refused_options),
	{ }
};
