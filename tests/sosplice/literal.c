// SPDX-License-Identifier: GPL-2.0
/* The call of the BSDs: setsockopt(fd, SOL_SOCKET, SO_SPLICE, …). */
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/un.h>

#include "sosplice.h"

static int set(int fd, const void *arg, socklen_t len)
{
	return setsockopt(fd, SOL_SOCKET, SO_SPLICE, arg, len) ? errno : 0;
}

static int get(int fd, void *count, socklen_t *len)
{
	return getsockopt(fd, SOL_SOCKET, SO_SPLICE, count, len) ? errno : 0;
}

static void moves_through(const struct relay *r, uint64_t pos)
{
	stream_write(r->c, pos, 1000);
	stream_read(r->s, pos, 1000);
}

static void literal_moves(void)
{
	struct splice s = { .sp_idle.tv_sec = 60 };
	uint64_t count = counter("so_splice_bytes");
	socklen_t len = sizeof(int64_t);
	int64_t moved = -1;
	int none = -1, err;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET6);
	s.sp_fd = r.q;
	err = set(r.p, &s, sizeof(s));
	check(!err, "%s", strerror(err));
	check(set(r.p, &s, sizeof(s)) == EBUSY, "spliced twice");
	moves_through(&r, 0);
	wait_moved(r.p, 1000);
	err = get(r.p, &moved, &len);
	check(!err && moved == 1000 && len == sizeof(moved), "%s, %lld in %u bytes",
	      strerror(err), (long long)moved, len);
	wait_counter("so_splice_bytes", count + 1000);
	err = set(r.p, &none, sizeof(none));
	check(!err, "%s", strerror(err));
	err = set(r.p, &r.q, sizeof(r.q));
	check(!err, "%s", strerror(err));
	moves_through(&r, 1000);
	check(!set(r.p, NULL, 0), "%s", strerror(errno));
	check(set(r.p, NULL, 0) == ENOTCONN, "%s", strerror(errno));
}

static void literal_errors(void)
{
	int local = socket(AF_UNIX, SOCK_STREAM, 0);
	struct splice s = { .sp_max = -1 };
	socklen_t len = 4, negative = -1;
	int64_t moved;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	s.sp_fd = r.q;
	check(set(local, &r.q, sizeof(r.q)) == EPROTONOSUPPORT, "%s", strerror(errno));
	check(set(r.p, &s, sizeof(s)) == EINVAL, "%s", strerror(errno));
	check(set(r.p, &s, 3) == EINVAL, "%s", strerror(errno));
	check(set(r.p, NULL, sizeof(s)) == EFAULT, "%s", strerror(errno));
	check(set(r.p, &local, sizeof(local)) == EPROTONOSUPPORT, "%s", strerror(errno));
	check(get(r.p, &moved, &len) == EINVAL, "%s", strerror(errno));
	check(get(r.p, &moved, &negative) == EINVAL, "%s", strerror(errno));
	len = sizeof(moved);
	check(get(r.p, NULL, &len) == EFAULT, "%s", strerror(errno));
	check(get(local, &moved, &len) == EPROTONOSUPPORT, "%s", strerror(errno));
	stream_write(r.c, 0, 1000);
	stream_read(r.p, 0, 1000);
}

/* All other options are what they are. */
static void literal_others(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, got = 0;
	socklen_t len = sizeof(got);

	check(!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), "%s", strerror(errno));
	check(!getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &got, &len) && got == 1,
	      "%s, %d", strerror(errno), got);
	check(setsockopt(fd, SOL_SOCKET, SO_SPLICE + 1, &on, sizeof(on)) &&
	      errno == ENOPROTOOPT, "%s", strerror(errno));
	check(getsockopt(fd, SOL_SOCKET, SO_SPLICE + 1, &got, &len) && errno == ENOPROTOOPT,
	      "%s", strerror(errno));
	check(setsockopt(fd, IPPROTO_TCP, SO_SPLICE, &on, sizeof(on)) && errno == ENOPROTOOPT,
	      "%s", strerror(errno));
	check(getsockopt(fd, IPPROTO_IP, SO_SPLICE, &got, &len) && errno == ENOPROTOOPT,
	      "%s", strerror(errno));
}

/* A 32-bit program's struct is another one: it may give an int. */
static void literal_32_bit(void)
{
	enum { GETSOCKOPT = 365, SETSOCKOPT = 366 };
	struct {
		struct splice s;
		int fd;
		socklen_t len;
		int64_t moved;
	} *low = mmap(NULL, sizeof(*low), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct relay r;
	long ret;

	if (!has_32_bit_calls()) {
		printf("# no 32-bit calls here\n");
		return;
	}
	check(low != MAP_FAILED, "%s", strerror(errno));
	relay_open(&r, AF_INET, AF_INET);
	low->s.sp_fd = low->fd = r.q;
	ret = call32(SETSOCKOPT, r.p, SOL_SOCKET, SO_SPLICE, &low->s, sizeof(low->s));
	check(ret == -EINVAL, "%s", strerror(-ret));
	ret = call32(SETSOCKOPT, r.p, SOCKSPLICE_LEVEL, SOCKSPLICE_SO_SPLICE, &low->s,
		     sizeof(low->s));
	check(ret == -EINVAL, "%s", strerror(-ret));
	ret = call32(SETSOCKOPT, r.p, SOL_SOCKET, SO_SPLICE, &low->fd, sizeof(low->fd));
	check(!ret, "%s", strerror(-ret));
	moves_through(&r, 0);
	wait_moved(r.p, 1000);
	low->len = sizeof(low->moved);
	ret = call32(GETSOCKOPT, r.p, SOL_SOCKET, SO_SPLICE, &low->moved, (unsigned long)&low->len);
	check(!ret && low->moved == 1000, "%s, %lld", strerror(-ret), (long long)low->moved);
	low->fd = -1;
	ret = call32(SETSOCKOPT, r.p, SOL_SOCKET, SO_SPLICE, &low->fd, sizeof(low->fd));
	check(!ret, "%s", strerror(-ret));
}

/* Switched off it is unknown to the kernel, and the module's own call works. */
static void literal_off(void)
{
	socklen_t len = sizeof(int64_t);
	int64_t moved;
	struct relay r;
	int off, get_off, on;

	relay_open(&r, AF_INET, AF_INET);
	set_switch("so_splice_literal", "0");
	off = set(r.p, &r.q, sizeof(r.q));
	get_off = get(r.p, &moved, &len);
	splice_on(&r);
	set_switch("so_splice_literal", "1");
	check(off == ENOPROTOOPT, "%s", strerror(off));
	check(get_off == ENOPROTOOPT, "%s", strerror(get_off));
	moves_through(&r, 0);
	on = set(r.p, NULL, 0);
	check(!on, "%s", strerror(on));
}

/* kernel.ftrace_enabled=0 is refused, or does nothing to it. */
static void literal_ftrace(void)
{
	int fd = open("/proc/sys/kernel/ftrace_enabled", O_WRONLY), err;
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	if (write(fd, "0", 1) == 1)
		printf("# ftrace_enabled=0 was accepted\n");
	err = set(r.p, &r.q, sizeof(r.q));
	if (write(fd, "1", 1) != 1)
		printf("# %s\n", strerror(errno));
	check(!err, "%s", strerror(err));
	moves_through(&r, 0);
}

static void *get_into(void *page)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), err;
	socklen_t len = sizeof(int64_t);

	err = get(fd, page, &len);
	check(!err, "%s", strerror(err));
	return NULL;
}

int literal_hold(void)
{
	struct held_page h;
	pthread_t thread;
	char line[16];

	hold_page(&h);
	check(!pthread_create(&thread, NULL, get_into, h.page), "no thread");
	wait_for_fault(&h);
	printf("ready\n");
	fflush(stdout);
	check(fgets(line, sizeof(line), stdin), "no word");
	end_fault(&h, 0);
	pthread_join(thread, NULL);
	printf("fine\n");
	return 0;
}

const struct sock_case literal_cases[] = {
	{ "SOL_SOCKET", literal_moves },
	{ "SOL_SOCKET-errors", literal_errors },
	{ "SOL_SOCKET-other-options", literal_others },
	{ "SOL_SOCKET-32-bit", literal_32_bit },
	{ "SOL_SOCKET-switched-off", literal_off },
	{ "SOL_SOCKET-ftrace_enabled", literal_ftrace },
	{}
};
