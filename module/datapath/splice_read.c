// SPDX-License-Identifier: GPL-2.0
#include <linux/net.h>
#include <linux/pipe_fs_i.h>
#include <linux/splice.h>
#include <net/tcp.h>

#include "core/hook.h"
#include "datapath/rcvlowat.h"
#include "datapath/rx.h"
#include "datapath/splice_read.h"
#include "pair/end.h"
#include "pair/look.h"
#include "pair/pages.h"

bool sks_pair_owns(struct sock *sk)
{
	const struct pair_end *end;
	bool owns;

	rcu_read_lock();
	end = sks_end_get_rcu(sk);
	owns = end && end_is_live(end);
	rcu_read_unlock();
	return owns;
}

bool sks_pair_splices(struct sock *sk)
{
	struct pair_end *end;
	bool splices;

	rcu_read_lock();
	end = sks_end_get_rcu(sk);
	if (end && !end_is_live(end) && !test_bit(END_RX_EARLY, &end->flags)) {
		set_bit(END_RX_EARLY, &end->flags);
		/* The bit before a second look at the peer: pairs with the barrier in
		 * sks_rx_mark_ready().
		 */
		smp_mb__after_atomic();
	}
	splices = end && end_is_live(end);
	rcu_read_unlock();
	return splices;
}

/* One page of ring bytes into the pipe; the ring gives them up only once the
 * pipe has them. The socket is locked.
 */
static ssize_t ring_to_pipe(struct sock *sk, struct pair_end *end, struct pipe_inode_info *pipe,
			    size_t len)
{
	struct ring *r = &sks_end_peer(end)->ring;
	u32 want = min_t(size_t, len, PAGE_SIZE), n, done = 0;
	struct pipe_buffer buf = { .ops = &nosteal_pipe_buf_ops };
	ssize_t ret;

	n = min(want, ring_used(r, want));
	/* TCP would need no page here: its data have pages already. So the first try does not
	 * invoke the OOM killer of a cgroup that is full. The second is not charged: a process that
	 * may hold a pipe may hold what fits into one.
	 */
	buf.page = alloc_page(GFP_USER | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
	if (!buf.page)
		buf.page = alloc_page(GFP_USER);
	if (!buf.page)
		return -ENOMEM;
	while (done < n) {
		u32 seg;
		void *p = ring_read_seg(r, done, &seg);

		seg = min(seg, n - done);
		memcpy_to_page(buf.page, done, p, seg);
		done += seg;
	}
	buf.len = n;
	ret = add_to_pipe(pipe, &buf);	/* releases the page if it fails */
	if (ret < 0)
		return ret;
	sks_rx_consume(sk, end, n);
	return n;
}

struct to_pipe {
	struct sock *sk;
	struct pipe_inode_info *pipe;
	unsigned int flags;
};

static int tcp_actor(read_descriptor_t *desc, struct sk_buff *skb, unsigned int offset, size_t len)
{
	const struct to_pipe *to = desc->arg.data;
	int n = skb_splice_bits(skb, to->sk, offset, to->pipe, min(len, desc->count), to->flags);

	if (n > 0)
		desc->count -= n;
	return n;
}

/* What tcp_splice_read() does between two looks, but for at most @len bytes and with the lock
 * held. TCP's function itself would sleep if another thread, in TCP's own functions, came
 * first. Unlike recv(2), splice(2) never goes past the urgent mark: returns 0 there.
 */
static ssize_t tcp_to_pipe(struct sock *sk, struct pair_end *end, struct pipe_inode_info *pipe,
			   size_t len, unsigned int flags)
{
	struct pair_end *peer = sks_end_peer(end);
	struct to_pipe to = { sk, pipe, flags };
	read_descriptor_t desc = { .arg.data = &to, .count = len };
	int n = tcp_read_sock(sk, &desc, tcp_actor);

	if (n > 0)
		WRITE_ONCE(peer->tcp_taken, peer->tcp_taken + n);
	return n;
}

/* Waits for bytes. Returns 1 when there may be some, or else what a call returns that has spliced
 * nothing. Drops the lock: *@end is the socket's live end afterwards, or NULL.
 */
static ssize_t wait_for_bytes(struct sock *sk, struct pair_end **end, long *timeo, int disconnects)
{
	int ret = sks_rx_nothing_left(sk, *timeo);

	if (ret <= 0)
		return ret;
	ret = sks_rx_wait(sk, *end, timeo, SOCKSPLICE_RX_MARK);
	if (ret < 0)
		return ret;
	*end = sks_rx_turn_wait(sk);
	if (sk->sk_disconnects != disconnects)
		return -EPIPE;
	/* Before a look at what is there, as in tcp_splice_read(). */
	if (signal_pending(current))
		return sock_intr_errno(*timeo);
	return 1;
}

ssize_t sks_pair_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			     size_t len, unsigned int flags)
{
	struct sock *sk = sock->sk;
	struct pair_end *end;
	ssize_t spliced = 0, n = 0;
	struct rx_readable l;
	bool asleep = false;
	int disconnects;
	bool not_ours;
	long timeo;

	if (unlikely(*ppos))
		return -ESPIPE;

	lock_sock(sk);
	timeo = sock_rcvtimeo(sk, sock->file->f_flags & O_NONBLOCK);
	end = sks_rx_turn_wait(sk);
	disconnects = sk->sk_disconnects;
	if (end) {
		sks_pages_charge(sk, end);
		sks_rx_mark_ready(sk, end);
	}
	while (len && end) {
		rx_readable(sk, end, &l);
		/* Any byte is enough, but TCP does not wake a sleeping reader for less than the
		 * mark (tcp_data_ready()).
		 */
		if (asleep && !sks_rx_has_more(sk, end, SOCKSPLICE_RX_MARK))
			l = (struct rx_readable){};
		else
			asleep = false;
		if (l.tcp) {
			n = tcp_to_pipe(sk, end, pipe, min_t(size_t, len, l.tcp), flags);
			if (!n && !spliced)	/* at the mark, where TCP does not sleep */
				n = min_t(ssize_t, sks_rx_nothing_left_at_mark(sk, timeo), 0);
		} else if (l.ring) {
			n = ring_to_pipe(sk, end, pipe, len);
		} else {
			if (spliced)
				break;
			n = wait_for_bytes(sk, &end, &timeo, disconnects);
			if (n <= 0)
				break;
			asleep = timeo;
			continue;
		}
		if (n <= 0)
			break;
		spliced += n;
		len -= n;
		if (!timeo && !l.ring)
			break;
	}
	not_ours = !end && len && sk->sk_disconnects == disconnects;
	release_sock(sk);

	if (spliced)
		return spliced;
	return not_ours ? sks_hook_pass(sock, ppos, pipe, len, flags) : n;
}

static const struct hook_client client = {
	.wants_splice	= sks_pair_splices,
	.splice_read	= sks_pair_splice_read,
	.attached	= true,
	.wants_rcvlowat	= sks_pair_owns,
	.rcvlowat_set	= sks_rcvlowat_marked,
};

void sks_pair_splice_init(void)
{
	sks_hook_register(&client);
}
