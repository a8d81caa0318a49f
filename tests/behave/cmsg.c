// SPDX-License-Identifier: GPL-2.0
/*
 * Control messages and the error queue: TCP_INQ, MSG_ZEROCOPY, time stamps.
 */
#include "behave.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <sys/mman.h>

static long recv_cmsg(int fd, void *buf, size_t len, int flags, struct msghdr *m, void *control,
		      size_t clen)
{
	static struct iovec v;

	v = (struct iovec){ buf, len };
	memset(m, 0, sizeof(*m));
	m->msg_iov = &v;
	m->msg_iovlen = 1;
	m->msg_control = control;
	m->msg_controllen = clen;
	return recvmsg(fd, m, flags);
}

static void say_inq(int fd, size_t len, int flags)
{
	char b[64], control[128];
	struct cmsghdr *c;
	struct msghdr m;
	int n = 0;

	if (say_bytes("recvmsg", recv_cmsg(fd, b, len, flags, &m, control, sizeof(control)), b) < 0)
		return;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ) {
			memcpy(&n, CMSG_DATA(c), sizeof(n));
			say("inq %d", n);
		} else {
			say("cmsg %d %d", c->cmsg_level, c->cmsg_type);
		}
	}
}

static void tcp_inq(void)
{
	struct conn k;
	int on = 1;

	conn_start(&k);
	SAY(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	SAY(send(k.a, "abcdefghij", 10, 0));
	arrive(k.b, 10);
	say_inq(k.b, 3, 0);
	say_inq(k.b, 2, MSG_PEEK);
	say_inq(k.b, 7, 0);
	say_inq(k.b, 7, MSG_DONTWAIT);
	SAY(send(k.a, "end", 3, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	say_inq(k.b, 2, 0);
	say_inq(k.b, 1, 0);
	say_inq(k.b, 1, 0);
	conn_end(&k);
}

/* A call decides about TCP_INQ when it begins, before it sleeps. */
static void tcp_inq_while_asleep(void)
{
	char b[16], control[128];
	struct iovec iov = { b, 2 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
	struct conn k;
	struct call c;

	conn_start(&k);
	for (int on = 1; on >= 0; on--) {
		m.msg_controllen = sizeof(control);
		call_start(&c, SYS_recvmsg, (long)k.b, (long)&m, 0L, 0L, 0L, 0L);
		call_blocked(&c);
		SAY(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
		SAY(send(k.a, "abc", 3, 0));
		SAY(call_end(&c));
		say("control %d", CMSG_FIRSTHDR(&m) != NULL);
		say_inq(k.b, 1, 0);
	}
	conn_end(&k);
}

static void tcp_inq_across_spill(void)
{
	static char b[200 * KIB];
	char control[128];
	uint64_t out = 0;
	struct conn k;
	struct msghdr m;
	int on = 1, n;

	conn_start_with(&k, prep_big_buffers);
	MUST(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	for (int i = 0; i < 10; i++)
		send_pattern(k.a, 20 * KIB, &out, 0);
	arrive(k.b, 200 * KIB);
	for (int i = 0; i < 4; i++) {
		long r = recv_cmsg(k.b, b, 50 * KIB, MSG_WAITALL, &m, control, sizeof(control));

		n = -1;
		if (CMSG_FIRSTHDR(&m))
			memcpy(&n, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(n));
		say("received %ld, inq %d, pattern %d", r, n,
		    r > 0 && is_pattern(b, r, 50 * KIB * i));
	}
	conn_end(&k);
}

static void errqueue_empty(void)
{
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(recv(k.b, b, 16, MSG_ERRQUEUE));
	SAY(send(k.a, "abc", 3, 0));
	arrive(k.b, 3);
	SAY(recv(k.b, b, 16, MSG_ERRQUEUE));
	SAY(recv(k.b, b, 16, MSG_ERRQUEUE | MSG_DONTWAIT));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

/* Collects completions until they cover @n sends, and prints their kind. */
static void completions(int fd, unsigned int n)
{
	unsigned int next = 0;

	while (next < n) {
		char control[256], b[8];
		struct sock_extended_err ee;
		struct cmsghdr *c;
		struct msghdr m;

		arrive_err(fd);
		if (recv_cmsg(fd, b, 8, MSG_ERRQUEUE, &m, control, sizeof(control)) < 0)
			fail("error queue: %s", strerror(errno));
		c = CMSG_FIRSTHDR(&m);
		if (!c || !(m.msg_flags & MSG_ERRQUEUE))
			fail("no completion");
		memcpy(&ee, CMSG_DATA(c), sizeof(ee));
		if (ee.ee_errno || ee.ee_origin != SO_EE_ORIGIN_ZEROCOPY || ee.ee_info != next)
			fail("completion: errno %u origin %u from %u to %u, expected %u",
			     ee.ee_errno, ee.ee_origin, ee.ee_info, ee.ee_data, next);
		next = ee.ee_data + 1;
	}
	say("completed %u", next);
}

static void zerocopy(void)
{
	uint64_t out = 0, in = 0;
	static char buf[4][32 * KIB];
	struct conn k;
	int on = 1;

	conn_start_with(&k, prep_big_buffers);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
	send_pattern(k.a, 1000, &out, 0);
	for (int i = 0; i < 4; i++) {
		fill(buf[i], sizeof(buf[i]), out);
		SAY(send(k.a, buf[i], sizeof(buf[i]), MSG_ZEROCOPY));
		out += sizeof(buf[i]);
		send_pattern(k.a, 1000, &out, 0);
	}
	say("received all %d", recv_pattern(k.b, out, &in) == (long)out);
	completions(k.a, 4);
	say_poll("drained", poll_now(k.a));
	SAY(recv(k.a, buf, 8, MSG_ERRQUEUE));
	conn_end(&k);
}

static void zerocopy_not_asked(void)
{
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start(&k);
	say("sent %ld", send_pattern(k.a, 20000, &out, MSG_ZEROCOPY));
	send_pattern(k.a, 1000, &out, 0);
	say("received %ld", recv_pattern(k.b, out, &in));
	SAY(recv(k.a, &in, 8, MSG_ERRQUEUE));
	conn_end(&k);
}

static void bad_cmsg(void)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(4)];
	} c = { .h = { .cmsg_len = CMSG_LEN(4), .cmsg_level = SOL_SOCKET, .cmsg_type = 12345 } };
	struct iovec v = { "abc", 3 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	struct conn k;
	char b[16];

	conn_start(&k);
	SAY(sendmsg(k.a, &m, 0));
	c.h.cmsg_level = SOL_IP;
	SAY(sendmsg(k.a, &m, 0));
	SAY(send(k.a, "def", 3, 0));
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

static void prep_stamps(int fd, bool listener)
{
	int on = 1;

	(void)listener;
	MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)));
}

static void want_stamp_of(struct conn *k, int type)
{
	char b[8], control[128];
	struct msghdr m;
	bool stamped = false;

	/* The kernel turns time stamps on with a delay. */
	where("waiting for a stamped byte");
	while (!stamped) {
		MUST(send(k->a, "x", 1, 0));
		if (recv_cmsg(k->b, b, 1, 0, &m, control, sizeof(control)) != 1)
			fail("recvmsg: %s", strerror(errno));
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
			stamped |= c->cmsg_level == SOL_SOCKET && c->cmsg_type == type;
	}
	say("stamped");
}

static void want_stamp(struct conn *k)
{
	want_stamp_of(k, SCM_TIMESTAMPNS);
}

static void stamps_asked_before(void)
{
	struct conn k;

	conn_open_with(&k, prep_stamps);
	conn_warm(&k);
	want_stamp(&k);
	conn_end(&k);
}

static void stamps_asked_after(void)
{
	struct conn k;

	conn_start(&k);
	prep_stamps(k.b, false);
	want_stamp(&k);
	conn_end(&k);
}

/* By the other option, which has bits of its own in the socket. */
static void timestamping_asked_after(void)
{
	int how = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	struct conn k;

	conn_start(&k);
	SAY(setsockopt(k.b, SOL_SOCKET, SO_TIMESTAMPING, &how, sizeof(how)));
	want_stamp_of(&k, SCM_TIMESTAMPING);
	conn_end(&k);
}

static void *receive_six(void *arg)
{
	struct conn *k = arg;
	char b[8], control[256];
	struct msghdr m;
	int stamps = 0;

	SAY(recv_cmsg(k->b, b, 6, MSG_WAITALL, &m, control, sizeof(control)));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		stamps++;
	say("stamps %d", stamps);
	return NULL;
}

/* A receiving call returns one time stamp, even if the bytes came in several packets. */
static void stamp_of_two_parts(void)
{
	pthread_t reader;
	struct conn k;

	conn_start(&k);
	prep_stamps(k.b, false);
	want_stamp(&k);
	pthread_create(&reader, NULL, receive_six, &k);
	SAY(send(k.a, "abc", 3, 0));
	/* until the reader has taken them */
	for (int n = 1; n; )
		MUST(ioctl(k.b, FIONREAD, &n));
	MUST(send(k.a, "def", 3, 0));
	pthread_join(reader, NULL);
	conn_end(&k);
}

static void start_stamped_with_inq(struct conn *k)
{
	int on = 1;

	conn_start(k);
	SAY(setsockopt(k->b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	prep_stamps(k->b, false);
	want_stamp(k);
}

static void say_stamp_and_inq(struct conn *k, size_t len, int flags)
{
	/* room for both control messages, and no byte more */
	char b[16], control[CMSG_SPACE(sizeof(struct timespec)) + CMSG_SPACE(sizeof(int))];
	int stamps = 0, inqs = 0, inq = -1;
	struct msghdr m;

	SAY(recv_cmsg(k->b, b, len, flags, &m, control, sizeof(control)));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ) {
			inqs++;
			memcpy(&inq, CMSG_DATA(c), sizeof(inq));
		} else {
			stamps += c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS;
		}
	}
	say("stamps %d, TCP_INQ %d times, last %d, flags %x", stamps, inqs, inq, m.msg_flags);
}

/* TCP returns its control messages once, also with the end of the stream. */
static void stamps_and_inq(void)
{
	struct pollfd p = { .events = POLLRDHUP };
	struct conn k;

	start_stamped_with_inq(&k);
	SAY(send(k.a, "abcdef", 6, 0));
	arrive(k.b, 6);
	say_stamp_and_inq(&k, 4, 0);
	SAY(shutdown(k.a, SHUT_WR));
	p.fd = k.b;
	MUST(poll(&p, 1, -1));
	say_stamp_and_inq(&k, 16, 0);
	conn_end(&k);
}

static void *receive_both_parts(void *arg)
{
	say_stamp_and_inq(arg, 16, MSG_WAITALL);
	return NULL;
}

/* The reader has received bytes in this call. The end of the stream then comes in a call of
 * its own.
 */
static void stamps_and_inq_then_fin(void)
{
	pthread_t reader;
	struct conn k;

	start_stamped_with_inq(&k);
	pthread_create(&reader, NULL, receive_both_parts, &k);
	SAY(send(k.a, "abc", 3, 0));
	/* until the reader has taken them */
	for (int n = 1; n; )
		MUST(ioctl(k.b, FIONREAD, &n));
	MUST(shutdown(k.a, SHUT_WR));	/* from here on the reader prints */
	pthread_join(reader, NULL);
	conn_end(&k);
}

/* TCP puts no control message into memory that cannot be written. The module must not take
 * bytes before or behind that memory for one.
 */
static void stamps_and_inq_unwritable(void)
{
	const long page = sysconf(_SC_PAGESIZE);
	char b[8], *before, *control;
	int damaged = 0;
	struct msghdr m;
	struct conn k;

	before = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (before == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	control = before + page;
	MUST(mprotect(control, page, PROT_NONE));
	memset(before, 0x55, page);
	start_stamped_with_inq(&k);
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	for (int clen = 24; clen <= 96; clen += 36) {
		SAY_BUF(recv_cmsg(k.b, b, 1, 0, &m, control, clen), b);
		say("control of %zu, flags %x", m.msg_controllen, m.msg_flags);
	}
	for (long i = 0; i < page; i++)
		damaged += before[i] != 0x55;
	say("damaged %d", damaged);
	conn_end(&k);
}

/* TCP_INQ also comes with the urgent byte, and counts the unread bytes. */
static void tcp_inq_of_urgent_byte(void)
{
	struct pollfd p = { .events = POLLPRI };
	struct conn k;
	int on = 1;

	conn_start(&k);
	MUST(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	SAY(send(k.a, "abc", 3, 0));
	conn_proof(&k);
	SAY(send(k.a, "X", 1, MSG_OOB));
	p.fd = k.b;
	MUST(poll(&p, 1, -1));
	arrive(k.b, 3);
	say_inq(k.b, 1, MSG_OOB | MSG_PEEK);
	say_inq(k.b, 1, MSG_OOB);
	say_inq(k.b, 2, 0);
	say_inq(k.b, 1, 0);
	say_inq(k.b, 1, MSG_OOB);
	close(k.a);
	close(k.b);
}

/* TCP_INQ counts a FIN as a byte, even if it came with TCP bytes that precede the ring's. */
static void tcp_inq_fin_before_ring(void)
{
	struct conn k;
	int on = 1;

	conn_start(&k);
	MUST(setsockopt(k.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	SAY(send(k.a, "abc", 3, MSG_ZEROCOPY));	/* no SO_ZEROCOPY: TCP copies them */
	arrive(k.b, 3);
	SAY(send(k.a, "defg", 4, 0));
	SAY(shutdown(k.a, SHUT_WR));
	arrive_fin(k.b);
	say_inq(k.b, 3, 0);
	say_inq(k.b, 2, 0);
	say_inq(k.b, 2, 0);
	say_inq(k.b, 1, 0);
	conn_end(&k);
}

static void tx_stamps_asked_after(void)
{
	int how = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
		  SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
	char b[8], control[256];
	struct sock_extended_err ee;
	struct cmsghdr *c;
	struct msghdr m;
	struct conn k;
	int unacked;

	conn_start(&k);
	/* SOF_TIMESTAMPING_OPT_ID counts from the last acknowledged byte. */
	do
		MUST(ioctl(k.a, SIOCOUTQ, &unacked));
	while (unacked);
	SAY(setsockopt(k.a, SOL_SOCKET, SO_TIMESTAMPING, &how, sizeof(how)));
	SAY(send(k.a, "abc", 3, 0));
	arrive_err(k.a);
	SAY(recv_cmsg(k.a, b, 8, MSG_ERRQUEUE, &m, control, sizeof(control)));
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
		    (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)) {
			memcpy(&ee, CMSG_DATA(c), sizeof(ee));
			say("origin %u, info %u, key %u", ee.ee_origin, ee.ee_info, ee.ee_data);
		} else {
			say("stamp %d", c->cmsg_type == SCM_TIMESTAMPING);
		}
	}
	SAY_BUF(recv(k.b, b, 3, MSG_WAITALL), b);
	conn_end(&k);
}

const struct bcase cmsg_cases[] = {
	CASE(tcp_inq), CASE_PAIR(tcp_inq_while_asleep), CASE(tcp_inq_across_spill),
	CASE(errqueue_empty), CASE(zerocopy),
	CASE(zerocopy_not_asked), CASE(bad_cmsg),
	CASE_TCP(stamps_asked_before, "a socket that wants time stamps is not paired"),
	CASE_ANY(stamps_asked_after, "the program gets its time stamps, over TCP"),
	CASE_ANY(timestamping_asked_after, "the program gets its time stamps, over TCP"),
	CASE_ANY(stamp_of_two_parts, "the program gets its time stamps, over TCP"),
	CASE_ANY(stamps_and_inq, "the program gets its time stamps, over TCP"),
	CASE_ANY(stamps_and_inq_then_fin, "the program gets its time stamps, over TCP"),
	CASE_ANY(stamps_and_inq_unwritable, "the program gets its time stamps, over TCP"),
	CASE(tcp_inq_of_urgent_byte), CASE(tcp_inq_fin_before_ring),
	CASE_ANY(tx_stamps_asked_after, "the program gets its time stamps, over TCP"),
	{ }
};
