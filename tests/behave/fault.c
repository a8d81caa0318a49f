// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers that cannot be read or written, and buffers whose page fault waits
 * for userfaultfd while the peer resets or closes.
 */
#include "behave.h"

#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

static size_t page_size(void)
{
	return sysconf(_SC_PAGESIZE);
}

/* Pages of at least @good readable bytes, then one that is not; returns the border. */
static char *border(size_t good)
{
	const size_t page = page_size(), room = (good + page - 1) / page * page;
	char *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	MUST(mprotect(p + room, page, PROT_NONE));
	return p + room;
}

static void send_bad_start(void)
{
	char *bad = border(1), b[16];
	struct conn k;

	conn_start(&k);
	SAY(send(k.a, bad, 10, 0));
	SAY(send(k.a, NULL, 10, 0));
	SAY(send(k.a, "fine", 4, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

/* How much of the good part goes first is up to how TCP cuts the stream; what
 * it says went must be what arrives.
 */
static void send_bad_middle(void)
{
	static const size_t good[] = { 1, 100, 4096, 40960, 122880 };
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char *end = border(good[i]);
		uint64_t in = 0, out = 0;
		long r;

		fill(end - good[i], good[i], 0);
		where("send with %zu good bytes", good[i]);
		r = send(k.a, end - good[i], good[i] + 1000, 0);
		say("%zu good: error or short %d", good[i],
		    (r == -1 && errno == EFAULT) || (r > 0 && r <= (long)good[i]));
		if (r > 0)
			recv_pattern(k.b, r, &in);
		say("sent after %ld", send_pattern(k.a, 5000, &out, 0));
		in = 0;
		say("received after %ld", recv_pattern(k.b, 5000, &in));
	}
	conn_end(&k);
}

static void recv_bad_start(void)
{
	char *bad = border(1), b[16];
	struct conn k;

	conn_start(&k);
	SAY(send(k.a, "abcdef", 6, 0));
	arrive(k.b, 6);
	SAY(recv(k.b, bad, 6, 0));
	SAY(recv(k.b, bad, 6, MSG_PEEK));
	SAY(recv(k.b, NULL, 6, 0));
	SAY_BUF(recv(k.b, b, 16, 0), b);
	conn_end(&k);
}

static void recv_bad_middle(void)
{
	static const size_t good[] = { 1, 100, 4096, 40960 };
	struct conn k;

	conn_start_with(&k, prep_big_buffers);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char *end = border(good[i]);
		uint64_t out = 0, in = 0;
		long r;

		send_pattern(k.a, good[i] + 2000, &out, 0);
		arrive(k.b, out);
		r = recv(k.b, end - good[i], good[i] + 1000, 0);
		say("%zu good: error or short %d", good[i],
		    (r == -1 && errno == EFAULT) ||
		    (r > 0 && r <= (long)good[i] && is_pattern(end - good[i], r, 0)));
		if (r > 0)
			in = r;
		recv_pattern(k.b, out - in, &in);
		say("none lost or doubled: %d", in == out);
	}
	conn_end(&k);
}

static void recv_bad_second_vector(void)
{
	char *bad = border(1), b[16];
	struct iovec v[2] = { { b, 4 }, { bad, 4 } };
	uint64_t in = 0, out = 0;
	struct conn k;
	long r;

	conn_start(&k);
	send_pattern(k.a, 8, &out, 0);
	arrive(k.b, 8);
	r = readv(k.b, v, 2);
	say("error or short %d", (r == -1 && errno == EFAULT) || (r > 0 && r <= 4));
	in = r > 0 ? r : 0;
	recv_pattern(k.b, 8 - in, &in);
	say("none lost or doubled: %d", in == 8);
	conn_end(&k);
}

/* A bad buffer on a full socket must not spin or hang. */
static void send_bad_when_full(void)
{
	char *bad = border(1);
	uint64_t out = 0, in = 0;
	struct conn k;

	conn_start(&k);
	send_until_eagain(k.a, &out, 64 * MIB);
	say("refused %d", send(k.a, bad, 10, MSG_DONTWAIT) == -1 &&
			  (errno == EAGAIN || errno == EFAULT));
	recv_pattern(k.b, out, &in);
	SAY(send(k.a, bad, 10, 0));
	conn_end(&k);
}

void uffd_open(struct uffd *u)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	u->fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (u->fd < 0)
		skip("no userfaultfd: %s", strerror(errno));
	MUST(ioctl(u->fd, UFFDIO_API, &api));
	u->page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (u->page == MAP_FAILED)
		fail("mmap");
	reg.range.start = (unsigned long)u->page;
	reg.range.len = page_size();
	MUST(ioctl(u->fd, UFFDIO_REGISTER, &reg));
}

void uffd_caught(struct uffd *u)
{
	struct uffd_msg msg;

	where("waiting for the page fault");
	if (read(u->fd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_PAGEFAULT)
		fail("userfaultfd");
}

void uffd_release_bytes(struct uffd *u, const void *content, size_t len)
{
	static char page[65536] __attribute__((aligned(65536)));
	struct uffdio_copy copy = { .dst = (unsigned long)u->page, .len = page_size(),
				    .src = (unsigned long)page };

	memcpy(page, content, len);
	MUST(ioctl(u->fd, UFFDIO_COPY, &copy));
}

static void uffd_release(struct uffd *u, const char *content)
{
	uffd_release_bytes(u, content, strlen(content) + 1);
}

enum meanwhile { CLOSE, RESET, MORE };

static void during_recv(enum meanwhile what)
{
	struct uffd u;
	struct conn k;
	struct call c, d;
	char b[64];

	conn_start(&k);
	uffd_open(&u);
	SAY(send(k.a, "abcd", 4, 0));
	arrive(k.b, 4);
	CALL_RECV(&c, k.b, u.page, 4, 0);
	uffd_caught(&u);
	conn_proof(&k);
	if (what == RESET)
		reset_on_close(k.a);
	if (what == MORE) {
		where("sending while the reader is in its fault");
		SAY(send(k.a, "efgh", 4, 0));
	} else {
		/* In a thread, for it must not wait for the reader. */
		call_start(&d, SYS_close, (long)k.a, 0L, 0L, 0L, 0L, 0L);
		where("closing while the reader is in its fault");
		SAY(call_end(&d));
	}
	uffd_release(&u, "");
	where("recv after the fault");
	SAY_BUF(call_end(&c), u.page);
	if (what != MORE)
		arrive_fin(k.b);
	SAY_BUF(recv(k.b, b, 64, 0), b);
	if (what != MORE)
		SAY(recv(k.b, b, 64, 0));
}

static void reset_during_recv_fault(void)
{
	during_recv(RESET);
}

static void close_during_recv_fault(void)
{
	during_recv(CLOSE);
}

static void send_during_recv_fault(void)
{
	during_recv(MORE);
}

static void during_send(enum meanwhile what)
{
	struct uffd u;
	struct conn k;
	struct call c, d;
	char b[64];

	conn_start(&k);
	signal(SIGPIPE, SIG_IGN);
	uffd_open(&u);
	/* Something before it, so that the ring has been used. */
	SAY(send(k.a, "ab", 2, 0));
	SAY_BUF(recv(k.b, b, 64, 0), b);
	CALL_SEND(&c, k.a, u.page, 4, 0);
	uffd_caught(&u);
	conn_proof(&k);
	if (what == RESET)
		reset_on_close(k.b);
	if (what == MORE) {
		where("sending towards a writer in its fault");
		SAY(send(k.b, "efgh", 4, 0));
	} else {
		call_start(&d, SYS_close, (long)k.b, 0L, 0L, 0L, 0L, 0L);
		where("closing while the writer is in its fault");
		SAY(call_end(&d));
	}
	uffd_release(&u, "wxyz");
	where("send after the fault");
	SAY(call_end(&c));
	if (what == MORE) {
		SAY_BUF(recv(k.b, b, 64, 0), b);
		SAY_BUF(recv(k.a, b, 64, 0), b);
		return;
	}
	arrive_err(k.a);
	SAY(send(k.a, "x", 1, 0));
	SAY(recv(k.a, b, 64, 0));
}

static void reset_during_send_fault(void)
{
	during_send(RESET);
}

static void close_during_send_fault(void)
{
	during_send(CLOSE);
}

static void recv_during_send_fault(void)
{
	during_send(MORE);
}

const struct bcase fault_cases[] = {
	CASE(send_bad_start), CASE(send_bad_middle), CASE(recv_bad_start), CASE(recv_bad_middle),
	CASE(recv_bad_second_vector), CASE(send_bad_when_full), CASE(reset_during_recv_fault),
	CASE(close_during_recv_fault), CASE(send_during_recv_fault),
	CASE(reset_during_send_fault), CASE(close_during_send_fault),
	CASE(recv_during_send_fault),
	{ }
};
