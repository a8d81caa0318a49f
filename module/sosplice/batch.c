// SPDX-License-Identifier: GPL-2.0
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <net/tcp.h>

#include "core/stats.h"
#include "sosplice/batch.h"
#include "sosplice/paired_io.h"
#include "sosplice/splice.h"

void sks_batch_free(struct batch *b)
{
	unsigned int i;

	for (i = 0; i < b->n && !b->ring; i++)
		put_page(b->bv[i].bv_page);
	b->n = 0;
	b->len = 0;
}

/* Adds a piece of @page. Takes a reference on @page, unless the batch has one for the bytes
 * before.
 */
static void batch_add(struct batch *b, struct page *page, u32 off, u32 len)
{
	struct bio_vec *last = b->n ? &b->bv[b->n - 1] : NULL;

	if (last && last->bv_page == page && last->bv_offset + last->bv_len == off) {
		last->bv_len += len;
		b->len += len;
		return;
	}
	get_page(page);
	bvec_set_page(&b->bv[b->n++], page, len, off);
	b->len += len;
}

/* Makes room for at least one byte. Small copies share a page, so those that stay in the sink do
 * not take a page each.
 */
static bool frag_refill(struct splice *s)
{
	struct page_frag *f = &s->frag;
	struct mem_cgroup *old;

	if (f->page) {
		if (page_ref_count(f->page) == 1)
			f->offset = 0;	/* no sink holds any of it */
		if (f->offset < PAGE_SIZE)
			return true;
		put_page(f->page);
	}
	old = set_active_memcg(s->memcg);
	/* NORETRY: without memory the splice waits. The OOM killer must not run for a copy. */
	f->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
	set_active_memcg(old);
	f->offset = 0;
	return f->page;
}

/* Copies bytes that are not in pages that may be shared. Returns how many of @len it took. */
static u32 batch_copy(struct splice *s, struct batch *b, const struct sk_buff *skb, u32 off,
		      u32 len)
{
	struct page_frag *f = &s->frag;
	u32 done = 0;

	while (done < len && b->n < BATCH_PAGES && frag_refill(s)) {
		const u32 part = min_t(u32, len - done, PAGE_SIZE - f->offset);

		if (skb_copy_bits(skb, off + done, page_address(f->page) + f->offset, part))
			break;
		batch_add(b, f->page, f->offset, part);
		f->offset += part;
		done += part;
		sks_stat_add(SOCKSPLICE_STAT_so_splice_copied_bytes, part);
	}
	return done;
}

/* Adds up to @len bytes of @skb from @off on. Returns how many. */
static u32 batch_add_skb(struct splice *s, struct batch *b, const struct sk_buff *skb, u32 off,
			 u32 len)
{
	const struct sk_buff *frag_skb;
	u32 done = 0, start = skb_headlen(skb), part, got;
	int i;

	if (off < start) {
		part = min(len, start - off);
		got = batch_copy(s, b, skb, off, part);
		done += got;
		if (got < part || done == len)
			return done;
	}
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];
		const u32 size = skb_frag_size(frag);

		if (off + done < start + size) {
			const u32 skip = off + done - start;
			struct page *page = skb_frag_page(frag);

			b->foreign = !page;
			if (b->n == BATCH_PAGES || !page)
				return done;
			part = min(len - done, size - skip);
			if (sendpage_ok(page)) {
				batch_add(b, page, skb_frag_off(frag) + skip, part);
				got = part;
			} else {
				got = batch_copy(s, b, skb, off + done, part);
			}
			done += got;
			if (got < part || done == len)
				return done;
		}
		start += size;
	}
	skb_walk_frags(skb, frag_skb)
	{
		if (off + done < start + frag_skb->len) {
			part = min(len - done, start + frag_skb->len - (off + done));
			got = batch_add_skb(s, b, frag_skb, off + done - start, part);
			done += got;
			if (got < part || done == len)
				return done;
		}
		start += frag_skb->len;
	}
	return done;
}

void sks_batch_fill_skb(struct splice *s, struct batch *b, const struct sk_buff *skb, u32 off,
			u32 len)
{
	*b = (struct batch){};
	batch_add_skb(s, b, skb, off, len);
}

/*
 * Urgent data, similar to tcp_recvmsg_locked(). The stream is read up to the mark. The byte at the
 * mark is skipped (recv(MSG_OOB) has it), or with SO_OOBINLINE is sent on as urgent. Returns how
 * many of @len bytes from copied_seq on may go in one piece.
 */
static u32 limit_urgent(struct sock *sk, struct batch *b, u32 len)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 off, at;

	if (likely(!tp->urg_data))
		return len;
	off = tp->urg_seq - tp->copied_seq;
	if (off)
		return min(len, off);
	if (sock_flag(sk, SOCK_URGINLINE)) {
		b->oob = true;
		return 1;
	}
	if (!tcp_recv_skb(sk, tp->copied_seq, &at))
		return 0;
	tcp_read_done(sk, 1);
	return len;
}

/* True if the bytes of the source's ring come next. Otherwise caps *@limit to the bytes before
 * them.
 */
static bool batch_fill_from_ring(struct splice *s, struct batch *b, u32 *limit)
{
	b->ring = sks_paired_io_cap(s->src, limit);
	if (b->ring)
		b->n = sks_paired_io_fill(s->src, b->bv, BATCH_PAGES, *limit, &b->len);
	return b->ring;
}

void sks_batch_fill(struct splice *s, struct batch *b, u32 limit)
{
	struct sock *sk = s->src;
	struct sk_buff *skb;
	u32 seq, off, part, got;

	b->n = 0;
	b->len = 0;
	b->oob = false;
	b->foreign = false;
	if (batch_fill_from_ring(s, b, &limit))
		return;
	limit = limit_urgent(sk, b, limit);
	if (batch_fill_from_ring(s, b, &limit))
		return;		/* limit_urgent() skipped the byte before the ring */
	seq = tcp_sk(sk)->copied_seq;
	skb = tcp_recv_skb(sk, seq, &off);
	while (skb && limit && b->n < BATCH_PAGES) {
		if (off < skb->len) {
			if (!skb_frags_readable(skb)) {
				b->foreign = true;
				break;
			}
			part = min(limit, skb->len - off);
			got = batch_add_skb(s, b, skb, off, part);
			seq += got;
			limit -= got;
			if (got < part)
				break;
		}
		if (TCP_SKB_CB(skb)->tcp_flags & TCPHDR_FIN ||
		    skb_queue_is_last(&sk->sk_receive_queue, skb))
			break;
		skb = skb_queue_next(&sk->sk_receive_queue, skb);
		off = seq - TCP_SKB_CB(skb)->seq;
	}
}
