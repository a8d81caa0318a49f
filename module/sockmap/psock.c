// SPDX-License-Identifier: GPL-2.0
/*
 * Theory of operation
 *
 * A socket in a sockmap has a psock. If a verdict or sk_msg program directs bytes to the socket,
 * they land in psock->ingress_msg. That is a list of sk_msgs, each a small array of page pieces.
 * Such bytes are never in sk_receive_queue, where tcp_splice_read() looks. The socket is in one of
 * two modes, told apart as in tcp_bpf_update_proto():
 *
 *   verdict	the psock has a verdict program. All that TCP receives goes
 *		through it, so everything to read is in the ingress queue.
 *		Compare tcp_bpf_recvmsg_parser().
 *   base	it has none. The ingress queue holds what other sockets
 *		redirected here, the receive queue what TCP received. The
 *		ingress queue is read first. Compare tcp_bpf_recvmsg().
 *
 * The mode may change at any time, because a map gives up a socket without its lock.
 *
 * Bytes go to the pipe as a reference on their page. Where that is not safe, they are copied to a
 * page fragment: see psock_may_share(). They leave the queue only after the pipe has them. For a
 * message that is read in pieces, the accounting here is that of __sk_msg_recvmsg(). So read(2)
 * and splice(2) may be mixed.
 *
 * Bytes that count for TCP
 *   A message with msg->sk set to the socket itself came through its own TCP
 *   connection, and copied_seq has not been advanced for it. Reading does that, and
 *   opens the window (psock_tcp_read). For redirected bytes the socket that received
 *   them did so at the time of the verdict. But they are charged to this socket's
 *   receive buffer, so reading them may open its window too (psock_tcp_window).
 *
 * Locks
 *   pipe->mutex -> socket lock -> psock->ingress_lock. The caller holds pipe->mutex,
 *   also while we sleep, as in tcp_splice_read(). The ingress lock guards the list and
 *   msg_tot_len. A message that is on the list belongs to the holder of the socket lock.
 */
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pipe_fs_i.h>
#include <linux/sched/signal.h>
#include <linux/splice.h>
#include <linux/wait.h>
#include <net/rps.h>
#include <net/tcp.h>

#include "compat/skmsg.h"
#include "core/hook.h"
#include "core/stats.h"
#include "core/trace.h"
#include "sockmap/psock.h"

/* How often a reader looks again at bytes in TCP's queue that no program has taken. */
#define PSOCK_RETRY	(HZ / 20)

/* The administrator has switched the feature on. Written under psock_switch; read with
 * READ_ONCE.
 */
static bool psock_on;
static DEFINE_MUTEX(psock_switch);

/* Written by the administrator; read with READ_ONCE. */
static bool psock_zerocopy = true;
module_param_named(splice_zerocopy, psock_zerocopy, bool, 0644);
MODULE_PARM_DESC(splice_zerocopy,
		 "splice(2) on sockmap sockets passes pages by reference where it can (default on)");

/* The tasks that sleep here, which switching off wakes. Calls that do not sleep never take
 * this queue's lock.
 */
static DECLARE_WAIT_QUEUE_HEAD(psock_off_wait);

struct psock_sleeper {
	struct wait_queue_entry data;	/* on the socket's wait queue */
	struct wait_queue_entry off;	/* on psock_off_wait */
};

/* One splice(2) call, on the stack of the calling task, which alone uses it. */
struct psock_read {
	struct sock *sk;
	struct sk_psock *psock;
	struct pipe_inode_info *pipe;
	size_t left;			/* bytes still wanted */
	unsigned int flags;		/* SPLICE_F_* */
	long timeo;
	bool verdict;			/* mode, as of the last look */
	bool eof;			/* met the FIN in the ingress queue */
	bool off;			/* switched off: the kernel's function takes over */
	bool in_pipe;			/* the pipe's newest buffer is ours */
	u32 own;			/* own bytes read, and not reported to TCP */
	u32 redirected;			/* the same for redirected bytes */
	size_t ref;			/* bytes by reference, whole call */
	size_t copy;			/* bytes by copy, whole call */
};

bool sks_psock_is_native(void)
{
	return COMPAT_NATIVE_PSOCK_SPLICE;
}

int sks_psock_status(void)
{
	return COMPAT_NATIVE_PSOCK_SPLICE ? 0 : sks_hook_splice_status();
}

bool sks_psock_enabled(void)
{
	return READ_ONCE(psock_on);
}

void sks_psock_enable(bool on)
{
	if (COMPAT_NATIVE_PSOCK_SPLICE) {
		pr_info_once("this kernel serves splice(2) on sockmap sockets itself\n");
		return;
	}
	mutex_lock(&psock_switch);
	WRITE_ONCE(psock_on, on);
	/* A sleeper is on the queue before it looks at psock_on; the queue's
	 * lock orders the two sides.
	 */
	if (!on)
		wake_up_all(&psock_off_wait);
	mutex_unlock(&psock_switch);
}

static int psock_param_set(const char *val, const struct kernel_param *kp)
{
	bool on;
	int err = kstrtobool(val, &on);

	if (!err)
		sks_psock_enable(on);
	return err;
}

static const struct kernel_param_ops psock_param_ops = {
	.set = psock_param_set,
	.get = param_get_bool,
};

module_param_cb(splice, &psock_param_ops, &psock_on, 0644);
__MODULE_PARM_TYPE(splice, "bool");
MODULE_PARM_DESC(splice, "serve splice(2) on sockmap sockets (default off)");

static bool psock_wants(struct sock *sk)
{
	return READ_ONCE(psock_on) && sk_psock(sk);
}

/* True if a verdict program still takes what TCP receives. A psock may keep a program that is
 * not called any more: if the program was detached from the map before the socket left it,
 * TCP's own callback is back.
 */
static bool psock_has_verdict(const struct sk_psock *psock)
{
	return (READ_ONCE(psock->progs.stream_verdict) || READ_ONCE(psock->progs.skb_verdict)) &&
	       READ_ONCE(psock->saved_data_ready);
}

/* The kernel stops calling a parser after its first error. TCP's bytes then stay in its queue. */
static bool psock_parser_gave_up(const struct sk_psock *psock)
{
#if IS_ENABLED(CONFIG_BPF_STREAM_PARSER)
	return READ_ONCE(psock->progs.stream_parser) && READ_ONCE(psock->strp.stopped);
#else
	return false;
#endif
}

/* Does what tcp_recvmsg() does behind its copying, for @n bytes that TCP has received and that
 * have left its queue: advance copied_seq, tune the receive buffer, acknowledge. The kernel
 * does not export the functions for that, and tcp_read_done() acts on bytes in the receive
 * queue only. So it is shown a buffer without data that is one byte longer than what was read.
 * The extra byte keeps it from freeing the buffer. Only the holder of the socket lock follows
 * the pointers of this queue.
 */
static void psock_tcp_read(struct sock *sk, u32 n)
{
	struct sk_buff skb = { .len = n + 1 };
	u32 seq = tcp_sk(sk)->copied_seq;

	TCP_SKB_CB(&skb)->seq = seq;
	TCP_SKB_CB(&skb)->end_seq = seq + n + 1;
	__skb_queue_head(&sk->sk_receive_queue, &skb);
	tcp_read_done(sk, n);
	__skb_unlink(&skb, &sk->sk_receive_queue);
}

/* Sends a window update for the space that redirected bytes gave back, by the rule of
 * __tcp_cleanup_rbuf(): only if the window can at least double, and if there is enough space
 * that __tcp_select_window() does not still answer zero.
 */
static void psock_tcp_window(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 window;
	int space;

	if (!((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2)))
		return;
	window = tcp_receive_window(tp);
	if (2 * window > tp->window_clamp)
		return;
	space = tcp_space(sk);
	if (space <= 0 || (u32)space < 2 * window || space < tcp_full_space(sk) / 2)
		return;
	/* Does what tcp_mstamp_refresh() does, which is not exported. The peer measures round
	 * trips by this time stamp.
	 */
	tp->tcp_clock_cache = tcp_clock_ns();
	tp->tcp_mstamp = div_u64(tp->tcp_clock_cache, NSEC_PER_USEC);
	__tcp_send_ack(sk, tp->rcv_nxt, 0);
}

static void psock_tell_tcp(struct psock_read *rd)
{
	const struct tcp_sock *tp = tcp_sk(rd->sk);
	const struct sk_buff *skb = skb_peek(&rd->sk->sk_receive_queue);
	/* A parser that met an error may have stopped in the middle of the first buffer. */
	const u32 taken = skb ? compat_psock_parsed(rd->psock, TCP_SKB_CB(skb)->seq,
						    TCP_SKB_CB(skb)->end_seq) :
				tp->rcv_nxt;
	s32 unread = taken - tp->copied_seq;
	/* With a parser the kernel sets copied_seq by the last batch of records alone
	 * (tcp_bpf_strp_read_sock()). Records left from earlier batches then count as
	 * read already. copied_seq must not pass the first byte that no program has
	 * taken, or TCP would skip bytes that are still to be read.
	 */
	u32 own = min_t(u32, rd->own, max(unread, 0));

	if (own)
		psock_tcp_read(rd->sk, own);
	else if (rd->own || rd->redirected)
		psock_tcp_window(rd->sk);
	rd->own = 0;
	rd->redirected = 0;
}

/* True if @addr lies in a linear part of @skb that must not be shared with a pipe. Follows
 * skb_head_is_locked(): the memory came from kmalloc(), or a clone shares it and may write to
 * it once it is the only user.
 */
static bool psock_in_locked_head(const struct sk_buff *skb, const void *addr)
{
	const struct sk_buff *frag;

	if (addr >= (void *)skb->head && addr < (void *)skb_end_pointer(skb))
		return skb_head_is_locked(skb);
	skb_walk_frags(skb, frag)
	{
		if (addr >= (void *)frag->head && addr < (void *)skb_end_pointer(frag))
			return skb_head_is_locked(frag);
		if (skb_has_frag_list(frag))
			return true;	/* nested deeper than this search goes */
	}
	return false;
}

static bool psock_may_share(const struct sk_msg *msg, struct scatterlist *sge)
{
	struct page *page = sg_page(sge) + (sge->offset >> PAGE_SHIFT);
	void *addr = page_address(sg_page(sge));

	if (!READ_ONCE(psock_zerocopy) || !compat_page_shareable(page))
		return false;
	return !msg->skb || !addr || !psock_in_locked_head(msg->skb, addr + sge->offset);
}

/* The pipe's newest buffer, if these bytes can be appended to it; else NULL. */
static struct pipe_buffer *psock_pipe_tail(struct psock_read *rd, struct page *page, u32 off)
{
	struct pipe_buffer *buf;

	if (!rd->in_pipe)
		return NULL;
	buf = pipe_buf(rd->pipe, rd->pipe->head - 1);
	return buf->page == page && buf->offset + buf->len == off ? buf : NULL;
}

/* Adds @len bytes of @page to the pipe, which takes its own reference on the page. Returns 0,
 * -EAGAIN (the pipe is full) or -EPIPE (the pipe has no reader).
 */
static int psock_pipe_add(struct psock_read *rd, struct page *page, u32 off, u32 len)
{
	struct pipe_buffer buf = {
		.page = page,
		.offset = off,
		.len = len,
		.ops = &nosteal_pipe_buf_ops,
	};
	struct pipe_buffer *tail = psock_pipe_tail(rd, page, off);
	ssize_t ret;

	if (tail) {
		tail->len += len;
		return 0;
	}
	get_page(page);
	ret = add_to_pipe(rd->pipe, &buf);	/* drops the reference if it fails */
	if (ret < 0)
		return ret;
	rd->in_pipe = true;
	return 0;
}

/* Copies up to @len bytes to the task's page fragment and adds them to the pipe as
 * psock_pipe_add() does. Returns the number of bytes, or its error.
 */
static int psock_pipe_copy(struct psock_read *rd, struct scatterlist *sge, u32 len)
{
	struct page_frag *to = sk_page_frag(rd->sk);
	u32 done = 0;
	int err;

	if (!sk_page_frag_refill(rd->sk, to))
		return -ENOMEM;
	if (pipe_full(rd->pipe->head, rd->pipe->tail, rd->pipe->max_usage) &&
	    !psock_pipe_tail(rd, to->page, to->offset))
		return -EAGAIN;

	len = min(len, to->size - to->offset);
	while (done < len) {
		u32 from = sge->offset + done;
		u32 off = to->offset + done;
		u32 n = min3(len - done, (u32)(PAGE_SIZE - offset_in_page(from)),
			     (u32)(PAGE_SIZE - offset_in_page(off)));

		memcpy_page(to->page + (off >> PAGE_SHIFT), offset_in_page(off),
			    sg_page(sge) + (from >> PAGE_SHIFT), offset_in_page(from), n);
		done += n;
	}
	err = psock_pipe_add(rd, to->page, to->offset, len);
	if (err)
		return err;
	to->offset += len;
	return len;
}

/* Moves as much of one piece of a message as the pipe takes, and removes it from the message.
 * The accounting follows __sk_msg_recvmsg().
 */
static int psock_move_piece(struct psock_read *rd, struct sk_msg *msg, struct scatterlist *sge)
{
	u32 n = min_t(size_t, sge->length, rd->left);
	int ret;

	if (unlikely(msg->skb && !skb_frags_readable(msg->skb)))
		return -EFAULT;
	if (psock_may_share(msg, sge)) {
		ret = psock_pipe_add(rd, sg_page(sge), sge->offset, n);
		if (ret)
			return ret;
		rd->ref += n;
	} else {
		ret = psock_pipe_copy(rd, sge, n);
		if (ret < 0)
			return ret;
		n = ret;
		rd->copy += n;
	}

	sge->offset += n;
	sge->length -= n;
	msg->sg.size -= n;
	compat_psock_msg_len_sub(rd->psock, n);
	if (!msg->skb) {
		sk_mem_uncharge(rd->sk, n);
		atomic_sub(n, &rd->sk->sk_rmem_alloc);
	}
	if (msg->sk == rd->sk)
		rd->own += n;
	else
		rd->redirected += n;
	rd->left -= n;
	return n;
}

/* Handles the FIN, which is a message without data. As for read(2) the message stays in the
 * queue, so every later call finds the end of file again. (For a FIN that was redirected from
 * another connection to a socket without a verdict program, read(2) returns EFAULT.) The FIN's
 * sequence number counts once, and only if it is this connection's own.
 */
static bool psock_at_fin(struct psock_read *rd, const struct sk_msg *msg)
{
	struct tcp_sock *tp = tcp_sk(rd->sk);

	if (msg->sg.size || !msg->skb || !(TCP_SKB_CB(msg->skb)->tcp_flags & TCPHDR_FIN))
		return false;
	if (msg->sk == rd->sk && tp->copied_seq + rd->own + 1 == tp->rcv_nxt)
		rd->own++;
	return true;
}

/* Moves messages from the ingress queue. Returns the number of bytes moved, or, if it moved
 * none, an error.
 */
static ssize_t psock_move_ingress(struct psock_read *rd)
{
	size_t want = rd->left;
	struct sk_msg *msg;
	int ret = 0;

	while (rd->left && (msg = sk_psock_peek_msg(rd->psock))) {
		bool last = false;

		if (psock_at_fin(rd, msg)) {
			rd->eof = true;
			break;
		}
		while (rd->left && !last) {
			u32 i = msg->sg.start;
			struct scatterlist *sge = sk_msg_elem(msg, i);

			if (sge->length) {
				ret = psock_move_piece(rd, msg, sge);
				if (ret < 0)
					goto out;
				if (sge->length)
					continue;
				/* Drops the message's reference on the page.
				 * With an skb, the reference is the skb's and
				 * goes with the message. A piece that arrived
				 * empty, since a program cut it, has none.
				 */
				if (!msg->skb)
					put_page(sg_page(sge));
			}
			sk_msg_iter_var_next(i);
			msg->sg.start = i;
			/* With an skb the pieces end at the mark that
			 * skb_to_sgvec() set, perhaps at the array's end.
			 * Without an skb the array is a ring, in which the
			 * mark at its end means nothing.
			 */
			last = i == msg->sg.end || (msg->skb && sg_is_last(sge));
		}
		if (last)
			kfree_sk_msg(sk_psock_dequeue_msg(rd->psock));
	}
out:
	psock_tell_tcp(rd);
	return want - rd->left ?: ret;
}

static int psock_tcp_actor(read_descriptor_t *desc, struct sk_buff *skb, unsigned int offset,
			   size_t len)
{
	struct psock_read *rd = desc->arg.data;
	int n;

	n = skb_splice_bits(skb, rd->sk, offset, rd->pipe, min(len, desc->count), rd->flags);
	if (n > 0) {
		desc->count -= n;
		rd->in_pipe = false;
	}
	return n;
}

/* Moves the bytes in TCP's queue, as tcp_splice_read() does. */
static ssize_t psock_move_tcp(struct psock_read *rd)
{
	read_descriptor_t desc = { .arg.data = rd, .count = rd->left };
	int ret = tcp_read_sock(rd->sk, &desc, psock_tcp_actor);

	if (ret > 0)
		rd->left -= ret;
	return ret;
}

/* Moves what there is, from one of the two queues. */
static ssize_t psock_move(struct psock_read *rd)
{
	struct sock *sk = rd->sk;

	rd->verdict = psock_has_verdict(rd->psock);
	/* Bytes that arrived before the program could take them, before accept() or
	 * when memory was short, wait in TCP's queue. The data_ready callback runs the
	 * program on them. Follows tcp_bpf_recvmsg_parser().
	 */
	if (rd->verdict && !skb_queue_empty(&sk->sk_receive_queue))
		READ_ONCE(sk->sk_data_ready)(sk);
	if (!sk_psock_queue_empty(rd->psock))
		return psock_move_ingress(rd);
	if (!rd->verdict)
		return psock_move_tcp(rd);
	return sk->sk_state == TCP_LISTEN ? -ENOTCONN : 0;
}

static int psock_off_wake(struct wait_queue_entry *entry, unsigned int mode, int sync, void *key)
{
	struct psock_sleeper *s = container_of(entry, struct psock_sleeper, off);

	return woken_wake_function(&s->data, mode, sync, key);
}

/* True if there may be something to move. Needs no lock. @left: the caller knows of bytes in
 * TCP's queue and leaves them to the program.
 */
static bool psock_ready(const struct psock_read *rd, bool left)
{
	return !list_empty(&rd->psock->ingress_msg) || !READ_ONCE(psock_on) ||
	       (!left && !skb_queue_empty_lockless(&rd->sk->sk_receive_queue));
}

/* Sleeps until psock_ready(), a change of the socket's state, a signal, or the end of @timeo.
 * Follows tcp_msg_wait_data(). Returns 0, or -EPIPE after a disconnect.
 */
static int psock_sleep(struct psock_read *rd, bool left, long timeo)
{
	long before = timeo;
	struct sock *sk = rd->sk;
	struct psock_sleeper s;
	int ret;

	init_wait_entry(&s.data, 0);
	s.data.func = woken_wake_function;
	init_wait_entry(&s.off, 0);
	s.off.func = psock_off_wake;

	add_wait_queue(&psock_off_wait, &s.off);
	add_wait_queue(sk_sleep(sk), &s.data);
	sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	ret = sk_wait_event(sk, &timeo, psock_ready(rd, left), &s.data);
	sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	remove_wait_queue(sk_sleep(sk), &s.data);
	remove_wait_queue(&psock_off_wait, &s.off);

	if (rd->timeo != MAX_SCHEDULE_TIMEOUT)
		rd->timeo -= before - timeo;
	return min(ret, 0);
}

/* Decides what to do when there is nothing to move, in the order of tcp_splice_read(). Returns
 * 1 to look again, 0 for the end of file, or an error.
 */
static int psock_wait(struct psock_read *rd)
{
	struct sock *sk = rd->sk;
	/* Bytes in TCP's queue that the program did not take, and whether it still may. */
	bool left = rd->verdict && !skb_queue_empty(&sk->sk_receive_queue);
	bool stuck = left && !psock_parser_gave_up(rd->psock);

	if (!stuck && sock_flag(sk, SOCK_DONE))
		return 0;
	if (sk->sk_err)
		return sock_error(sk);
	if (!stuck) {
		if (sk->sk_shutdown & RCV_SHUTDOWN)
			return 0;
		if (sk->sk_state == TCP_CLOSE)
			return -ENOTCONN;
	}
	if (!rd->timeo)
		return -EAGAIN;
	if (signal_pending(current))
		return sock_intr_errno(rd->timeo);
	if (!READ_ONCE(psock_on)) {
		rd->off = true;
		return 0;
	}
	/* tcp_splice_read() does not wait at urgent data either. */
	if (!rd->verdict && !skb_queue_empty(&sk->sk_receive_queue))
		return 0;
	/* No event says that the map has given up the socket. After that these bytes are for this
	 * reader. So look again after a while.
	 */
	return psock_sleep(rd, left, left ? min_t(long, rd->timeo, PSOCK_RETRY) : rd->timeo) ?: 1;
}

static ssize_t psock_splice_locked(struct psock_read *rd)
{
	struct sock *sk = rd->sk;
	size_t want = rd->left;
	ssize_t ret = 0;

	while (rd->left) {
		ret = psock_move(rd);
		if (ret < 0 || rd->eof)
			break;
		if (!ret) {
			if (rd->left != want)
				break;
			ret = psock_wait(rd);
			if (ret <= 0)
				break;
			continue;
		}
		if (!rd->left || !rd->timeo)
			break;
		/* Process the packets that arrived meanwhile. */
		release_sock(sk);
		lock_sock(sk);
		if (sk->sk_err || sk->sk_state == TCP_CLOSE || (sk->sk_shutdown & RCV_SHUTDOWN) ||
		    signal_pending(current))
			break;
	}
	return want - rd->left ?: min_t(ssize_t, ret, 0);
}

/* tcp_splice_read() for a socket in a sockmap. The caller has the pipe locked. */
static ssize_t psock_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
				 size_t len, unsigned int flags)
{
	struct sock *sk = sock->sk;
	struct psock_read rd = {
		.sk = sk,
		.pipe = pipe,
		.left = len,
		.flags = flags,
	};
	ssize_t ret;

	if (unlikely(*ppos))
		return -ESPIPE;
	if (READ_ONCE(psock_on))
		rd.psock = sk_psock_get(sk);
	if (!rd.psock)
		return sks_hook_pass(sock, ppos, pipe, len, flags);

	sock_rps_record_flow(sk);
	lock_sock(sk);
	rd.timeo = sock_rcvtimeo(sk, sock->file->f_flags & O_NONBLOCK);
	ret = psock_splice_locked(&rd);
	release_sock(sk);
	sk_psock_put(sk, rd.psock);

	sks_stat_inc(SOCKSPLICE_STAT_psock_splice_calls);
	sks_stat_add(SOCKSPLICE_STAT_psock_splice_ref_bytes, rd.ref);
	sks_stat_add(SOCKSPLICE_STAT_psock_splice_copy_bytes, rd.copy);
	trace_psock_splice(sk, rd.ref, rd.copy, ret);
	if (unlikely(rd.off && !ret))
		return sks_hook_pass(sock, ppos, pipe, len, flags);
	return ret;
}

static const struct hook_client client = {
	.wants_splice	= psock_wants,
	.splice_read	= psock_splice_read,
};

void sks_psock_init(void)
{
	sks_hook_register(&client);
}
