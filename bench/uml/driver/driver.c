// SPDX-License-Identifier: GPL-2.0
/*
 * Two kernel threads that exchange messages over one of several connections, for
 * bench/uml/run. The threads are in the kernel because a system call of a process
 * of User Mode Linux costs more than what is measured.
 *
 * A command is written to the parameter "run", which returns when it is done; its
 * answer is then read from it:
 *
 *	listen ADDR			for what follows
 *	open NAME tcp|unix|smc|ring|socket|spliced	keeps a connection by that name
 *	close NAME			a connection that would hold up the kernel's end: AF_SMC's
 *	open NAME given FD FD		a TCP connection of the caller's
 *	open NAME copying CPU		the same; for these see relay.h
 *	open NAME piping CPU FD FD
 *	rr NAME SIZE CPU CPU POLL MSEC [LOOP]	requests of SIZE bytes, answers of as many
 *	stream NAME SIZE CPU CPU POLL NODELAY MSEC [LOOP]	sends of SIZE bytes, one way
 *		by threads on these CPUs, the sender's first, for MSEC milliseconds;
 *		POLL in microseconds; LOOP is 1 if they are event loops. Answer: COUNT
 *		NANOSECONDS BYTES, where COUNT is transactions or bytes, and BYTES went
 *		by ring or by SO_SPLICE
 *	splice module|kernel		for the next: see ops.h
 *	hook FD				sends splice(2) on the caller's TCP socket FD there
 *	take FD PIPE SINK BUF SIZE BYTES COUNT	what the caller would do by system
 *					calls, done here: see take.h
 *	c2c				Answer: NANOSECONDS, of a cache line's way from
 *					CPU 0 to CPU 1
 */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "ops.h"
#include "relay.h"
#include "take.h"
#include "transport.h"

#define MAX_CONNS	16
#define MAX_SIZE	65536
#define READ_SIZE	65536	/* what a stream's reader asks for */
#define RING_SIZE	65536	/* of the bare ring: what the module's has by default */
#define C2C_NSEC	(5 * NSEC_PER_MSEC)

static struct conn conns[MAX_CONNS];	/* all below: written by one "run" at a time */
static unsigned int nr_conns;
static char answer[128];
static bool splice_by_module;

/* One measurement. The threads' own fields are read after done. */
struct job {
	struct conn *conn;
	bool stream;
	size_t size;
	u64 nsec;		/* how long */
	void *buf[2];

	u64 start;		/* the client's */
	u64 end;		/* the client's, or the stream's reader's */
	u64 count;		/* transactions, or bytes sent; whole once over is set */
	bool over;		/* by the client, before its last message */
	int err[2];
	struct completion done[2];
};

static bool time_is_over(const struct job *j, u64 count)
{
	return !(count & 7) && ktime_get_ns() - j->start >= j->nsec;
}

static int recv_all(struct end *e, char *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = transport_recv(e, buf + done, len - done);

		if (n < 0)
			return n;
		done += n;
	}
	return 0;
}

static int rr_client(struct job *j)
{
	struct end *e = &j->conn->end[0];
	int err;

	j->start = ktime_get_ns();
	do {
		if (time_is_over(j, j->count + 1))
			smp_store_release(&j->over, true);
		err = transport_send(e, j->buf[0], j->size);
		if (!err)
			err = recv_all(e, j->buf[0], j->size);
		j->count++;
	} while (!err && !j->over);
	j->end = ktime_get_ns();
	return err;
}

static int rr_server(struct job *j)
{
	struct end *e = &j->conn->end[1];
	bool over;
	int err;

	do {
		err = recv_all(e, j->buf[1], j->size);
		over = smp_load_acquire(&j->over);	/* before the last answer */
		if (!err)
			err = transport_send(e, j->buf[1], j->size);
	} while (!err && !over);
	return err;
}

static int stream_client(struct job *j)
{
	u64 sends = 0;
	int err;

	j->start = ktime_get_ns();
	do {
		sends++;
		if (time_is_over(j, sends)) {
			j->count = sends * j->size;
			smp_store_release(&j->over, true);
		}
		err = transport_send(&j->conn->end[0], j->buf[0], j->size);
	} while (!err && !j->over);
	return err;
}

static int stream_server(struct job *j)
{
	u64 got = 0;

	while (!smp_load_acquire(&j->over) || got < j->count) {
		ssize_t n = transport_recv(&j->conn->end[1], j->buf[1], READ_SIZE);

		if (n < 0)
			return n;
		got += n;
	}
	j->end = ktime_get_ns();
	return 0;
}

static int client_thread(void *arg)
{
	struct job *j = arg;

	j->err[0] = j->stream ? stream_client(j) : rr_client(j);
	kthread_complete_and_exit(&j->done[0], 0);
}

static int server_thread(void *arg)
{
	struct job *j = arg;

	j->err[1] = j->stream ? stream_server(j) : rr_server(j);
	kthread_complete_and_exit(&j->done[1], 0);
}

/* Runs both on their CPUs until both are done. */
static int run_threads(int (*client)(void *), int (*server)(void *), void *arg,
		       struct completion *done, const unsigned int *cpus)
{
	int (*const fn[2])(void *) = { client, server };
	struct task_struct *task[2];
	int i;

	for (i = 0; i < 2; i++) {
		init_completion(&done[i]);
		task[i] = kthread_create(fn[i], arg, "bench/%d", i);
		if (IS_ERR(task[i])) {
			if (i)
				kthread_stop(task[0]);
			return PTR_ERR(task[i]);
		}
		kthread_bind(task[i], cpus[i]);
	}
	wake_up_process(task[1]);
	wake_up_process(task[0]);
	wait_for_completion(&done[0]);
	wait_for_completion(&done[1]);
	return 0;
}

static struct conn *find(const char *name)
{
	unsigned int i;

	for (i = 0; i < nr_conns; i++)
		if (!strcmp(conns[i].name, name))
			return &conns[i];
	return NULL;
}

/* @cpu is that of a relay's threads. @pipes is for those that splice, or has the sockets that are
 * given.
 */
static int open_conn(const char *name, const char *kind, unsigned int cpu, const int *pipes)
{
	struct conn *c = &conns[nr_conns];
	int err;

	if (nr_conns == MAX_CONNS || find(name))
		return -EEXIST;
	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	memset(c, 0, sizeof(*c));
	if (!strcmp(kind, "tcp"))
		err = transport_open_tcp(c);
	else if (!strcmp(kind, "given"))
		err = transport_open_given(c, pipes);
	else if (!strcmp(kind, "unix"))
		err = transport_open_unix(c);
	else if (!strcmp(kind, "smc"))
		err = transport_open_smc(c);
	else if (!strcmp(kind, "ring"))
		err = transport_open_ring(c, RING_SIZE);
	else if (!strcmp(kind, "socket"))
		err = transport_open_socket(c, RING_SIZE);
	else if (!strcmp(kind, "copying"))
		err = relay_open_copying(c, cpu);
	else if (!strcmp(kind, "piping"))
		err = relay_open_piping(c, cpu, pipes);
	else if (!strcmp(kind, "spliced"))
		err = relay_open_spliced(c);
	else
		return -EINVAL;
	if (!err) {
		strscpy(c->name, name);
		nr_conns++;
	}
	return err;
}

static int close_conn(const char *name)
{
	struct conn *c = find(name);

	if (!c)
		return -ENOENT;
	transport_close(c);
	c->name[0] = '\0';
	return 0;
}

static u64 bytes_by_module(const struct conn *c)
{
	return transport_ring_bytes(c) + relay_spliced_bytes(c);
}

static int measure(struct job *j, const unsigned int *cpus)
{
	u64 bytes = bytes_by_module(j->conn);
	int err;

	j->buf[0] = kzalloc(MAX_SIZE, GFP_KERNEL);
	j->buf[1] = kzalloc(READ_SIZE, GFP_KERNEL);
	err = j->buf[0] && j->buf[1] ? 0 : -ENOMEM;
	if (!err)
		err = run_threads(client_thread, server_thread, j, j->done, cpus);
	if (!err)
		err = j->err[0] ? j->err[0] : j->err[1];
	if (!err)
		snprintf(answer, sizeof(answer), "%llu %llu %llu", j->count,
			 j->end - j->start, bytes_by_module(j->conn) - bytes);
	kfree(j->buf[0]);
	kfree(j->buf[1]);
	return err;
}

/* A cache line that two CPUs write in turn: even is the client's, odd the server's. */
struct ball {
	u32 turn ____cacheline_aligned;
	bool over;		/* by the client, before its last toss */
	u64 tosses;		/* both ways, in nsec; the client's */
	u64 nsec;
	struct completion done[2];
};

/* By time, not by number: a toss takes as long as the host keeps one of the CPUs. */
static int ball_client(void *arg)
{
	struct ball *b = arg;
	u64 start = 0;
	u32 n;

	for (n = 0; !b->over; n += 2) {
		while (smp_load_acquire(&b->turn) != n)
			cpu_relax();
		if (n == 2)	/* both threads are there */
			start = ktime_get_ns();
		if (n > 2 && !(n & 63)) {
			b->tosses = n - 2;
			b->nsec = ktime_get_ns() - start;
			if (b->nsec >= C2C_NSEC)
				WRITE_ONCE(b->over, true);
		}
		smp_store_release(&b->turn, n + 1);
	}
	kthread_complete_and_exit(&b->done[0], 0);
}

static int ball_server(void *arg)
{
	struct ball *b = arg;
	u32 turn;

	do {
		while (!((turn = smp_load_acquire(&b->turn)) & 1))
			cpu_relax();
		smp_store_release(&b->turn, turn + 1);
	} while (!READ_ONCE(b->over));
	kthread_complete_and_exit(&b->done[1], 0);
}

static int measure_c2c(void)
{
	static const unsigned int cpus[] = { 0, 1 };
	static struct ball b;
	int err;

	if (num_online_cpus() < 2)
		return -ENODEV;
	b.turn = 0;
	b.over = false;
	err = run_threads(ball_client, ball_server, &b, b.done, cpus);
	if (!err)
		snprintf(answer, sizeof(answer), "%llu", b.nsec / b.tosses);
	return err;
}

static int take_set(const char *val)
{
	unsigned long buf, count;
	struct take t;

	if (sscanf(val, "take %d %d %d %lu %zu %llu %lu", &t.fd, &t.pipe, &t.sink, &buf, &t.size,
		   &t.bytes, &count) != 7)
		return -EINVAL;
	t.buf = (char __user *)buf;
	t.count = (u64 __user *)count;
	return take(&t);
}

static int run_set(const char *val, const struct kernel_param *kp)
{
	unsigned int poll, nodelay = 1, msec, cpus[2] = {}, fd, loop = 0;
	struct job j = {};
	char name[24], kind[24];
	int pipes[2] = { -1, -1 };

	answer[0] = '\0';
	if (sscanf(val, "listen %23s", name) == 1)
		return transport_listen(name);
	if (sscanf(val, "open %23s given %d %d", name, &pipes[0], &pipes[1]) == 3)
		return open_conn(name, "given", 0, pipes);
	if (sscanf(val, "open %23s %23s %u %d %d", name, kind, &cpus[0], &pipes[0], &pipes[1]) >= 2)
		return open_conn(name, kind, cpus[0], pipes);
	if (sscanf(val, "close %23s", name) == 1)
		return close_conn(name);
	if (sscanf(val, "hook %u", &fd) == 1)
		return ops_hook(fd, splice_by_module);
	if (sscanf(val, "splice %23s", name) == 1) {
		splice_by_module = !strcmp(name, "module");
		return 0;
	}
	if (!strncmp(val, "take ", 5))
		return take_set(val);
	if (!strncmp(val, "c2c", 3))
		return measure_c2c();
	j.stream = sscanf(val, "stream %23s %zu %u %u %u %u %u %u", name, &j.size,
			  &cpus[0], &cpus[1], &poll, &nodelay, &msec, &loop) >= 7;
	if (!j.stream && sscanf(val, "rr %23s %zu %u %u %u %u %u", name, &j.size,
				&cpus[0], &cpus[1], &poll, &msec, &loop) < 6)
		return -EINVAL;
	j.conn = find(name);
	if (!j.conn || !j.size || j.size > MAX_SIZE ||
	    cpus[0] >= nr_cpu_ids || !cpu_online(cpus[0]) ||
	    cpus[1] >= nr_cpu_ids || !cpu_online(cpus[1]))
		return -EINVAL;
	j.nsec = (u64)msec * NSEC_PER_MSEC;
	return transport_set(j.conn, poll, nodelay, loop) ?: measure(&j, cpus);
}

static int run_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%s\n", answer);
}

static const struct kernel_param_ops run_ops = {
	.set = run_set,
	.get = run_get,
};
module_param_cb(run, &run_ops, NULL, 0600);
MODULE_PARM_DESC(run, "A command, and its answer; see driver.c");

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The driver of bench/uml/run");
