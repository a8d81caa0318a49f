// SPDX-License-Identifier: GPL-2.0
/*
 * uring USEC ROUNDS SIZE: round trips over a local connection, one of whose ends receives by
 * io_uring, which spins for USEC microseconds before it sleeps (0: not at all). Dies of a wrong
 * byte. Debian 12's headers do not know IORING_REGISTER_NAPI.
 */
#include <arpa/inet.h>
#include <err.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGISTER_NAPI	27	/* IORING_REGISTER_NAPI */

struct napi_request {
	uint32_t usec;
	uint8_t prefer;
	uint8_t reserved[11];
};

struct ring {
	int fd;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
	struct io_uring_params par;
};

static void *map(int fd, size_t len, off_t off)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);

	if (p == MAP_FAILED)
		err(1, "mmap");
	return p;
}

static void ring_open(struct ring *r, unsigned int usec)
{
	struct napi_request napi = { .usec = usec };

	r->fd = syscall(SYS_io_uring_setup, 1, &r->par);
	if (r->fd < 0)
		err(1, "io_uring_setup");
	r->sq = map(r->fd, r->par.sq_off.array + 4 * r->par.sq_entries, IORING_OFF_SQ_RING);
	r->cq = map(r->fd, r->par.cq_off.cqes + r->par.cq_entries * sizeof(struct io_uring_cqe),
		    IORING_OFF_CQ_RING);
	r->sqes = map(r->fd, r->par.sq_entries * sizeof(*r->sqes), IORING_OFF_SQES);
	if (usec && syscall(SYS_io_uring_register, r->fd, REGISTER_NAPI, &napi, 1))
		err(1, "IORING_REGISTER_NAPI");
}

static int ring_recv(struct ring *r, int fd, void *buf, unsigned int len)
{
	unsigned int *tail = (unsigned int *)(r->sq + r->par.sq_off.tail);
	unsigned int *head = (unsigned int *)(r->cq + r->par.cq_off.head);
	unsigned int *array = (unsigned int *)(r->sq + r->par.sq_off.array);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(r->cq + r->par.cq_off.cqes);
	const unsigned int done = *head;
	int res;

	r->sqes[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_RECV, .fd = fd, .addr = (uintptr_t)buf, .len = len,
	};
	array[*tail & (r->par.sq_entries - 1)] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		err(1, "io_uring_enter");
	if (__atomic_load_n((unsigned int *)(r->cq + r->par.cq_off.tail), __ATOMIC_ACQUIRE) == done)
		errx(1, "io_uring_enter returned without a completion");
	res = cqes[done & (r->par.cq_entries - 1)].res;
	__atomic_store_n(head, done + 1, __ATOMIC_RELEASE);
	if (res <= 0)
		errx(1, "recv by io_uring: %d", res);
	return res;
}

static void echo(int fd, char *buf, size_t size)
{
	ssize_t n;

	while ((n = recv(fd, buf, size, MSG_WAITALL)) > 0) {
		if (send(fd, buf, n, 0) != n)
			err(1, "send");
	}
	exit(n ? 1 : 0);
}

static void exchange(struct ring *r, int fd, char *buf, unsigned int size, int byte)
{
	unsigned int done = 0;

	memset(buf, byte, size);
	if (send(fd, buf, size, 0) != (ssize_t)size)
		err(1, "send");
	memset(buf, ~byte, size);
	while (done < size)
		done += ring_recv(r, fd, buf + done, size - done);
	for (done = 0; done < size; done++) {
		if (buf[done] != (char)byte)
			errx(1, "a wrong byte");
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	const int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(to);
	struct ring r = { 0 };
	int fd, rounds, size, status;
	char *buf;

	if (argc != 4 || (size = atoi(argv[3])) <= 0)
		errx(2, "usage: uring USEC ROUNDS SIZE");
	rounds = atoi(argv[2]);
	buf = malloc(size);
	if (!buf || bind(listener, (struct sockaddr *)&to, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&to, &len))
		err(1, "listener");
	if (!fork())
		echo(accept(listener, NULL, NULL), buf, size);
	/* A socket that the child has too is not known to be free of other readers. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to, len))
		err(1, "connect");
	ring_open(&r, atoi(argv[1]));
	for (int i = 0; i < rounds + 10; i++)	/* the first bytes arm the ring */
		exchange(&r, fd, buf, size, i);
	close(fd);
	if (wait(&status) < 0 || status)
		errx(1, "the echo ended with %d", status);
	return 0;
}
