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

bool socksplice_pair_owns(struct sock *sk)
{
	const struct socksplice_chan *c;
	bool owns;

	rcu_read_lock();
	c = socksplice_chan_get_rcu(sk);
	owns = c && rx_chan_is_live(c);
	rcu_read_unlock();
	return owns;
}

bool socksplice_pair_splices(struct sock *sk)
{
	struct socksplice_chan *c;
	bool splices;

	rcu_read_lock();
	c = socksplice_chan_get_rcu(sk);
	if (c && !rx_chan_is_live(c) && !test_bit(CHAN_RX_EARLY, &c->flags)) {
		set_bit(CHAN_RX_EARLY, &c->flags);
		/* The bit before a second look at the peer: pairs with the barrier in
		 * socksplice_rx_mark_ready().
		 */
		smp_mb__after_atomic();
	}
	splices = c && rx_chan_is_live(c);
	rcu_read_unlock();
	return splices;
}

/* One page of ring bytes into the pipe; the ring gives them up only once the
 * pipe has them. The socket is locked.
 */
static ssize_t ring_to_pipe(struct sock *sk, struct socksplice_chan *c,
			    struct pipe_inode_info *pipe, size_t len)
{
	struct ring *r = &socksplice_chan_peer(c)->ring;
	u32 want = min_t(size_t, len, PAGE_SIZE), n, done = 0;
	struct pipe_buffer buf = { .ops = &nosteal_pipe_buf_ops };
	ssize_t ret;

	n = min(want, ring_used(r, want));
	/* TCP's pages are there already: a cgroup that is full loses no process to this,
	 * and who may hold a pipe may hold what fits into one.
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
	socksplice_rx_consume(sk, c, n);
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

/* What tcp_splice_read() does between two looks, but no more than @len, and with the lock
 * held: it would sleep if another thread, in TCP's own functions, came first. Unlike
 * recv(2) it never goes past the urgent mark: 0.
 */
static ssize_t tcp_to_pipe(struct sock *sk, struct socksplice_chan *c,
			   struct pipe_inode_info *pipe, size_t len, unsigned int flags)
{
	struct socksplice_chan *peer = socksplice_chan_peer(c);
	struct to_pipe to = { sk, pipe, flags };
	read_descriptor_t desc = { .arg.data = &to, .count = len };
	int n = tcp_read_sock(sk, &desc, tcp_actor);

	if (n > 0)
		WRITE_ONCE(peer->tcp_taken, peer->tcp_taken + n);
	return n;
}

ssize_t socksplice_pair_splice_read(struct socket *sock, loff_t *ppos,
				    struct pipe_inode_info *pipe, size_t len,
				    unsigned int flags)
{
	struct sock *sk = sock->sk;
	struct socksplice_chan *c;
	ssize_t spliced = 0, n = 0;
	struct rx_look l;
	bool asleep = false;
	int disconnects;
	long timeo;

	if (unlikely(*ppos))
		return -ESPIPE;

	lock_sock(sk);
	timeo = sock_rcvtimeo(sk, sock->file->f_flags & O_NONBLOCK);
	c = socksplice_rx_turn_wait(sk);
	disconnects = sk->sk_disconnects;
	if (c) {
		socksplice_pages_charge(sk, c);
		socksplice_rx_mark_ready(sk, c);
	}
	while (len && c) {
		rx_look(sk, c, &l);
		/* Any byte is enough, but TCP does not wake who sleeps for less than the
		 * mark (tcp_data_ready()).
		 */
		if (asleep && !socksplice_rx_has_more(sk, c, SOCKSPLICE_RX_MARK))
			l = (struct rx_look){};
		else
			asleep = false;
		if (l.tcp) {
			n = tcp_to_pipe(sk, c, pipe, min_t(size_t, len, l.tcp), flags);
			if (!n && !spliced)	/* at the mark, where TCP does not sleep */
				n = min_t(ssize_t, socksplice_rx_end_at_mark(sk, timeo), 0);
		} else if (l.ring) {
			n = ring_to_pipe(sk, c, pipe, len);
		} else {
			if (spliced)
				break;
			n = socksplice_rx_end(sk, timeo);
			if (n <= 0)
				break;
			n = socksplice_rx_wait(sk, c, &timeo, SOCKSPLICE_RX_MARK);
			if (n < 0)
				break;
			asleep = timeo;
			c = socksplice_rx_turn_wait(sk);
			if (sk->sk_disconnects != disconnects) {
				n = -EPIPE;
				break;
			}
			/* before a look at what is there, as in tcp_splice_read() */
			if (signal_pending(current)) {
				n = sock_intr_errno(timeo);
				break;
			}
			continue;
		}
		if (n <= 0)
			break;
		spliced += n;
		len -= n;
		if (!timeo && !l.ring)
			break;
	}
	release_sock(sk);

	if (spliced)
		n = spliced;
	else if (!c && len && n != -EPIPE)	/* not ours any more, before anything was read */
		n = socksplice_hook_pass(sock, ppos, pipe, len, flags);
	return n;
}

static const struct hook_client client = {
	.wants_splice	= socksplice_pair_splices,
	.splice_read	= socksplice_pair_splice_read,
	.attached	= true,
	.wants_rcvlowat	= socksplice_pair_owns,
	.rcvlowat_set	= socksplice_kick_marked,
};

void socksplice_pair_splice_init(void)
{
	socksplice_hook_register(&client);
}
