// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../module/uapi/capture.h"
#include "../../module/uapi/so_splice.h"
#include "held.h"

#define DEVICE	"/dev/" SOCKSPLICE_CAPTURE_DEVICE

static int listener(struct sockaddr_in *addr)
{
	socklen_t len = sizeof(*addr);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	*addr = (struct sockaddr_in){ .sin_family = AF_INET };
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(l >= 0 && !bind(l, (void *)addr, len) && !listen(l, 5) &&
	      !getsockname(l, (void *)addr, &len), "listen: %s", strerror(errno));
	return l;
}

static int connect_to(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	check(!connect(fd, (void *)addr, sizeof(*addr)), "connect: %s", strerror(errno));
	return fd;
}

/* Two ends of a connection whose bytes go by ring both ways. */
static void connect_pair(int fd[2])
{
	struct sockaddr_in addr;
	char byte[2];
	int l = listener(&addr);

	fd[0] = connect_to(&addr);
	fd[1] = accept(l, NULL, NULL);
	close(l);
	check(fd[1] >= 0, "accept: %s", strerror(errno));
	for (int i = 0; i < 8; i++)
		check(send(fd[i % 2], "x", 1, 0) == 1 && recv(fd[1 - i % 2], byte, 1, 0) == 1,
		      "a byte: %s", strerror(errno));
}

static void close_pair(int fd[2])
{
	close(fd[0]);
	close(fd[1]);
}

static long do_send(struct call *c)
{
	return send(c->fd, c->page, 100, MSG_NOSIGNAL);
}

static long do_recv(struct call *c)
{
	return recv(c->fd, c->page, 100, 0);
}

static long do_recv_own(struct call *c)
{
	char buf[100];

	return recv(c->fd, buf, sizeof(buf), 0);
}

static long do_send_own(struct call *c)
{
	return send(c->fd, "y", 1, MSG_NOSIGNAL);
}

static long do_atmark(struct call *c)
{
	int at;

	return ioctl(c->fd, SIOCATMARK, &at);
}

static long do_set_ulp(struct call *c)
{
	return setsockopt(c->fd, SOL_TCP, TCP_ULP, "no such one", 11);
}

static long do_set_cork(struct call *c)
{
	return setsockopt(c->fd, SOL_TCP, TCP_CORK, c->page, sizeof(int));
}

static long do_get_ulp(struct call *c)
{
	char name[16];

	return getsockopt(c->fd, SOL_TCP, TCP_ULP, name, c->page);
}

/* As a 32-bit caller. For any other one the kernel reads the length once more before it comes to
 * TCP's function, and the fault is over.
 */
static long do_get_ulp_32(struct call *c)
{
#ifdef __x86_64__
	long ret = 365;

	/* c->page is in the name's place, too: this process has no other memory below 4 GB. */
	asm volatile("int $0x80" : "+a"(ret)
		     : "b"((long)c->fd), "c"((long)SOL_TCP), "d"((long)TCP_ULP),
		       "S"(c->page + 64), "D"(c->page)
		     : "memory", "cc", "r8", "r9", "r10", "r11");
	errno = ret < 0 ? -ret : 0;
	return ret < 0 ? -1 : ret;
#else
	return do_get_ulp(c);
#endif
}

static long do_get_zerocopy(struct call *c)
{
	struct tcp_zerocopy_receive zc = { 0 };
	socklen_t len = sizeof(zc);

	return getsockopt(c->fd, SOL_TCP, TCP_ZEROCOPY_RECEIVE, &zc, &len);
}

static long do_splice(struct call *c)
{
	int p[2];

	check(!pipe(p), "pipe: %s", strerror(errno));
	return splice(c->fd, NULL, p[1], NULL, 100, 0);
}

static long do_so_splice(struct call *c)
{
	return setsockopt(c->fd, SOL_IP, SOCKSPLICE_SO_SPLICE, c->page, sizeof(int));
}

static long do_capture_read(struct call *c)
{
	return read(c->fd, c->page, PAGES);
}

static long do_capture_start(struct call *c)
{
	return ioctl(c->fd, SOCKSPLICE_CAPTURE_START, c->page);
}

/* In a fault of the call's own, which ends in the end. */
static void in_fault(struct call *c, const char *what)
{
	c->page = fault_page();
	call_start(c);
	fault_wait(c->page);
	unload_is_refused(what);
	fault_end(c->page);
	call_end(c);
}

static void case_faults(void)
{
	struct call send = { .run = do_send }, recv = { .run = do_recv };
	struct call set = { .run = do_set_cork }, get = { .run = do_get_ulp };
	struct call so_splice = { .run = do_so_splice }, start = { .run = do_capture_start };
	int fd[2];

	connect_pair(fd);
	send.fd = set.fd = get.fd = so_splice.fd = fd[0];
	recv.fd = fd[1];
	in_fault(&send, "send");
	check(send.ret == 100, "send: %s", strerror(send.err));
	in_fault(&recv, "recv");
	check(recv.ret == 100, "recv: %s", strerror(recv.err));
	in_fault(&set, "setsockopt");
	in_fault(&get, "getsockopt");
	check(!get.ret, "getsockopt: %s", strerror(get.err));
	in_fault(&so_splice, "setsockopt(SO_SPLICE)");
	close_pair(fd);
	start.fd = open(DEVICE, O_RDWR);
	check(start.fd >= 0, "%s: %s", DEVICE, strerror(errno));
	in_fault(&start, "the capture's start");
	close(start.fd);
	unload();
}

/* A getsockopt(TCP_ULP) begins before the socket is enrolled, and ends when it is un-paired. */
static void case_ulp_from_before(void)
{
	struct call get = { .run = do_get_ulp_32 };
	struct sockaddr_in addr;
	int l = listener(&addr), far;
	char byte;

	get.fd = socket(AF_INET, SOCK_STREAM, 0);
	get.page = fault_page();
	call_start(&get);
	fault_wait(get.page);
	check(!connect(get.fd, (void *)&addr, sizeof(addr)), "connect: %s", strerror(errno));
	far = accept(l, NULL, NULL);
	check(send(get.fd, "x", 1, 0) == 1 && recv(far, &byte, 1, 0) == 1, "a byte");
	fault_end_read(get.page, 16);
	fault_wait(get.page);		/* of the length */
	check(do_set_ulp(&get) && errno == ENOENT, "un-paired: %s", strerror(errno));
	fault_end_write(get.page);
	call_end(&get);
	check(!get.ret, "getsockopt: %s", strerror(get.err));
	check(!*(int *)get.page, "a name of %d bytes", *(int *)get.page);
	close(get.fd);
	close(far);
	close(l);
	unload();
}

#ifdef __x86_64__
#define BAD_COPY_FAILS	true
#else
#define BAD_COPY_FAILS	false
#endif

/* Such a call from before the module was loaded is inside TCP's function. x86 takes its copy for a
 * fault of the user's. On other architectures no socket is enrolled before it has left.
 */
static void case_ulp_from_before_load(void)
{
	struct call get = { .run = do_get_ulp_32 };
	struct sockaddr_in addr;
	int l = listener(&addr), log, far;
	char told[100];

	unload();
	get.fd = socket(AF_INET, SOCK_STREAM, 0);
	get.page = fault_page();
	call_start(&get);
	fault_wait(get.page);
	log = log_open();
	load("enroll_all=1");
	if (!BAD_COPY_FAILS) {
		snprintf(told, sizeof(told), "before task %d has left", atomic_load(&get.tid));
		log_wait(log, told);
		check(!may_attach(), "the module does not wait for the call");
	}
	check(!connect(get.fd, (void *)&addr, sizeof(addr)), "connect: %s", strerror(errno));
	far = accept(l, NULL, NULL);
	if (BAD_COPY_FAILS)
		unload_is_refused("sockets that are enrolled beside an old call");
	fault_end_read(get.page, 16);
	fault_wait(get.page);		/* of the length */
	check(do_set_ulp(&get) && errno == ENOENT, "un-paired: %s", strerror(errno));
	fault_end_write(get.page);
	call_end(&get);
	check(!get.ret || get.err == EFAULT, "getsockopt: %s", strerror(get.err));
	wait_may_attach();
	close(get.fd);
	close(far);
	close(l);
	unload();
}

/* The socket's owner is in a fault, and others wait for its lock. */
static void case_locks(void)
{
	struct call waiters[] = {
		{ .run = do_send_own }, { .run = do_recv_own }, { .run = do_atmark },
		{ .run = do_set_ulp }, { .run = do_get_zerocopy }, { .run = do_splice },
	};
	const int n = sizeof(waiters) / sizeof(waiters[0]);
	struct call owner = { .run = do_send };
	int fd[2], i;

	connect_pair(fd);
	owner.fd = fd[0];
	owner.page = fault_page();
	call_start(&owner);
	fault_wait(owner.page);
	for (i = 0; i < n; i++) {
		waiters[i].fd = fd[0];
		call_start(&waiters[i]);
		call_wait_inside(&waiters[i], "lock_sock");
	}
	unload_is_refused("calls that wait for a lock");
	fault_end(owner.page);
	call_end(&owner);
	shutdown(fd[1], SHUT_RDWR);	/* for the calls that wait for bytes */
	for (i = 0; i < n; i++)
		call_end(&waiters[i]);
	close_pair(fd);
	unload();
}

static void case_capture_read(void)
{
	struct socksplice_capture_opts opts = {
		.snaplen = 100, .buffer = SOCKSPLICE_CAPTURE_BUFFER_MIN,
	};
	struct call c = { .run = do_capture_read };

	c.fd = open(DEVICE, O_RDWR);
	check(c.fd >= 0 && !ioctl(c.fd, SOCKSPLICE_CAPTURE_START, &opts), "capture: %s",
	      strerror(errno));
	c.page = NULL;
	call_start(&c);		/* nothing to read: in its wait */
	unload_is_refused("a capture's read");
	call_end(&c);
	close(c.fd);
	unload();
}

/* The sink has forgotten the splice, is plain TCP again and owned for ever; the source is
 * owned until the splice ends with it.
 */
static void case_sink(void)
{
	struct sockaddr_in addr, none = { .sin_family = AF_UNSPEC };
	struct call sends = { .run = do_send }, reads = { .run = do_recv };
	int l, source, peer, sink, far, again;

	set_param("enroll_all", "0");
	l = listener(&addr);
	peer = connect_to(&addr);
	source = accept(l, NULL, NULL);
	sink = connect_to(&addr);
	far = accept(l, NULL, NULL);
	check(!setsockopt(source, SOL_IP, SOCKSPLICE_SO_SPLICE, &sink, sizeof(sink)),
	      "SO_SPLICE: %s", strerror(errno));
	sends.fd = source;
	sends.page = fault_page();
	call_start(&sends);
	fault_wait(sends.page);
	check(!connect(sink, (void *)&none, sizeof(none)) &&
	      !connect(sink, (void *)&addr, sizeof(addr)), "again: %s", strerror(errno));
	again = accept(l, NULL, NULL);
	check(send(again, "hello", 5, 0) == 5, "hello: %s", strerror(errno));
	reads.fd = sink;
	reads.page = fault_page();
	call_start(&reads);
	fault_wait(reads.page);
	fault_end(sends.page);
	call_end(&sends);
	close(source);
	close(peer);
	close(far);
	unload();
	fault_end(reads.page);
	call_end(&reads);
	check(reads.ret == 5, "the sink's reader got %ld: %s", reads.ret, strerror(reads.err));
}

/* A peer that is not enrolled, as one on another machine. */
static void connect_stranger(int fd[2])
{
	struct sockaddr_in addr;
	int l = listener(&addr), one = 1;

	check(!setsockopt(l, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof(one)), "timestamps");
	fd[0] = connect_to(&addr);
	fd[1] = accept(l, NULL, NULL);
	close(l);
}

static void silent_peer(long (*read)(struct call *c), const struct timeval *timeout)
{
	struct call c = { .run = read };
	int fd[2];

	connect_stranger(fd);
	c.fd = fd[0];
	c.page = malloc(100);
	if (timeout)
		setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, timeout, sizeof(*timeout));
	call_start(&c);
	call_wait_inside(&c, "recvmsg");
	if (timeout) {
		unload_is_refused("a read with a time-out");
		set_param("pairing", "0");
	}
	unload();
	check(!atomic_load(&c.done), "the reader left: %s", strerror(c.err));
	check(send(fd[1], "word", 4, 0) == 4, "send: %s", strerror(errno));
	call_end(&c);
	check(c.ret == 4, "the reader got %ld: %s", c.ret, strerror(c.err));
	free(c.page);
	close_pair(fd);
}

static void case_silent_peer(void)
{
	silent_peer(do_recv, NULL);
}

static void case_silent_peer_time_out(void)
{
	silent_peer(do_recv, &(struct timeval){ .tv_sec = 1000 });
}

const struct held_case held_cases[] = {
	{ .name = "faults", .run = case_faults },
	{ .name = "ulp_from_before", .run = case_ulp_from_before },
	{ .name = "ulp_from_before_load", .run = case_ulp_from_before_load, .bad_copy = true },
	{ .name = "locks", .run = case_locks },
	{ .name = "capture_read", .run = case_capture_read },
	{ .name = "sink", .run = case_sink },
	{ .name = "silent_peer", .run = case_silent_peer },
	{ .name = "silent_peer_time_out", .run = case_silent_peer_time_out },
	{ },
};
