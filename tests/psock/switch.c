// SPDX-License-Identifier: GPL-2.0
/* The switches, the counters, the tracepoint, and little memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"
#include "harness.h"

/* splice(2) gives pages by reference if that is safe. It copies if not, or if switched off. */
void case_counters(void)
{
	static const enum kind kinds[] = { KIND_PASS, KIND_REDIR, KIND_MSG, KIND_HASH };

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const size_t len = amount(4 << 20);
		uint64_t ref = stat_get("psock_splice_ref_bytes");
		uint64_t copy = stat_get("psock_splice_copy_bytes");
		uint64_t calls = stat_get("psock_splice_calls");

		transfer(kinds[i], AF_INET, len, 65536, 65536, 0);
		ref = stat_get("psock_splice_ref_bytes") - ref;
		copy = stat_get("psock_splice_copy_bytes") - copy;
		check(ref >= len * 9 / 10 && ref + copy == len, "%s: %llu by reference, %llu by copy",
		      kind_names[kinds[i]], (unsigned long long)ref, (unsigned long long)copy);
		check(stat_get("psock_splice_calls") - calls >= len / 65536, "calls");

		write_file(PARAM "splice_zerocopy", "0");
		ref = stat_get("psock_splice_ref_bytes");
		copy = stat_get("psock_splice_copy_bytes");
		transfer(kinds[i], AF_INET, len, 65536, 65536, 0);
		check(stat_get("psock_splice_ref_bytes") == ref, "by reference though switched off");
		check(stat_get("psock_splice_copy_bytes") - copy == len, "by copy");
		write_file(PARAM "splice_zerocopy", "1");
	}
}

/* Small and large memory of kmalloc(): its owner may write to it again, or its pages have no
 * references to take. So splice(2) copies all of it. The copy stays unchanged after the socket
 * is gone.
 */
void case_kmalloc_is_copied(void)
{
	static const size_t lens[] = { 100, 1000, 20000 };

	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint64_t ref = stat_get("psock_splice_ref_bytes");
		uint64_t copy = stat_get("psock_splice_copy_bytes");
		struct flow f;
		int p[2];

		flow_open(&f, KIND_PULLED, AF_INET);
		set_timeo(f.rd, 10000);
		make_pipe(p, 1 << 20);
		send_stream(f.wr, 0, lens[i]);
		for (size_t got = 0; got < lens[i];) {
			ssize_t n = splice(f.rd, NULL, p[1], NULL, lens[i] - got, 0);

			check(n > 0, "splice at %zu: %s", got, n ? strerror(errno) : "end of file");
			got += n;
		}
		ref = stat_get("psock_splice_ref_bytes") - ref;
		copy = stat_get("psock_splice_copy_bytes") - copy;
		check(!ref && copy == lens[i], "of %zu bytes %llu by reference, %llu by copy", lens[i],
		      (unsigned long long)ref, (unsigned long long)copy);
		flow_close(&f);
		/* The next user of that memory overwrites it. */
		for (int round = 0; round < 20; round++) {
			flow_open(&f, KIND_PULLED, AF_INET);
			send_stream(f.wr, BACK, 20000);
			splice_stream(f.rd, BACK, 20000, 65536, 0);
			flow_close(&f);
		}
		drain_pipe(p[0], 0, lens[i]);
		close(p[0]);
		close(p[1]);
	}
}

/* Switched off, the kernel behaves as without the module, also for a call that already sleeps.
 * Then switched on again.
 */
void case_switch(void)
{
	uint64_t calls;
	struct sleeper s;
	struct flow f;
	int p[2];
	ssize_t n;

	flow_open(&f, KIND_PASS, AF_INET);
	make_pipe(p, 0);
	sleeper_start(&s, f.rd, p[1]);
	write_file(PARAM "splice", "0");
	wait_asleep(s.tid);
	calls = stat_get("psock_splice_calls");
	/* The kernel's own splice(2) does not see these bytes: it sleeps on until the FIN. */
	send_stream(f.wr, 0, 1000);
	wait_asleep(s.tid);
	shutdown(f.wr, SHUT_WR);
	pthread_join(s.thread, NULL);
	check(s.ret == 0, "%zd %s", s.ret, strerror(s.err));
	set_nonblock(f.rd);
	n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
	check(n <= 0, "the kernel's own splice moved %zd bytes", n);
	check(stat_get("psock_splice_calls") == calls, "calls while off");

	write_file(PARAM "splice", "1");
	n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
	check(n == 1000, "%zd %s", n, strerror(errno));
	drain_pipe(p[0], 0, n);
}

void case_ftrace_disabled(void)
{
	/* The kernel refuses with EBUSY, since the hook is permanent. */
	int ret = system("sysctl -q kernel.ftrace_enabled=0 2>/dev/null");

	transfer(KIND_PASS, AF_INET, 1000000, 65536, 65536, 0);
	if (!ret)
		check(!system("sysctl -q kernel.ftrace_enabled=1"), "sysctl");
	transfer(KIND_PASS, AF_INET, 1000000, 65536, 65536, 0);
}

/* The tracepoint, through tracefs. */
void case_tracepoint(void)
{
	char line[256];
	bool found = false;
	FILE *trace;

	if (access("/sys/kernel/tracing/trace", R_OK))
		check(!system("mount -t tracefs tracefs /sys/kernel/tracing"), "tracefs");
	write_file("/sys/kernel/tracing/trace", "\n");
	write_file("/sys/kernel/tracing/events/socksplice/psock_splice/enable", "1");
	transfer(KIND_MSG, AF_INET, 777, 777, 65536, 0);
	write_file("/sys/kernel/tracing/events/socksplice/psock_splice/enable", "0");
	trace = fopen("/sys/kernel/tracing/trace", "r");
	check(trace, "%s", strerror(errno));
	while (fgets(line, sizeof(line), trace))
		found |= strstr(line, "psock_splice: cookie=") && strstr(line, " ref=777 copy=0 ret=777");
	check(found, "no such event");
}

/* Little memory for TCP: the stream may be slow, but is whole. Usage is always above the pressure
 * mark, and far below the limit at which TCP drops connections.
 */
void case_memory_pressure(void)
{
	char before[64] = "";
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_mem", "r");

	check(f && fgets(before, sizeof(before), f), "tcp_mem");
	fclose(f);
	write_file("/proc/sys/net/ipv4/tcp_mem", "8 16 8192");
	for (enum kind k = KIND_PASS; k <= KIND_HASH; k++)
		transfer(k, AF_INET, amount(4 << 20), 65536, 65536, 0);
	transfer(KIND_MSG, AF_INET, amount(4 << 20), 65536, 65536, 0);
	write_file("/proc/sys/net/ipv4/tcp_mem", before);
}

/* The behaviour of a plain kernel. Run without the module, it shows the fault that the module
 * mends.
 */
void case_stock_loses(void)
{
	struct flow f;
	int p[2];
	ssize_t n;

	flow_open(&f, KIND_PASS, AF_INET);
	make_pipe(p, 0);
	set_nonblock(f.rd);
	send_stream(f.wr, 0, 1000);
	wait_readable(f.rd);
	n = splice(f.rd, NULL, p[1], NULL, 65536, 0);
	check(n == -1 && errno == EAGAIN, "%zd", n);
	shutdown(f.wr, SHUT_WR);
	while ((n = splice(f.rd, NULL, p[1], NULL, 65536, 0)) == -1 && errno == EAGAIN)
		sched_yield();
	check(n == 0, "%zd", n);
}
