// SPDX-License-Identifier: GPL-2.0
/*
 * The system calls that send and receive. The main thread, another thread or a child
 * process makes them. The children share the buffers.
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define UNTOUCHED 0xee		/* what receive buffers hold beforehand */

static struct area {
	unsigned char send[BUF_SIZE];
	struct iovec send_iov[3];
	struct mmsghdr send_msg[2];
	struct {
		unsigned char buf[BUF_SIZE];
		struct iovec iov[3];
		struct mmsghdr msg[2];
		char control[64];
	} recv[2];
	struct {
		long ret;
		int err;
	} child;
	int sigpipes, sigusrs;
} *area;

int *sigpipes, *sigusrs;

static void on_signal(int sig)
{
	__atomic_fetch_add(sig == SIGPIPE ? sigpipes : sigusrs, 1, __ATOMIC_SEQ_CST);
}

void calls_init(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t async;

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		fail("no memory");
	sigpipes = &area->sigpipes;
	sigusrs = &area->sigusrs;
	sigaction(SIGUSR1, &sa, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &sa, NULL);
	sigaction(SIGPIPE, &sa, NULL);
	/* These signals stay pending until some thread fetches them. */
	sigemptyset(&async);
	sigaddset(&async, SIGURG);
	sigaddset(&async, SIGRTMIN);
	sigaddset(&async, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &async, NULL);
}

unsigned char *send_area(void)
{
	return area->send;
}

struct sys {
	long nr, arg[6];
};

static long sys_raw(const struct sys *s)
{
	return syscall(s->nr, s->arg[0], s->arg[1], s->arg[2], s->arg[3], s->arg[4], s->arg[5]);
}

static void sys_start(struct call *c, const struct sys *s)
{
	call_start(c, s->nr, s->arg[0], s->arg[1], s->arg[2], s->arg[3], s->arg[4], s->arg[5]);
}

static long sys_by_child(const struct sys *s)
{
	int pid = fork(), status;

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (!pid) {
		area->child.ret = sys_raw(s);
		area->child.err = errno;
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail("the child that made a call died: %x", status);
	errno = area->child.err;
	return area->child.ret;
}

static long sys_by(enum by by, const struct sys *s)
{
	struct call c;

	switch (by) {
	case BY_THREAD:
		sys_start(&c, s);
		return call_end(&c);
	case BY_CHILD:
		return sys_by_child(s);
	default:
		return sys_raw(s);
	}
}

#define SYS(n, a, b, c, d, e, f) \
	(struct sys){ (n), { (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f) } }

/* @n bytes at @buf in three parts, of which the middle one may be empty. */
static void cut(struct iovec iov[3], unsigned char *buf, int n)
{
	int a = n / 3, b = n % 2 ? n / 4 : 0;

	iov[0] = (struct iovec){ buf, a };
	iov[1] = (struct iovec){ buf + a, b };
	iov[2] = (struct iovec){ buf + a + b, n - a - b };
}

static void two_messages(struct mmsghdr msg[2], struct iovec iov[3], unsigned char *buf, int n)
{
	iov[0] = (struct iovec){ buf, n / 2 };
	iov[1] = (struct iovec){ buf + n / 2, n - n / 2 };
	memset(msg, 0, 2 * sizeof(*msg));
	for (int i = 0; i < 2; i++) {
		msg[i].msg_hdr.msg_iov = &iov[i];
		msg[i].msg_hdr.msg_iovlen = 1;
	}
}

/* Sends from a file, or from a pipe that holds all the bytes. It may take several calls. */
static long send_from(const struct op *op, int fd, int n)
{
	long done = 0, r = 0;
	int from[2] = { -1, -1 };

	if (op->how == SEND_SENDFILE) {
		from[0] = MUST(memfd_create("fuzz", MFD_CLOEXEC));
		if (n && write(from[0], area->send, n) != n)
			fail("memfd: %s", strerror(errno));
		MUST(lseek(from[0], 0, SEEK_SET));
	} else {
		MUST(pipe(from));
		MUST(fcntl(from[1], F_SETPIPE_SZ, BUF_SIZE));
		if (n && write(from[1], area->send, n) != n)
			fail("pipe: %s", strerror(errno));
	}
	do {
		r = sys_by(op->by, op->how == SEND_SENDFILE ?
			   &SYS(SYS_sendfile, fd, from[0], 0, n - done, 0, 0) :
			   &SYS(SYS_splice, from[0], 0, fd, 0, n - done, 0));
		if (r > 0)
			done += r;
	} while (r > 0 && done < n);
	r = r < 0 ? errno : 0;
	close(from[0]);
	close(from[1]);
	errno = r;
	return done || !r ? done : -1;
}

/* Sends @n bytes of send_area(). */
long call_send(const struct op *op, int fd, int n, int flags)
{
	struct iovec *iov = area->send_iov;
	struct mmsghdr *msg = area->send_msg;
	unsigned char *buf = area->send;
	int how = op->how;
	long r;

	if (flags && (how == SEND_WRITE || how == SEND_WRITEV || how == SEND_SENDFILE ||
		      how == SEND_SPLICE))
		how = SEND_SENDMSG;
	memset(msg, 0, 2 * sizeof(*msg));
	switch (how) {
	case SEND_WRITE:
		return sys_by(op->by, &SYS(SYS_write, fd, buf, n, 0, 0, 0));
	case SEND_WRITEV:
		cut(iov, buf, n);
		return sys_by(op->by, &SYS(SYS_writev, fd, iov, 3, 0, 0, 0));
	case SEND_SENDMSG:
		cut(iov, buf, n);
		msg->msg_hdr.msg_iov = iov;
		msg->msg_hdr.msg_iovlen = 3;
		return sys_by(op->by, &SYS(SYS_sendmsg, fd, msg, flags, 0, 0, 0));
	case SEND_SENDMMSG:
		two_messages(msg, iov, buf, n);
		r = sys_by(op->by, &SYS(SYS_sendmmsg, fd, msg, 2, flags, 0, 0));
		return r < 0 ? r : (long)(msg[0].msg_len + (r > 1 ? msg[1].msg_len : 0));
	case SEND_SENDFILE:
	case SEND_SPLICE:
		return send_from(op, fd, n);
	default:
		return sys_by(op->by, &SYS(SYS_sendto, fd, buf, n, flags, 0, 0));
	}
}

static int pipe_fd[2][2];	/* of each end */

static struct sys recv_sys(const struct op *op, int fd, int n, int flags, int end)
{
	struct mmsghdr *msg = area->recv[end].msg;
	struct iovec *iov = area->recv[end].iov;
	unsigned char *buf = area->recv[end].buf;
	int how = op->how;

	if (flags && (how == RECV_READ || how == RECV_READV || how == RECV_SPLICE))
		how = RECV_RECVMSG;
	if ((flags & MSG_WAITALL) && how == RECV_RECVMMSG)
		how = RECV_RECV;
	memset(buf, UNTOUCHED, n);
	memset(msg, 0, 2 * sizeof(*msg));
	memset(area->recv[end].control, 0, sizeof(area->recv[end].control));
	switch (how) {
	case RECV_READ:
		return SYS(SYS_read, fd, buf, n, 0, 0, 0);
	case RECV_READV:
		cut(iov, buf, n);
		return SYS(SYS_readv, fd, iov, 3, 0, 0, 0);
	case RECV_RECVMSG:
		cut(iov, buf, n);
		msg->msg_hdr.msg_iov = iov;
		msg->msg_hdr.msg_iovlen = 3;
		msg->msg_hdr.msg_control = area->recv[end].control;
		msg->msg_hdr.msg_controllen = sizeof(area->recv[end].control);
		return SYS(SYS_recvmsg, fd, msg, flags, 0, 0, 0);
	case RECV_RECVMMSG:
		two_messages(msg, iov, buf, n);
		return SYS(SYS_recvmmsg, fd, msg, 2, flags | MSG_WAITFORONE, 0, 0);
	case RECV_SPLICE:
		if (!pipe_fd[end][1]) {
			MUST(pipe(pipe_fd[end]));
			MUST(fcntl(pipe_fd[end][1], F_SETPIPE_SZ, MIB));
		}
		return SYS(SYS_splice, fd, 0, pipe_fd[end][1], 0, n, 0);
	default:
		return SYS(SYS_recvfrom, fd, buf, n, flags, 0, 0);
	}
}

/* Turns the buffers that the call filled into one piece. */
static void recv_done(const struct sys *s, int n, int end, struct received *r)
{
	const struct mmsghdr *msg = area->recv[end].msg;
	const int half = n / 2;

	r->buf = area->recv[end].buf;
	r->len = n;
	if (s->nr == SYS_recvmmsg && r->ret > 0) {
		long got = msg[0].msg_len;

		if (r->ret > 1) {
			/* In a correct stream no byte is missing between the two messages. */
			if (msg[0].msg_len < (unsigned int)half)
				say("a second message after a short one");
			got += msg[1].msg_len;
		}
		r->ret = got;
	}
}

/* Takes the bytes that splice(2) has left because it ended at a boundary of its own. */
static void splice_rest(const struct op *op, struct sys *s, int n, int have, int end,
			struct received *r)
{
	while (r->ret > 0 && r->ret < n && r->ret < have) {
		long more;

		s->arg[4] = n - r->ret;
		more = sys_by(op->by, s);
		if (more <= 0)
			break;
		r->ret += more;
	}
	for (long got = 0, m; got < r->ret; got += m) {
		m = read(pipe_fd[end][0], r->buf + got, r->ret - got);
		if (m <= 0)
			fail("the pipe holds %ld bytes of %ld", got, r->ret);
	}
}

static int readable(int fd)
{
	int n = 0;

	ioctl(fd, FIONREAD, &n);
	return n;
}

void call_recv(const struct op *op, int fd, int n, int flags, int end, struct received *r)
{
	struct sys s = recv_sys(op, fd, n, flags, end);
	int have = readable(fd);

	errno = 0;
	r->ret = sys_by(op->by, &s);
	r->err = errno;
	recv_done(&s, n, end, r);
	if (s.nr == SYS_splice)
		splice_rest(op, &s, n, have, end, r);
}

void call_recv_start(struct call *c, const struct op *op, int fd, int n, int flags, int end)
{
	struct sys s = recv_sys(op, fd, n, flags, end);

	sys_start(c, &s);
	call_blocked(c);
}

void call_recv_end(struct call *c, const struct op *op, int n, int end, struct received *r)
{
	struct sys s = { .nr = c->nr };
	int have;

	r->ret = call_end(c);
	r->err = errno;
	recv_done(&s, n, end, r);
	if (s.nr == SYS_splice) {
		have = r->ret > 0 ? r->ret + readable(c->arg[0]) : 0;
		memcpy(s.arg, c->arg, sizeof(s.arg));
		splice_rest(op, &s, n, have, end, r);
	}
}

/* Prints the control messages of recvmsg(2). If the call has @slept, it prints only whether
 * TCP_INQ is above zero.
 */
void say_control(const struct op *op, int end, bool slept)
{
	struct msghdr *m = &area->recv[end].msg->msg_hdr;

	if (op->how != RECV_RECVMSG)
		return;
	say("  msg_flags %x, control %zu", m->msg_flags, m->msg_controllen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		say("  control %d %d: %d", c->cmsg_level, c->cmsg_type,
		    slept ? *(int *)CMSG_DATA(c) > 0 : *(int *)CMSG_DATA(c));
}

int through_a_socket(int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2], got;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	MUST(sendmsg(pair[0], &m, 0));
	/* Only the message holds the file now. */
	close(fd);
	MUST(recvmsg(pair[1], &m, 0));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(got));
	close(pair[0]);
	close(pair[1]);
	return got;
}
