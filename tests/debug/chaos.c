// SPDX-License-Identifier: GPL-2.0
/* torture: "chaos" and "fault". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif

struct mess {
	int fd[2];
	int ops;
	uint64_t salt;
};

void chaos_op(int fd, uint8_t *buf)
{
	static const int sflags[] = { 0, 0, 0, MSG_DONTWAIT, MSG_DONTWAIT, MSG_MORE,
				      MSG_ZEROCOPY };
	static const int rflags[] = { 0, 0, MSG_DONTWAIT, MSG_DONTWAIT, MSG_PEEK | MSG_DONTWAIT,
				      MSG_TRUNC | MSG_DONTWAIT, MSG_WAITALL };
	const bool urgent = !below(100);	/* rare: it takes the pair back to TCP */
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	struct linger hard = { .l_onoff = 1 };
	uint32_t len = below(3) ? 1 + below(2000) : 1 + below(BUF);
	int v = below(2), pip[2];
	loff_t off = 0;

	switch (below(40)) {
	case 0 ... 9:
		send(fd, buf, len, MSG_NOSIGNAL | (urgent ? MSG_OOB : sflags[below(7)]));
		break;
	case 10 ... 19:
		recv(fd, buf, len, urgent ? MSG_OOB | MSG_DONTWAIT : rflags[below(7)]);
		break;
	case 20 ... 22:
		if (pipe2(pip, O_CLOEXEC))
			break;
		splice(fd, NULL, pip[1], NULL, 1 + below(65536), below(2) ? SPLICE_F_NONBLOCK : 0);
		fcntl(pip[0], F_SETFL, O_NONBLOCK);
		splice(pip[0], NULL, fd, NULL, 65536, SPLICE_F_NONBLOCK);
		close(pip[0]);
		close(pip[1]);
		break;
	case 23:
		v = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		if (v >= 0) {
			sendfile(fd, v, &off, len);
			close(v);
		}
		break;
	case 24:
		if (!below(4))
			shutdown(fd, below(3));
		break;
	case 25:
		if (!below(4))
			connect(fd, &unspec, sizeof(unspec));
		break;
	case 26:
		if (!below(3))
			setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3);
		break;
	case 27:
		setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &v, sizeof(v));
		usleep(below(2000));
		v = 0;
		setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &v, sizeof(v));
		break;
	case 28:
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		break;
	case 29: {
		struct tcp_zerocopy_receive zc = { .length = 8192 };
		socklen_t zlen = sizeof(zc);
		void *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			break;
		zc.address = (uintptr_t)p;
		getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &zc, &zlen);
		munmap(p, 8192);
		break;
	}
	case 30:
		setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &v, sizeof(v));
		break;
	case 31: {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
		int ep = epoll_create1(EPOLL_CLOEXEC);

		if (ep < 0)
			break;
		epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
		epoll_wait(ep, &ev, 1, below(10));
		close(ep);
		break;
	}
	case 32:
		setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE,
			   &(unsigned int){ v ? 1000000 : ~0U }, 4);
		break;
	case 33: {
		/* the socket's own fate as a listener, after a disconnect */
		if (!below(4) && !connect(fd, &unspec, sizeof(unspec)))
			listen(fd, 1);
		break;
	}
	default:
		pester(fd);
	}
}

static void *chaos_thread(void *arg)
{
	struct mess *m = arg;
	uint8_t *buf = malloc(BUF);
	int i;

	reseed(m->salt);
	memset(buf, m->salt, BUF);
	for (i = 0; i < m->ops; i++)
		chaos_op(m->fd[below(2)], buf);
	free(buf);
	return NULL;
}

void chaos(uint64_t salt)
{
	struct mess m[4];
	pthread_t t[4];
	pid_t child[2];
	int fd[2], i, n, kids;
	bool early;

	if (!connection(fd))
		return;
	kids = below(3);
	for (i = 0; i < kids; i++) {
		child[i] = fork();
		if (child[i] == 0) {
			struct mess k = { { fd[0], fd[1] }, 1000000, salt * 16 + 8 + i };

			if (below(2))
				close(fd[below(2)]);
			chaos_thread(&k);
			_exit(0);
		}
	}
	/* the fds of this process go while its threads still use them, or not */
	early = below(2);
	n = 1 + below(4);
	for (i = 0; i < n; i++) {
		m[i] = (struct mess){ { fd[0], fd[1] }, 10 + below(100), salt * 16 + i };
		pthread_create(&t[i], NULL, chaos_thread, &m[i]);
	}
	if (early) {
		usleep(below(30000));
		close(fd[below(2)]);
	}
	for (i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < kids; i++) {
		if (child[i] < 0)
			continue;
		usleep(below(20000));
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	close(fd[0]);
	close(fd[1]);
}

/* --- fault: copies that block on memory that is not there --- */

struct fault {
	int uffd, fd;
	char *mem;
	bool writer;
	uint64_t salt;
	atomic_bool *done;
};

#define FAULT_PAGES 8

static void *fault_server(void *arg)
{
	struct fault *f = arg;
	static char zero[4096] __attribute__((aligned(4096)));
	struct uffd_msg msg;

	reseed(f->salt + 99);
	while (!atomic_load(f->done)) {
		struct uffdio_copy copy = { .src = (uintptr_t)zero, .len = 4096 };

		if (poll(&(struct pollfd){ .fd = f->uffd, .events = POLLIN }, 1, 10) <= 0 ||
		    read(f->uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		usleep(below(40000));
		copy.dst = msg.arg.pagefault.address & ~4095ull;
		/* an injected failure here would leave the copy waiting for ever */
		while (ioctl(f->uffd, UFFDIO_COPY, &copy) && (errno == ENOMEM || errno == EAGAIN))
			copy.copy = 0;
	}
	return NULL;
}

static void *fault_worker(void *arg)
{
	struct fault *f = arg;
	int i;

	for (i = 0; i < 6; i++) {
		if (f->writer)
			send(f->fd, f->mem, FAULT_PAGES * 4096, MSG_NOSIGNAL);
		else
			recv(f->fd, f->mem, FAULT_PAGES * 4096, 0);
		madvise(f->mem, FAULT_PAGES * 4096, MADV_DONTNEED);
	}
	return NULL;
}

void fault(uint64_t salt)
{
	atomic_bool done = false;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	uint8_t *buf = malloc(BUF);
	struct fault f[2];
	pthread_t server, t[2];
	int fd[2], uffd, i;
	char *mem;

	if (!connection(fd)) {
		free(buf);
		return;
	}
	memset(buf, 1, BUF);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	mem = mmap(NULL, 2 * FAULT_PAGES * 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)mem;
	reg.range.len = 2 * FAULT_PAGES * 4096;
	if (uffd < 0 || mem == MAP_FAILED || ioctl(uffd, UFFDIO_API, &api) ||
	    ioctl(uffd, UFFDIO_REGISTER, &reg))
		goto out;
	for (i = 0; i < 2; i++)
		f[i] = (struct fault){ uffd, fd[below(2)], mem + i * FAULT_PAGES * 4096,
				       below(2), salt + i, &done };
	pthread_create(&server, NULL, fault_server, &f[0]);
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, fault_worker, &f[i]);
	for (i = 0; i < 20; i++)
		chaos_op(fd[below(2)], buf);
	close(fd[below(2)]);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	atomic_store(&done, true);
	pthread_join(server, NULL);
out:
	free(buf);
	if (mem != MAP_FAILED)
		munmap(mem, 2 * FAULT_PAGES * 4096);
	if (uffd >= 0)
		close(uffd);
	close(fd[0]);
	close(fd[1]);
}
