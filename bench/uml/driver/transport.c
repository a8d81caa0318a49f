// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/in.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/poll.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/un.h>
#include <linux/wait.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "pair/end.h"
#include "transport.h"

#define SMCPROTO_SMC	0	/* AF_SMC over IPv4 */
#define SMC_PROBE	16384	/* bytes of a message that shows which way it goes */

static struct socket *listener, *smc_listener;
static struct sockaddr_in listens_at, smc_listens_at;

static int listen_on(struct socket **sock, int family, int protocol, struct sockaddr_in *at)
{
	int err;

	/* An application's, not the kernel's own: those are never paired. */
	err = sock_create(family, SOCK_STREAM, protocol, sock);
	if (err)
		return err;
	err = kernel_bind(*sock, (struct sockaddr_unsized *)at, sizeof(*at));
	if (!err)
		err = kernel_listen(*sock, 8);
	if (!err)
		err = kernel_getsockname(*sock, (struct sockaddr *)at);
	return min(err, 0);
}

static int connect_to(struct conn *c, struct socket *to, int family, int protocol,
		      struct sockaddr_in *at)
{
	int err;

	if (!to)
		return -ENOTCONN;
	err = sock_create(family, SOCK_STREAM, protocol, &c->end[0].sock);
	if (err)
		return err;
	err = kernel_connect(c->end[0].sock, (struct sockaddr_unsized *)at, sizeof(*at), 0);
	if (!err)
		err = kernel_accept(to, &c->end[1].sock, 0);
	return err;
}

int transport_listen(const char *addr)
{
	if (listener)
		sock_release(listener);
	listener = NULL;
	listens_at = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr.s_addr = in_aton(addr),
	};
	return listen_on(&listener, AF_INET, IPPROTO_TCP, &listens_at);
}

int transport_open_tcp(struct conn *c)
{
	c->is_tcp = true;
	return connect_to(c, listener, AF_INET, IPPROTO_TCP, &listens_at);
}

int transport_open_given(struct conn *c, const int *fds)
{
	int i, err = 0;

	for (i = 0; i < 2 && !err; i++) {
		c->end[i].sock = sockfd_lookup(fds[i], &err);	/* kept, as the connection is */
		if (!err && !sk_is_tcp(c->end[i].sock->sk))
			err = -EINVAL;
	}
	c->is_tcp = !err;
	return err;
}

static u64 loopback_bytes(void)
{
	struct rtnl_link_stats64 stats;

	dev_get_stats(init_net.loopback_dev, &stats);
	return stats.rx_bytes;
}

/* A connection that has not agreed on a device goes by TCP, and nothing says so. */
static int smc_avoids_tcp(struct conn *c)
{
	void *buf = kzalloc(SMC_PROBE, GFP_KERNEL);
	u64 before = loopback_bytes();
	size_t done = 0;
	ssize_t n;
	int err;

	if (!buf)
		return -ENOMEM;
	err = transport_send(&c->end[0], buf, SMC_PROBE);
	while (!err && done < SMC_PROBE) {
		n = transport_recv(&c->end[1], buf, SMC_PROBE - done);
		if (n < 0)
			err = n;
		else
			done += n;
	}
	kfree(buf);
	if (!err && loopback_bytes() - before >= SMC_PROBE)
		err = -EPROTO;
	return err;
}

int transport_open_smc(struct conn *c)
{
	int err = 0;

	if (!smc_listener) {
		smc_listens_at = (struct sockaddr_in){
			.sin_family = AF_INET,
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		};
		err = listen_on(&smc_listener, AF_SMC, SMCPROTO_SMC, &smc_listens_at);
	}
	if (!err)
		err = connect_to(c, smc_listener, AF_SMC, SMCPROTO_SMC, &smc_listens_at);
	return err ?: smc_avoids_tcp(c);
}

void transport_close(struct conn *c)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (c->end[i].sock)
			sock_release(c->end[i].sock);
		c->end[i].sock = NULL;
	}
}

int transport_open_unix(struct conn *c)
{
	int err;

	err = sock_create(AF_UNIX, SOCK_STREAM, 0, &c->end[0].sock);
	if (!err)
		err = sock_create(AF_UNIX, SOCK_STREAM, 0, &c->end[1].sock);
	if (!err)
		err = c->end[0].sock->ops->socketpair(c->end[0].sock, c->end[1].sock);
	return err;
}

static struct bare_ring *bare_new(u32 size)
{
	struct bare_ring *b = kzalloc(sizeof(*b), GFP_KERNEL);
	u32 i, n = size / PAGE_SIZE;
	void **pages;

	if (!b)
		return NULL;
	pages = kcalloc(n, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;	/* the boot ends with the bench: nothing is given back */
	for (i = 0; i < n; i++) {
		pages[i] = (void *)__get_free_page(GFP_KERNEL);
		if (!pages[i])
			return NULL;
	}
	ring_init(&b->ring, size);
	ring_set_pages(&b->ring, pages, size, size);
	init_waitqueue_head(&b->readers);
	init_waitqueue_head(&b->writers);
	return b;
}

int transport_open_ring(struct conn *c, u32 size)
{
	struct bare_ring *there = bare_new(size), *back = bare_new(size);

	if (!there || !back)
		return -ENOMEM;
	c->end[0].out = there;
	c->end[0].in = back;
	c->end[1].out = back;
	c->end[1].in = there;
	return 0;
}

/* The same behind a socket that is nothing else. */
struct ring_socket {
	struct socket sock;
	struct end *end;
};

static int ring_sendmsg(struct socket *sock, struct msghdr *msg, size_t len);
static int ring_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags);

static const struct proto_ops ring_ops = {
	.family = PF_UNSPEC,
	.owner = THIS_MODULE,
	.sendmsg = ring_sendmsg,
	.recvmsg = ring_recvmsg,
};

int transport_open_socket(struct conn *c, u32 size)
{
	int i, err = transport_open_ring(c, size);

	for (i = 0; i < 2 && !err; i++) {
		struct ring_socket *s = kzalloc(sizeof(*s), GFP_KERNEL);

		if (!s)
			return -ENOMEM;
		s->sock.ops = &ring_ops;
		s->end = &c->end[i];
		c->end[i].sock = &s->sock;
	}
	return err;
}

int transport_set(struct conn *c, unsigned int poll_usec, bool nodelay, bool event_loop)
{
	int i, err = 0, poll = poll_usec, on = nodelay;

	for (i = 0; i < 2 && !err; i++) {
		struct socket *sock = c->end[i].sock;

		if (event_loop && (!sock || !sock->ops->poll))
			return -EINVAL;
		c->end[i].poll_usec = poll_usec;
		c->end[i].event_loop = event_loop;
		if (!c->is_tcp)
			continue;
		err = sock_setsockopt(sock, SOL_SOCKET, SO_BUSY_POLL,
				      KERNEL_SOCKPTR(&poll), sizeof(poll));
		if (!err)
			err = sock->ops->setsockopt(sock, SOL_TCP, TCP_NODELAY,
						    KERNEL_SOCKPTR(&on), sizeof(on));
	}
	return err;
}

/* From @buf, or from @iter if there is one. */
static void bare_send(struct bare_ring *b, char *buf, struct iov_iter *iter, u32 len)
{
	while (len) {
		u32 n, done = 0;

		ring_rewind(&b->ring);
		n = min(len, ring_space(&b->ring, len));
		if (!n) {
			wait_event_interruptible(b->writers,
						 ring_len(&b->ring) <= b->ring.size / 2);
			continue;
		}
		while (done < n) {
			u32 seg;
			void *p = ring_write_seg(&b->ring, done, &seg);

			seg = min(seg, n - done);
			if (iter)
				WARN_ON_ONCE(copy_from_iter(p, seg, iter) < seg);
			else
				memcpy(p, buf + done, seg);
			done += seg;
		}
		ring_publish(&b->ring, n);
		if (wq_has_sleeper(&b->readers))
			wake_up_interruptible(&b->readers);
		buf += n;
		len -= n;
	}
}

/* As the module does for SO_BUSY_POLL. */
static bool bare_spin(struct bare_ring *b, unsigned int usec)
{
	u64 end;

	if (!usec)
		return false;
	end = local_clock() + usec * NSEC_PER_USEC;
	do {
		if (ring_len(&b->ring))
			return true;
		cpu_relax();
	} while (single_task_running() && !need_resched() && local_clock() < end);
	return false;
}

static ssize_t bare_recv(struct bare_ring *b, char *buf, struct iov_iter *iter, u32 len,
			 unsigned int poll_usec)
{
	u32 n, done = 0;

	while (!(n = min(len, ring_used(&b->ring, len)))) {
		if (!bare_spin(b, poll_usec))
			wait_event_interruptible(b->readers, ring_len(&b->ring));
	}
	while (done < n) {
		u32 seg;
		void *p = ring_read_seg(&b->ring, done, &seg);

		seg = min(seg, n - done);
		if (iter)
			WARN_ON_ONCE(copy_to_iter(p, seg, iter) < seg);
		else
			memcpy(buf + done, p, seg);
		done += seg;
	}
	ring_consume(&b->ring, n);
	if (wq_has_sleeper(&b->writers) && ring_len(&b->ring) <= b->ring.size / 2)
		wake_up_interruptible(&b->writers);
	return n;
}

static int ring_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	const struct end *e = container_of(sock, struct ring_socket, sock)->end;

	bare_send(e->out, NULL, &msg->msg_iter, len);
	return len;
}

static int ring_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags)
{
	const struct end *e = container_of(sock, struct ring_socket, sock)->end;

	return bare_recv(e->in, NULL, &msg->msg_iter, len, e->poll_usec);
}

/* What epoll_wait(2) would sleep for. */
static void wait_for(struct socket *sock, __poll_t events)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	events |= EPOLLERR | EPOLLHUP;
	add_wait_queue(sk_sleep(sock->sk), &wait);
	/* In the queue before the look, as sock_poll_wait() has it, which does nothing here
	 * without a table: pairs with the barrier in skwq_has_sleeper().
	 */
	smp_mb();
	while (!(sock->ops->poll(NULL, sock, NULL) & events))
		wait_woken(&wait, TASK_INTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT);
	remove_wait_queue(sk_sleep(sock->sk), &wait);
}

int transport_send(struct end *e, void *buf, size_t len)
{
	struct msghdr msg = { .msg_flags = MSG_NOSIGNAL | (e->event_loop ? MSG_DONTWAIT : 0) };
	size_t done = 0;

	if (!e->sock) {
		bare_send(e->out, buf, NULL, len);
		return 0;
	}
	while (done < len) {
		struct kvec vec = { .iov_base = buf + done, .iov_len = len - done };
		int n = kernel_sendmsg(e->sock, &msg, &vec, 1, vec.iov_len);

		if (n == -EAGAIN && e->event_loop) {
			wait_for(e->sock, EPOLLOUT);
			continue;
		}
		if (n <= 0)
			return n ? n : -EPIPE;
		done += n;
	}
	return 0;
}

ssize_t transport_recv(struct end *e, void *buf, size_t len)
{
	struct kvec vec = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {};
	int n;

	if (!e->sock)
		return bare_recv(e->in, buf, NULL, len, e->poll_usec);
	do {
		if (e->event_loop)
			wait_for(e->sock, EPOLLIN | EPOLLRDHUP);
		n = kernel_recvmsg(e->sock, &msg, &vec, 1, len, e->event_loop ? MSG_DONTWAIT : 0);
	} while (n == -EAGAIN && e->event_loop);
	return n ? n : -EPIPE;
}

const void *transport_ulp(const struct sock *sk, const char *name)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);

	if (!icsk->icsk_ulp_ops || strcmp(icsk->icsk_ulp_ops->name, name))
		return NULL;
	return (__force void *)rcu_access_pointer(icsk->icsk_ulp_data);
}

u64 transport_ring_bytes(const struct conn *c)
{
	u64 bytes = 0;
	int i;

	if (!c->is_tcp)
		return 0;
	for (i = 0; i < 2; i++) {
		struct sock *sk = c->end[i].sock->sk;
		const struct pair_end *chan;

		lock_sock(sk);
		chan = transport_ulp(sk, "socksplice");
		if (chan)
			bytes += chan->ring_bytes;
		release_sock(sk);
	}
	return bytes;
}
