// SPDX-License-Identifier: GPL-2.0
/*
 * How connections begin: bytes sent before the accept, deferred accept, Fast
 * Open, threads and epolls that were there before the handshake was over.
 */
#include "behave.h"
#include "netns.h"

#include <time.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif

static int client_connect(int l)
{
	struct sockaddr_storage ss;
	int c = side_socket(false, 0);
	socklen_t len;

	ss = listener_addr(l, &len);
	MUST(connect(c, (void *)&ss, len));
	return c;
}

/* What was sent before the accept comes first, whatever path the rest takes. */
static void bytes_before_accept(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;
	int l = listener_open(NULL, 8), c = client_connect(l);

	for (int i = 0; i < 20; i++)
		send_pattern(c, 100 + i, &out, 0);
	conn_adopt(&k, c, MUST(accept(l, NULL, NULL)));
	say("first half %ld", recv_pattern(k.server, 1000, &in));
	for (int i = 0; i < 20; i++)
		send_pattern(c, 1000 + i, &out, 0);
	say("rest whole %d", recv_pattern(k.server, out - in, &in) > 0 && in == out);
	send_pattern(k.client, 5000, &out, 0);
	recv_pattern(k.server, 5000, &in);
	conn_end(&k);
}

static void server_speaks_first(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_open(&k);
	for (int i = 0; i < 10; i++)
		send_pattern(k.server, 777, &out, 0);
	say("%ld", recv_pattern(k.client, 1000, &in));
	for (int i = 0; i < 10; i++)
		send_pattern(k.server, 777, &out, 0);
	say("%ld", recv_pattern(k.client, out - in, &in));
	conn_end(&k);
}

static void prep_defer(int fd, bool listener)
{
	int sec = 5;

	if (listener)
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &sec, sizeof(sec)));
}

static void deferred_accept(void)
{
	for (int i = 0; i < 20; i++) {
		int l = listener_open(prep_defer, 8), c = client_connect(l);
		uint64_t out = 0, in = 0;
		struct conn k;

		send_pattern(c, 100, &out, 0);
		send_pattern(c, 1000, &out, 0);
		conn_adopt(&k, c, MUST(accept(l, NULL, NULL)));
		send_pattern(c, 1000, &out, 0);
		recv_pattern(k.server, 10, &in);
		send_pattern(c, 1000, &out, 0);
		if (recv_pattern(k.server, out - in, &in) < 0 || in != out)
			fail("round %d: %llu", i, (unsigned long long)in);
		out = in = 0;
		send_pattern(k.server, 2000, &out, 0);
		recv_pattern(c, 2000, &in);
		send_pattern(k.server, 2000, &out, 0);
		recv_pattern(c, 2000, &in);
		conn_end(&k);
		close(l);
	}
	say("twenty connections in order");
}

static void prep_fastopen(int fd, bool listener)
{
	int n = 5;

	if (listener)
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &n, sizeof(n)));
}

static void fast_open(bool by_connect)
{
	int l;

	/* 0x603: both sides, data in the SYN without a cookie. */
	side_sysctl(false, "tcp_fastopen", "1539");
	side_sysctl(true, "tcp_fastopen", "1539");
	l = listener_open(prep_fastopen, 8);
	for (int i = 0; i < 10; i++) {
		int c = side_socket(false, 0), on = 1;
		uint64_t out = 0, in = 0;
		struct sockaddr_storage ss;
		char b[500];
		struct conn k;
		socklen_t len;

		ss = listener_addr(l, &len);
		fill(b, sizeof(b), 0);
		if (by_connect) {
			MUST(setsockopt(c, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on)));
			MUST(connect(c, (void *)&ss, len));
			out = MUST(send(c, b, sizeof(b), 0));
		} else {
			out = MUST(sendto(c, b, sizeof(b), MSG_FASTOPEN, (void *)&ss, len));
		}
		send_pattern(c, 1000, &out, 0);
		conn_adopt(&k, c, MUST(accept(l, NULL, NULL)));
		recv_pattern(k.server, 200, &in);
		send_pattern(c, 3000, &out, 0);
		recv_pattern(k.server, out - in, &in);
		if (in != out || in != 4500)
			fail("round %d: %llu", i, (unsigned long long)in);
		out = in = 0;
		for (int j = 0; j < 3; j++) {
			send_pattern(k.server, 2000, &out, 0);
			recv_pattern(c, 2000, &in);
		}
		conn_end(&k);
	}
	say("ten connections in order");
}

static void fast_open_sendto(void)
{
	fast_open(false);
}

static void fast_open_connect(void)
{
	fast_open(true);
}

void slow_connect(struct slow *s)
{
	struct sockaddr_storage ss;
	socklen_t len;

	s->l = listener_open(NULL, 0);
	s->first = client_connect(s->l);
	s->c = side_socket(false, SOCK_NONBLOCK);
	ss = listener_addr(s->l, &len);
	if (connect(s->c, (void *)&ss, len) != -1 || errno != EINPROGRESS)
		fail("connect did not stay in progress");
	nonblock(s->c, false);
}

void slow_accept(struct slow *s, struct conn *k)
{
	where("accepting while the client retries");
	close(MUST(accept(s->l, NULL, NULL)));
	close(s->first);
	conn_adopt(k, s->c, MUST(accept(s->l, NULL, NULL)));
}

static void after_start(struct conn *k)
{
	uint64_t out = 0, in = 0;

	for (int i = 0; i < 3; i++) {
		send_pattern(k->server, 3000, &out, 0);
		recv_pattern(k->client, 3000, &in);
	}
	say("afterwards %llu", (unsigned long long)in);
	out = in = 0;
	for (int i = 0; i < 3; i++) {
		send_pattern(k->client, 3000, &out, 0);
		recv_pattern(k->server, 3000, &in);
	}
	say("and back %llu", (unsigned long long)in);
}

static void reader_before_handshake(void)
{
	struct slow s;
	struct conn k;
	struct call c;
	char b[64];

	slow_connect(&s);
	CALL_RECV(&c, s.c, b, 64, 0);
	call_blocked(&c);
	slow_accept(&s, &k);
	SAY(send(k.server, "to the sleeper", 14, 0));
	where("the thread that slept in recv before the handshake");
	SAY_BUF(call_end(&c), b);
	after_start(&k);
	conn_end(&k);
}

static void two_readers_before_handshake(void)
{
	struct slow s;
	struct conn k;
	struct call c, d;
	char b[2][64];

	slow_connect(&s);
	CALL_RECV(&c, s.c, b[0], 4, MSG_WAITALL);
	call_blocked(&c);
	CALL_RECV(&d, s.c, b[1], 4, MSG_WAITALL);
	call_blocked(&d);
	slow_accept(&s, &k);
	for (int i = 0; i < 8; i++)
		MUST(send(k.server, "x", 1, 0));
	where("two threads that slept in recv before the handshake");
	SAY(call_end(&c));
	SAY(call_end(&d));
	after_start(&k);
	conn_end(&k);
}

static void writer_before_handshake(void)
{
	struct slow s;
	struct conn k;
	struct call c;
	char b[64];

	slow_connect(&s);
	CALL_SEND(&c, s.c, "from the sleeper", 16, 0);
	call_blocked(&c);
	slow_accept(&s, &k);
	SAY_BUF(recv(k.server, b, 16, MSG_WAITALL), b);
	SAY(call_end(&c));
	after_start(&k);
	conn_end(&k);
}

static void poller_before_handshake(void)
{
	struct pollfd p = { .events = POLLIN };
	struct slow s;
	struct conn k;
	struct call c;
	char b[64];

	slow_connect(&s);
	p.fd = s.c;
	CALL_POLL(&c, &p);
	call_blocked(&c);
	slow_accept(&s, &k);
	SAY(send(k.server, "abc", 3, 0));
	SAY(call_end(&c));
	say_poll("poll", p.revents);
	SAY_BUF(recv(k.client, b, 64, 0), b);
	after_start(&k);
	conn_end(&k);
}

static void epoll_before_handshake(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	int ep = epoll_create1(0);
	struct slow s;
	struct conn k;
	char b[64];

	slow_connect(&s);
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, s.c, &ev));
	slow_accept(&s, &k);
	where("epoll for the connection");
	SAY(epoll_wait(ep, &ev, 1, -1));
	say_poll("event", ev.events);
	for (int i = 0; i < 3; i++) {
		SAY(send(k.server, "abc", 3, 0));
		SAY(epoll_wait(ep, &ev, 1, -1));
		say_poll("event", ev.events);
		SAY_BUF(recv(k.client, b, 64, 0), b);
	}
	after_start(&k);
	conn_end(&k);
}

/* The server's thread is in recv before any byte was sent. */
static void reader_before_first_byte(void)
{
	struct conn k;
	struct call c;
	char b[64];

	conn_open(&k);
	for (int i = 0; i < 4; i++) {
		CALL_RECV(&c, k.b, b, 64, 0);
		call_blocked(&c);
		SAY(send(k.a, "hello", 5, 0));
		SAY_BUF(call_end(&c), b);
	}
	conn_end(&k);
}

/* Only ever splice, never recv: the ring must open all the same. */
static void splice_only_reader(void)
{
	uint64_t out = 0;
	char b[4096];
	struct conn k;
	int p[2];

	conn_open(&k);
	MUST(pipe(p));
	for (int i = 0; i < 10; i++) {
		long r, got = 0;

		send_pattern(k.a, 1000, &out, 0);
		while (got < 1000) {
			r = MUST(splice(k.b, NULL, p[1], NULL, 1000 - got, 0));
			if (!r || read(p[0], b, r) != r ||
			    !is_pattern(b, r, out - 1000 + got))
				fail("round %d", i);
			got += r;
		}
	}
	say("ten rounds");
	conn_end(&k);
}

/* The ring opens behind bytes that TCP holds back for more to come (MSG_MORE):
 * they must not wait for TCP's timer.
 */
static void opens_behind_held_bytes(void)
{
	struct timespec t0, t1;
	int slow = 0;

	for (int i = 0; i < 30; i++) {
		struct conn k;
		char b[16];
		bool held;

		conn_open(&k);
		/* b has read once: it is ready for a ring. */
		MUST(send(k.b, "x", 1, 0));
		MUST(recv(k.a, b, 1, 0));
		MUST(send(k.a, "head", 4, MSG_MORE));
		held = recv(k.b, b, 1, MSG_DONTWAIT | MSG_PEEK) < 0;	/* or its timer was first */
		clock_gettime(CLOCK_MONOTONIC, &t0);
		MUST(send(k.a, "body", 4, 0));
		MUST(recv(k.b, b, 8, MSG_WAITALL));
		clock_gettime(CLOCK_MONOTONIC, &t1);
		slow += held && t1.tv_sec - t0.tv_sec + (t1.tv_nsec - t0.tv_nsec) / 1e9 > 0.1;
		conn_warm(&k);
		MUST(send(k.a, "tail", 4, 0));
		MUST(recv(k.b, b, 4, MSG_WAITALL));
		conn_end(&k);
	}
	say("held back: %d", slow > 20);
}

static void refused_connection(void)
{
	int l = listener_open(NULL, 1), c = side_socket(false, 0);
	struct sockaddr_storage ss;
	socklen_t len;
	char b[8];

	ss = listener_addr(l, &len);
	close(l);
	SAY(connect(c, (void *)&ss, len));
	SAY(recv(c, b, 8, 0));
	SAY(send(c, b, 8, MSG_NOSIGNAL));
}

static void connected_to_itself(void)
{
	struct sockaddr_storage ss;
	struct conn k;
	socklen_t len;
	char b[16];
	int l, c;

	/* A free port, then bound and connected to by one socket. */
	l = listener_open(NULL, 1);
	ss = listener_addr(l, &len);
	close(l);
	netns_enter(true);
	c = MUST(socket(ss.ss_family, SOCK_STREAM, 0));
	netns_leave();
	SAY(bind(c, (void *)&ss, len));
	SAY(connect(c, (void *)&ss, len));
	conn_adopt(&k, c, c);
	for (int i = 0; i < 3; i++) {
		SAY(send(c, "to myself", 9, 0));
		SAY_BUF(recv(c, b, 9, MSG_WAITALL), b);
	}
	conn_proof(&k);
	close(c);
}

const struct bcase start_cases[] = {
	CASE_ONCE(bytes_before_accept), CASE_ONCE(server_speaks_first),
	CASE_ONCE(deferred_accept), CASE_ONCE(fast_open_sendto), CASE_ONCE(fast_open_connect),
	CASE_SLOW(reader_before_handshake), CASE_SLOW(two_readers_before_handshake),
	CASE_SLOW(writer_before_handshake), CASE_SLOW(poller_before_handshake),
	CASE_SLOW(epoll_before_handshake), CASE(reader_before_first_byte),
	CASE(splice_only_reader), CASE(opens_behind_held_bytes),
	CASE_ANY(refused_connection, "there is no connection to pair"),
	CASE_TCP(connected_to_itself, "a socket is not its own peer"),
	{ }
};
