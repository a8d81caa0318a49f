// SPDX-License-Identifier: GPL-2.0
/*
 * Plain sending and receiving: every call that moves bytes, blocking and not.
 */
#include "behave.h"

#include <sys/uio.h>

static void send_then_recv(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(send(k.a, "hello world", 11, 0));
	arrive(k.b, 11);
	SAY_BUF(recv(k.b, b, 5, 0), b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(send(k.b, "back", 4, 0));
	arrive(k.a, 4);
	SAY_BUF(recv(k.a, b, 64, 0), b);
	conn_end(&k);
}

static void recv_blocks_until_data(void)
{
	struct conn k;
	struct call r;
	char b[64];

	conn_start(&k);
	for (int i = 0; i < 3; i++) {
		CALL_RECV(&r, k.b, b, 64, 0);
		call_blocked(&r);
		SAY(send(k.a, "wake", 4, 0));
		SAY_BUF(call_end(&r), b);
	}
	conn_end(&k);
}

static void nonblocking(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	nonblock(k.b, true);
	SAY(recv(k.b, b, 64, 0));
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 2, 0), b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	SAY(recv(k.b, b, 64, 0));
	SAY(read(k.b, b, 64));
	conn_end(&k);
}

static void dontwait(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(recv(k.b, b, 64, MSG_DONTWAIT));
	SAY(send(k.a, "abc", 3, MSG_DONTWAIT));
	arrive(k.b, 3);
	SAY_BUF(recv(k.b, b, 64, MSG_DONTWAIT), b);
	SAY(recv(k.b, b, 64, MSG_DONTWAIT));
	conn_end(&k);
}

static void fionbio(void)
{
	struct conn k;
	char b[64];
	int on = 1, off = 0;

	conn_start(&k);
	SAY(ioctl(k.b, FIONBIO, &on));
	SAY(recv(k.b, b, 64, 0));
	SAY(fcntl(k.b, F_GETFL) & O_NONBLOCK);
	SAY(ioctl(k.b, FIONBIO, &off));
	SAY(send(k.a, "x", 1, 0));
	SAY_BUF(recv(k.b, b, 64, 0), b);
	conn_end(&k);
}

static void length_zero(void)
{
	struct conn k;
	char b[8];
	int n = -1;

	conn_start(&k);
	SAY(recv(k.b, b, 0, MSG_DONTWAIT));
	SAY(send(k.a, b, 0, 0));
	SAY(write(k.a, b, 0));
	SAY(recv(k.b, b, 8, MSG_DONTWAIT));
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY(recv(k.b, b, 0, 0));
	SAY(recv(k.b, NULL, 0, 0));
	SAY(read(k.b, b, 0));
	SAY(recv(k.b, b, 0, MSG_PEEK));
	SAY(ioctl(k.b, FIONREAD, &n));
	say("%d bytes still there", n);
	SAY_BUF(recv(k.b, b, 8, 0), b);
	conn_end(&k);
}

static void read_write(void)
{
	struct conn k;
	char b[64];

	conn_start(&k);
	SAY(write(k.a, "by write", 8));
	arrive(k.b, 8);
	SAY_BUF(read(k.b, b, 3), b);
	SAY_BUF(read(k.b, b, 64), b);
	conn_end(&k);
}

static void vectors(void)
{
	struct iovec out[4] = {
		{ "one", 3 }, { NULL, 0 }, { "twotwo", 6 }, { "three", 5 },
	};
	char x[4], y[6], z[64];
	struct iovec in[4] = { { x, 4 }, { y, 0 }, { y, 6 }, { z, 64 } };
	struct conn k;

	conn_start(&k);
	SAY(writev(k.a, out, 4));
	arrive(k.b, 14);
	SAY(readv(k.b, in, 4));
	say("%.4s %.6s %.4s", x, y, z);
	conn_end(&k);
}

static void many_vectors(void)
{
	static char block[1024][64], got[64 * KIB];
	struct iovec v[1024];
	struct conn k;
	uint64_t pos = 0;

	conn_start(&k);
	fill(block, sizeof(block), 0);
	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){ block[i], i % 65 };
	for (int i = 0; i < 1024; i++) {
		memcpy(got + pos, block[i], i % 65);
		pos += i % 65;
	}
	say("sent sum %016llx", (unsigned long long)sum(got, pos));
	SAY(writev(k.a, v, 1024));
	memset(got, 0, sizeof(got));
	SAY_BUF(recv(k.b, got, pos, MSG_WAITALL), got);
	conn_end(&k);
}

static void mmsg(void)
{
	struct iovec out[3] = { { "aaaa", 4 }, { "bbbb", 4 }, { "cccc", 4 } };
	char b[3][4];
	struct iovec in[3] = { { b[0], 4 }, { b[1], 4 }, { b[2], 4 } };
	struct mmsghdr m[3];
	struct conn k;

	conn_start(&k);
	memset(m, 0, sizeof(m));
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &out[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	SAY(sendmmsg(k.a, m, 3, 0));
	say("lengths %u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
	arrive(k.b, 12);
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr.msg_iov = &in[i];
	SAY(recvmmsg(k.b, m, 3, 0, NULL));
	say("lengths %u %u %u: %.12s", m[0].msg_len, m[1].msg_len, m[2].msg_len, b[0]);
	SAY(recvmmsg(k.b, m, 3, MSG_DONTWAIT, NULL));
	/* One message waits, two do not: it must not block for the others. */
	SAY(send(k.a, "dddd", 4, 0));
	SAY(recvmmsg(k.b, m, 3, MSG_WAITFORONE, NULL));
	conn_end(&k);
}

static void msghdr_fields(void)
{
	struct sockaddr_storage name;
	char b[16], control[64];
	struct iovec v = { b, sizeof(b) };
	struct msghdr m = { .msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &v,
			    .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control), .msg_flags = -1 };
	socklen_t len = sizeof(name);
	struct conn k;

	conn_start(&k);
	SAY(send(k.a, "abc", 3, 0));
	SAY(recvmsg(k.b, &m, 0));
	say("namelen %u controllen %zu flags %#x", m.msg_namelen, m.msg_controllen, m.msg_flags);
	SAY(send(k.a, "def", 3, 0));
	SAY(recvfrom(k.b, b, sizeof(b), 0, (void *)&name, &len));
	say("addrlen %u", len);
	SAY(send(k.a, "ghi", 3, 0));
	m.msg_control = NULL;
	m.msg_controllen = 0;
	SAY(recvmsg(k.b, &m, MSG_CMSG_CLOEXEC));
	say("flags %#x", m.msg_flags & ~MSG_CMSG_CLOEXEC);
	conn_end(&k);
}

static void sendto_address_ignored(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct conn k;
	char b[8];

	conn_start(&k);
	SAY(sendto(k.a, "abc", 3, 0, (void *)&sa, sizeof(sa)));
	SAY_BUF(recv(k.b, b, 8, 0), b);
	SAY(sendto(k.a, "abc", 3, MSG_FASTOPEN, (void *)&sa, sizeof(sa)));
	conn_end(&k);
}

static void many_small(void)
{
	struct conn k;
	uint64_t out = 0, in = 0;

	conn_start(&k);
	for (int i = 0; i < 3000; i++) {
		if (send_pattern(k.a, 1 + i % 13, &out, 0) != 1 + i % 13)
			fail("short send");
		if (i % 500 == 499)
			say("received %ld", recv_pattern(k.b, out - in, &in));
	}
	conn_end(&k);
}

static void around_ring_size(void)
{
	static const int sizes[] = { 4095, 4096, 4097, 65535, 65536, 65537, 131072 };
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t out = 7 * i, in = out;

		where("size %d", sizes[i]);
		say("sent %ld", send_pattern(k.a, sizes[i], &out, 0));
		say("received %ld", recv_pattern(k.b, sizes[i], &in));
	}
	conn_end(&k);
}

static void ping_pong(void)
{
	struct conn k;
	char b[200];

	conn_start(&k);
	for (int i = 0; i < 500; i++) {
		int n = 1 + i % 200;

		if (send(k.a, memset(b, i, n), n, 0) != n || recv(k.b, b, n, MSG_WAITALL) != n ||
		    b[n - 1] != (char)i || send(k.b, b, n, 0) != n ||
		    recv(k.a, b, n, MSG_WAITALL) != n)
			fail("round %d", i);
	}
	say("500 rounds");
	conn_end(&k);
}

static void more_and_cork(void)
{
	struct conn k;
	char b[64];
	int on = 1, off = 0;

	conn_start(&k);
	SAY(send(k.a, "ab", 2, MSG_MORE));
	SAY(send(k.a, "cd", 2, 0));
	SAY_BUF(recv(k.b, b, 4, MSG_WAITALL), b);
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
	SAY(send(k.a, "ef", 2, 0));
	SAY(send(k.a, "gh", 2, 0));
	SAY(setsockopt(k.a, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
	SAY_BUF(recv(k.b, b, 4, MSG_WAITALL), b);
	conn_end(&k);
}

static void busy_poll(void)
{
	struct timeval tv = { .tv_usec = 50000 };
	int usec = 50, got = 0;
	socklen_t len = sizeof(got);
	struct conn k;
	struct call r;
	char b[16];

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_BUSY_POLL, &usec, sizeof(usec)));
	SAY(getsockopt(k.b, SOL_SOCKET, SO_BUSY_POLL, &got, &len));
	say("budget %d", got);
	SAY(recv(k.b, b, 16, MSG_DONTWAIT));
	CALL_RECV(&r, k.b, b, 16, 0);
	call_blocked(&r);
	SAY(send(k.a, "late", 4, 0));
	SAY_BUF(call_end(&r), b);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	SAY(recv(k.b, b, 16, 0));
	conn_end(&k);
}

const struct bcase io_cases[] = {
	CASE(send_then_recv), CASE(recv_blocks_until_data), CASE(nonblocking), CASE(dontwait),
	CASE(fionbio), CASE(length_zero), CASE(read_write), CASE(vectors), CASE(many_vectors),
	CASE(mmsg), CASE(msghdr_fields), CASE(sendto_address_ignored), CASE(many_small),
	CASE(around_ring_size), CASE(ping_pong), CASE(more_and_cork), CASE(busy_poll),
	{ }
};
