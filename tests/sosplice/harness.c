// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <linux/userfaultfd.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "sosplice.h"

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("# ");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	fflush(stdout);
	_exit(1);
}

long ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sleep_ms(long n)
{
	usleep(n * 1000);
}

void connect_pair(int family, int *client, int *server)
{
	struct sockaddr_storage addr = { .ss_family = family };
	socklen_t len = sizeof(addr);
	int l = socket(family, SOCK_STREAM, 0), one = 1;

	if (family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
	check(l >= 0 && !bind(l, (void *)&addr, sizeof(addr)) && !listen(l, 1),
	      "%s", strerror(errno));
	check(!getsockname(l, (void *)&addr, &len), "%s", strerror(errno));
	*client = socket(family, SOCK_STREAM, 0);
	check(!connect(*client, (void *)&addr, len), "%s", strerror(errno));
	*server = accept(l, NULL, NULL);
	check(*server >= 0, "%s", strerror(errno));
	close(l);
	setsockopt(*client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(*server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void other_namespace(void)
{
	check(!unshare(CLONE_NEWNET), "%s", strerror(errno));
	check(!system("ip link set lo up"), "no loopback");
}

void relay_open(struct relay *r, int client_family, int server_family)
{
	connect_pair(client_family, &r->c, &r->p);
	connect_pair(server_family, &r->q, &r->s);
}

void splice_fds(int from, int to, int64_t max, long idle_ms)
{
	struct splice s = { .sp_fd = to, .sp_max = max };

	s.sp_idle.tv_sec = idle_ms / 1000;
	s.sp_idle.tv_usec = idle_ms % 1000 * 1000;
	check(!socksplice_splice(from, &s), "%s", strerror(errno));
}

void splice_on(struct relay *r)
{
	splice_fds(r->p, r->q, 0, 0);
}

static uint8_t at(uint64_t pos)
{
	return pos * 2654435761u >> 13 ^ pos;
}

void stream_write(int fd, uint64_t pos, size_t len)
{
	static __thread uint8_t buf[65536];

	while (len) {
		size_t n = len < sizeof(buf) ? len : sizeof(buf), i, done = 0;

		for (i = 0; i < n; i++)
			buf[i] = at(pos + i);
		while (done < n) {
			ssize_t got = send(fd, buf + done, n - done, MSG_NOSIGNAL);

			if (got < 0 && errno == EAGAIN) {
				struct pollfd p = { .fd = fd, .events = POLLOUT };

				poll(&p, 1, -1);
				continue;
			}
			check(got > 0, "at %llu: %s", (unsigned long long)pos, strerror(errno));
			done += got;
		}
		pos += n;
		len -= n;
	}
}

void stream_read(int fd, uint64_t pos, size_t len)
{
	static __thread uint8_t buf[65536];

	while (len) {
		ssize_t n = read(fd, buf, len < sizeof(buf) ? len : sizeof(buf)), i;

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			poll(&p, 1, -1);
			continue;
		}
		check(n > 0, "%zu bytes to go at %llu: %s", len, (unsigned long long)pos,
		      n ? strerror(errno) : "end of file");
		for (i = 0; i < n; i++)
			check(buf[i] == at(pos + i), "byte %llu is wrong",
			      (unsigned long long)(pos + i));
		pos += n;
		len -= n;
	}
}

size_t stream_take(int fd, uint64_t pos)
{
	uint8_t buf[4096];
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT), i;

	check(n > 0 || (n < 0 && errno == EAGAIN), "at %llu: %s", (unsigned long long)pos,
	      n ? strerror(errno) : "end of file");
	for (i = 0; i < n; i++)
		check(buf[i] == at(pos + i), "byte %llu is wrong", (unsigned long long)(pos + i));
	return n > 0 ? n : 0;
}

uint64_t counter(const char *name)
{
	char line[128], key[64];
	unsigned long long value;
	FILE *f = popen("socksplice stats show -a", "r");

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %llu", key, &value) == 2 && !strcmp(key, name)) {
			pclose(f);
			return value;
		}
	die("the module has no counter %s", name);
}

uint64_t wait_counter(const char *name, uint64_t least)
{
	const long start = ms();
	uint64_t value;

	while ((value = counter(name)) < least)
		check(ms() - start < 20000, "%s is %llu, not %llu", name, (unsigned long long)value,
		      (unsigned long long)least);
	return value;
}

int so_error(int fd)
{
	socklen_t len = sizeof(int);
	int err;

	check(!getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len), "%s", strerror(errno));
	return err;
}

short poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP };

	poll(&p, 1, 0);
	return p.revents;
}

void wait_moved(int fd, int64_t bytes)
{
	long start = ms();

	while (socksplice_moved(fd) != bytes) {
		check(ms() - start < 20000, "moved %lld, not %lld",
		      (long long)socksplice_moved(fd), (long long)bytes);
		sleep_ms(2);
	}
}

void wait_error(int fd, int err)
{
	struct pollfd p = { .fd = fd };
	int got;

	check(poll(&p, 1, 20000) == 1 && p.revents & POLLERR, "no error: %x", p.revents);
	got = so_error(fd);
	check(got == err, "%s, not %s", strerror(got), strerror(err));
	check(!so_error(fd), "told twice");
}

size_t stream_give(int fd, uint64_t pos)
{
	uint8_t buf[4096];
	ssize_t n;
	size_t i;

	for (i = 0; i < sizeof(buf); i++)
		buf[i] = at(pos + i);
	n = send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
	check(n > 0 || (n < 0 && errno == EAGAIN), "%s", strerror(errno));
	return n > 0 ? n : 0;
}

uint64_t fill(int fd, uint64_t pos)
{
	uint64_t done = 0;
	int vain = 0;

	while (vain < 30) {
		size_t n = stream_give(fd, pos + done);

		done += n;
		vain = n ? 0 : vain + 1;
		if (!n)
			sleep_ms(10);
	}
	return done;
}

void set_buf(int fd, int snd, int rcv)
{
	if (snd)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &snd, sizeof(snd));
	if (rcv)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcv, sizeof(rcv));
}

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text),
	      "%s", strerror(errno));
	close(fd);
}

void set_switch(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/socksplice/parameters/%s", name);
	write_file(path, value);
}

static void *pumping(void *arg)
{
	static const char zeros[PUMP_BYTES];
	size_t left = sizeof(zeros);
	int fd = *(int *)arg, p[2];
	ssize_t n;

	check(!pipe(p), "%s", strerror(errno));
	check(write(p[1], zeros, left) == (ssize_t)left, "%s", strerror(errno));
	while (left) {
		n = splice(p[0], NULL, fd, NULL, left, 0);
		check(n > 0, "%s", strerror(errno));
		left -= n;
	}
	return NULL;
}

uint64_t pump_start(struct relay *r)
{
	static int fd;
	uint64_t filled;
	pthread_t t;

	set_buf(r->p, 16384, 0);
	set_buf(r->c, 0, 16384);
	filled = fill(r->p, 0);
	fd = r->p;
	check(!pthread_create(&t, NULL, pumping, &fd), "no thread");
	sleep_ms(200);		/* if it is not asleep yet, it has less to withstand */
	return filled;
}

void hold_page(struct held_page *h)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	const size_t size = sysconf(_SC_PAGESIZE);

	h->fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	h->page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(h->page != MAP_FAILED, "%s", strerror(errno));
	reg.range.start = (unsigned long)h->page;
	reg.range.len = size;
	check(h->fd >= 0 && !ioctl(h->fd, UFFDIO_API, &api) &&
	      !ioctl(h->fd, UFFDIO_REGISTER, &reg), "%s", strerror(errno));
}

void wait_for_fault(struct held_page *h)
{
	struct uffd_msg msg;

	check(read(h->fd, &msg, sizeof(msg)) == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT,
	      "%s", strerror(errno));
}

void end_fault(struct held_page *h, int first)
{
	static int content[16384] __attribute__((aligned(65536)));
	struct uffdio_copy copy = { .src = (unsigned long)content, .dst = (unsigned long)h->page,
				    .len = sysconf(_SC_PAGESIZE) };

	content[0] = first;
	check(!ioctl(h->fd, UFFDIO_COPY, &copy), "%s", strerror(errno));
}

bool wait_asleep(int tid, long nr)
{
	char path[64], line[64] = "", want[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	snprintf(want, sizeof(want), "%ld 0x", nr);
	while (strncmp(line, want, strlen(want))) {
		sched_yield();
		f = fopen(path, "r");
		if (!f || !fgets(line, sizeof(line), f))
			return false;
		fclose(f);
	}
	return true;
}

#ifdef __x86_64__
long call32(long nr, int fd, int level, int name, void *arg, unsigned long len)
{
	long ret;

	asm volatile("int $0x80" : "=a"(ret)
		     : "0"(nr), "b"((long)fd), "c"((long)level), "d"((long)name), "S"(arg), "D"(len)
		     : "memory", "r8", "r9", "r10", "r11");
	return (int)ret;
}

bool has_32_bit_calls(void)
{
	int status;
	pid_t pid;

	/* The kernel may not even have the code, and its log is to be free of faults. */
	if (access("/proc/sys/abi/vsyscall32", F_OK))
		return false;
	pid = fork();
	if (!pid)
		_exit(call32(20, 0, 0, 0, NULL, 0) != getpid());
	waitpid(pid, &status, 0);
	return !status;
}
#else
long call32(long, int, int, int, void *, unsigned long)
{
	return -ENOSYS;
}

bool has_32_bit_calls(void)
{
	return false;
}
#endif
