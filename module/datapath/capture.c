// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <net/tcp.h>

#include "core/inflight.h"
#include "core/stats.h"
#include "datapath/capture.h"
#include "pair/end.h"
#include "pair/verdict.h"

#define READ_WAIT	max(HZ / 50, 1)

/* Bits of a record's length, only while it is in the buffer. */
#define RECORD_BUSY	BIT(31)		/* the sender is still copying into it */
#define RECORD_VOID	BIT(30)		/* the sender published nothing: skip it */

struct capture {
	/* Constant. */
	struct socksplice_capture_opts opts;
	u32 id;				/* never 0, and differs from the previous capture's */
	u8 *buffer;			/* of opts.buffer bytes */

	bool stopped;			/* written under captures_lock */

	/* Fields of the tasks that write to the buffer, in process context or a softirq. */
	spinlock_t lock;
	u32 head;			/* lock, stored with release; free-running */
	struct socksplice_capture_stats stats;	/* lock */

	/* Fields of the reader. */
	struct mutex read_lock;
	u32 tail;			/* written under read_lock, with release */
	wait_queue_head_t wait;
};

DEFINE_STATIC_KEY_FALSE(sks_capture_key);

static DEFINE_MUTEX(captures_lock);
/* The capture that senders write to, or NULL. RCU; written under captures_lock. The open file
 * owns it.
 */
static struct capture __rcu *live;
static u32 last_id;			/* captures_lock */

static u32 used(const struct capture *cap)
{
	/* A snapshot. Code that touches the buffer loads both cursors itself. */
	u32 tail = READ_ONCE(cap->tail);

	return READ_ONCE(cap->head) - tail;
}

static bool is_worth_waking(const struct capture *cap)
{
	return used(cap) >= cap->opts.buffer / 4;
}

static u8 *at(const struct capture *cap, u32 pos)
{
	return cap->buffer + (pos & (cap->opts.buffer - 1));
}

/* The word that says whether the rest of the record may be read. It lies at a multiple of
 * eight bytes, so it never wraps around the end of the buffer.
 */
static u32 *length_at(const struct capture *cap, u32 pos)
{
	return (u32 *)at(cap, pos);
}

static u32 until_wrap(const struct capture *cap, u32 pos, u32 n)
{
	return min(n, cap->opts.buffer - (pos & (cap->opts.buffer - 1)));
}

static void put(const struct capture *cap, u32 pos, const void *from, u32 n)
{
	u32 first = until_wrap(cap, pos, n);

	memcpy(at(cap, pos), from, first);
	memcpy(at(cap, pos + first), from + first, n - first);
}

/* Makes room for @r and @kept bytes of data, and copies all of @r but its length there. The
 * lock that gives the record its place also gives it its time, so times are in order. False if
 * there is no room.
 */
static bool reserve(struct capture *cap, struct socksplice_capture_record *r, u32 kept,
		    struct capture_slot *slot)
{
	const u32 word = sizeof(r->length);
	bool room;

	slot->length = ALIGN(sizeof(*r) + kept, 8);
	slot->kept = kept;
	spin_lock_bh(&cap->lock);
	/* Acquire: the reader is done with what lies before its tail. Pairs with take(). */
	room = slot->length <= cap->opts.buffer - (cap->head - smp_load_acquire(&cap->tail));
	if (room) {
		r->time = ktime_get_real_ns();
		r->dropped = cap->stats.dropped;
		slot->pos = cap->head;
		WRITE_ONCE(*length_at(cap, slot->pos), slot->length | RECORD_BUSY);
		/* The length word before the head that makes it visible. Pairs with take(). */
		smp_store_release(&cap->head, cap->head + slot->length);
	} else {
		cap->stats.dropped++;
		cap->stats.dropped_bytes += r->size;
	}
	spin_unlock_bh(&cap->lock);
	if (room)
		put(cap, slot->pos + word, (u8 *)r + word, sizeof(*r) - word);
	else
		sks_stat_inc(SOCKSPLICE_STAT_capture_dropped);
	return room;
}

/* Marks the record as complete: all of it is in place. */
static void commit(struct capture *cap, const struct capture_slot *slot, u32 flags)
{
	/* Pairs with next_record(). */
	smp_store_release(length_at(cap, slot->pos), slot->length | flags);
	if (is_worth_waking(cap) && wq_has_sleeper(&cap->wait))
		wake_up_interruptible(&cap->wait);
	if (!flags)
		sks_stat_inc(SOCKSPLICE_STAT_capture_records);
}

/* The end that is listed first: the active opener, where there is one. */
static const struct pair_end *first_of(const struct pair_end *end, const struct pair_end *peer)
{
	const bool c_active = test_bit(END_ACTIVE, &end->flags);

	if (c_active != test_bit(END_ACTIVE, &peer->flags))
		return c_active ? end : peer;
	return end < peer ? end : peer;
}

static void end_fill(struct socksplice_capture_end *to, const struct pair_end *end)
{
	memcpy(to->saddr, &end->ident.saddr, sizeof(to->saddr));
	memcpy(to->daddr, &end->ident.daddr, sizeof(to->daddr));
	to->sport = end->ident.sport;
	to->dport = end->ident.dport;
	to->netns = end->netns_inum;
}

/* Fills in the fields that every record of the pair shares. */
static void record_fill(struct socksplice_capture_record *r, const struct pair_end *end,
			const struct pair_end *peer)
{
	const struct pair_end *first = first_of(end, peer);

	memset(r, 0, sizeof(*r));
	r->pair = end->id;
	r->from = end != first;
	end_fill(&r->ends[0], first);
	end_fill(&r->ends[1], first == end ? peer : end);
}

static bool port_is_wanted(const struct socksplice_capture_opts *o, u16 port)
{
	u32 i;

	for (i = 0; i < o->n_ports; i++)
		if (port >= o->ports[i].first && port <= o->ports[i].last)
			return true;
	return false;
}

/* Under RCU. If the socket of @end is gone, it belongs to no cgroup. */
static bool cgroup_is_wanted(const struct socksplice_capture_opts *o, const struct pair_end *end)
{
#ifdef CONFIG_SOCK_CGROUP_DATA
	struct sock *sk = rcu_dereference(end->sk);
	struct cgroup *cgrp = sk ? sock_cgroup_ptr(&sk->sk_cgrp_data) : NULL;
	int level;
	u32 i;

	for (level = 0; cgrp && level <= cgrp->level; level++)
		for (i = 0; i < o->n_cgroups; i++)
			if (cgroup_id(cgroup_ancestor(cgrp, level)) == o->cgroups[i])
				return true;
#endif
	return false;
}

static bool end_is_wanted(const struct socksplice_capture_opts *o, const struct pair_end *end)
{
	return (!o->netns || o->netns == end->netns_inum) &&
	       (!o->n_ports || port_is_wanted(o, end->ident.sport) ||
		port_is_wanted(o, end->ident.dport)) &&
	       (!o->n_cgroups || cgroup_is_wanted(o, end));
}

static bool pair_is_wanted(const struct socksplice_capture_opts *o, const struct pair_end *end,
			   const struct pair_end *peer)
{
	bool wanted = !o->n_pairs;
	u32 i;

	for (i = 0; i < o->n_pairs && !wanted; i++)
		wanted = o->pairs[i] == end->id;
	return wanted && (end_is_wanted(o, end) || end_is_wanted(o, peer));
}

void __sks_capture_begin(const struct sock *sk, struct pair_end *end, u32 n,
			 struct capture_slot *slot)
{
	const struct pair_end *peer = sks_end_peer(end);
	struct socksplice_capture_record r;
	struct capture *cap;

	sock_owned_by_me(sk);
	rcu_read_lock();
	cap = rcu_dereference(live);
	if (!cap)
		goto none;
	if (end->capture_id != cap->id) {
		end->capture_id = cap->id;
		end->captured = pair_is_wanted(&cap->opts, end, peer);
	}
	if (!end->captured)
		goto none;

	record_fill(&r, end, peer);
	r.size = n;
	r.seq = end->seq;
	r.ring = end->ring.head;
	/* The sender's socket lock protects both. */
	r.ack = tcp_sk(sk)->copied_seq + READ_ONCE(peer->ring.tail);
	if (!reserve(cap, &r, min(n, cap->opts.snaplen), slot))
		goto none;
	slot->capture = cap;
	__release(RCU);		/* for sparse: __sks_capture_end() unlocks */
	return;
none:
	rcu_read_unlock();
}

void __sks_capture_end(const struct pair_end *end, u32 n, struct capture_slot *slot)
{
	const u32 kept = min(slot->kept, n), pos = slot->pos;
	struct capture *cap = slot->capture;
	u32 off = 0;

	__acquire(RCU);		/* for sparse: __sks_capture_begin() locked */
	while (off < kept) {
		u32 seg;
		void *p = ring_sent_seg(&end->ring, n - off, &seg);

		seg = min(seg, kept - off);
		put(cap, pos + sizeof(struct socksplice_capture_record) + off, p, seg);
		off += seg;
	}
	/* If the reader went away, fewer bytes stayed in the ring than _begin announced. */
	put(cap, pos + offsetof(struct socksplice_capture_record, kept), &kept, sizeof(kept));
	put(cap, pos + offsetof(struct socksplice_capture_record, size), &n, sizeof(n));
	commit(cap, slot, n ? 0 : RECORD_VOID);
	rcu_read_unlock();
}

/* The sequence number that follows what @end has sent. Its socket need not be locked. */
static u32 sent_by(const struct pair_end *end)
{
	const u32 ring = READ_ONCE(end->ring.head);

	return ring ? READ_ONCE(end->seq) + ring : end->ident.iss + 1;
}

/* Records what became of the pair of @end. */
static void capture_event(enum socksplice_event event, const char *reason,
			  const struct pair_end *end)
{
	const struct pair_end *peer = sks_end_peer(end), *first;
	struct socksplice_capture_record r;
	struct capture_slot slot;
	struct capture *cap;

	if (!static_branch_unlikely(&sks_capture_key))
		return;
	if (!peer || test_bit(END_SHADOW, &end->flags))
		return;
	first = first_of(end, peer);
	rcu_read_lock();
	cap = rcu_dereference(live);
	if (cap && pair_is_wanted(&cap->opts, end, peer)) {
		record_fill(&r, first, first == end ? peer : end);
		r.event = event;
		r.seq = sent_by(first);
		r.ack = sent_by(first == end ? peer : end);
		r.kept = reason ? strlen(reason) : 0;
		if (reserve(cap, &r, r.kept, &slot)) {
			if (reason)
				put(cap, slot.pos + sizeof(r), reason, r.kept);
			commit(cap, &slot, 0);
		}
	}
	rcu_read_unlock();
}

/* The length of the record at @pos, or 0 if its sender is still copying. */
static u32 next_record(const struct capture *cap, u32 pos)
{
	u32 length = smp_load_acquire(length_at(cap, pos));	/* pairs with commit() */

	return length & RECORD_BUSY ? 0 : length;
}

static int get(const struct capture *cap, u32 pos, void __user *to, u32 n)
{
	u32 first = until_wrap(cap, pos, n);

	return copy_to_user(to, at(cap, pos), first) ||
			       copy_to_user(to + first, at(cap, pos + first), n - first) ?
		       -EFAULT :
		       0;
}

/* Copies complete records to the reader, at most @count bytes. */
static ssize_t take(struct capture *cap, char __user *to, size_t count)
{
	const u32 head = smp_load_acquire(&cap->head);	/* pairs with reserve() */
	u32 pos = cap->tail;
	size_t done = 0;
	int err = 0;

	lockdep_assert_held(&cap->read_lock);
	while (pos != head && !err) {
		const u32 word = next_record(cap, pos), length = word & ~RECORD_VOID;

		if (!word) {
			err = -EAGAIN;
		} else if (word & RECORD_VOID) {
			pos += length;
		} else if (length > count - done) {
			err = -EMSGSIZE;
		} else {
			err = get(cap, pos, to + done, length);
			if (!err) {
				done += length;
				pos += length;
			}
		}
	}
	/* Release: this reader's loads come before a sender's stores. Pairs with reserve(). */
	smp_store_release(&cap->tail, pos);
	if (done)
		return done;
	return err ?: -EAGAIN;
}

static ssize_t capture_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct capture *cap = smp_load_acquire(&file->private_data);	/* of start() */
	bool stopped;
	ssize_t ret;

	if (!cap)
		return -ENODATA;
	if (mutex_lock_interruptible(&cap->read_lock))
		return -ERESTARTSYS;
	stopped = READ_ONCE(cap->stopped);
	if (!stopped && !(file->f_flags & O_NONBLOCK) &&
	    wait_event_interruptible_timeout(
		    cap->wait, is_worth_waking(cap) || READ_ONCE(cap->stopped), READ_WAIT) < 0) {
		ret = -ERESTARTSYS;
	} else {
		ret = take(cap, to, count);
		/* The capture was stopped before the look, so no record has come since. */
		if (ret == -EAGAIN && stopped)
			ret = 0;
	}
	mutex_unlock(&cap->read_lock);
	return ret;
}

static bool opts_are_valid(const struct socksplice_capture_opts *o)
{
	u32 i;

	if (o->snaplen > SOCKSPLICE_CAPTURE_SNAPLEN_MAX || !is_power_of_2(o->buffer) ||
	    o->buffer < SOCKSPLICE_CAPTURE_BUFFER_MIN ||
	    o->buffer > SOCKSPLICE_CAPTURE_BUFFER_MAX || o->n_ports > SOCKSPLICE_CAPTURE_FILTERS ||
	    o->n_cgroups > SOCKSPLICE_CAPTURE_FILTERS || o->n_pairs > SOCKSPLICE_CAPTURE_FILTERS ||
	    o->reserved[0] || o->reserved[1])
		return false;
	for (i = 0; i < o->n_ports; i++)
		if (o->ports[i].first > o->ports[i].last)
			return false;
	return true;
}

static void capture_free(struct capture *cap)
{
	kvfree(cap->buffer);
	kfree(cap);
}

static struct capture *capture_alloc(const void __user *arg)
{
	struct capture *cap = kzalloc(sizeof(*cap), GFP_KERNEL_ACCOUNT);

	if (!cap)
		return ERR_PTR(-ENOMEM);
	if (copy_from_user(&cap->opts, arg, sizeof(cap->opts))) {
		kfree(cap);
		return ERR_PTR(-EFAULT);
	}
	if (!opts_are_valid(&cap->opts)) {
		kfree(cap);
		return ERR_PTR(-EINVAL);
	}
	/* Zeroed, because padding behind a record's data is copied to user space. */
	cap->buffer =
		kvzalloc(cap->opts.buffer, GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!cap->buffer) {
		kfree(cap);
		return ERR_PTR(-ENOMEM);
	}
	spin_lock_init(&cap->lock);
	mutex_init(&cap->read_lock);
	init_waitqueue_head(&cap->wait);
	return cap;
}

static long start(struct file *file, const void __user *arg)
{
	struct capture *cap = capture_alloc(arg);

	if (IS_ERR(cap))
		return PTR_ERR(cap);
	mutex_lock(&captures_lock);
	if (file->private_data || rcu_access_pointer(live)) {
		mutex_unlock(&captures_lock);
		capture_free(cap);
		return -EBUSY;
	}
	do {
		cap->id = ++last_id;
	} while (!cap->id);	/* 0 is the value that a new end starts with */
	smp_store_release(&file->private_data, cap);	/* pairs with the other calls */
	rcu_assign_pointer(live, cap);
	static_branch_enable(&sks_capture_key);
	mutex_unlock(&captures_lock);
	return 0;
}

/* When it returns, no sender writes to @cap any more. */
static void stop(struct capture *cap)
{
	mutex_lock(&captures_lock);
	if (!cap->stopped) {
		static_branch_disable(&sks_capture_key);
		RCU_INIT_POINTER(live, NULL);
		synchronize_rcu();
		WRITE_ONCE(cap->stopped, true);
		wake_up_interruptible(&cap->wait);
	}
	mutex_unlock(&captures_lock);
}

static long stats(struct capture *cap, void __user *arg)
{
	struct socksplice_capture_stats s;

	spin_lock_bh(&cap->lock);
	s = cap->stats;
	spin_unlock_bh(&cap->lock);
	return copy_to_user(arg, &s, sizeof(s)) ? -EFAULT : 0;
}

static long capture_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct capture *cap = smp_load_acquire(&file->private_data);	/* of start() */

	switch (cmd) {
	case SOCKSPLICE_CAPTURE_START:
		return start(file, (void __user *)arg);
	case SOCKSPLICE_CAPTURE_STOP:
		if (!cap)
			return -ENODATA;
		stop(cap);
		return 0;
	case SOCKSPLICE_CAPTURE_STATS:
		return cap ? stats(cap, (void __user *)arg) : -ENODATA;
	default:
		return -ENOTTY;
	}
}

/* A capture shows the payload of every user's connections, as packet sockets in every namespace
 * would. So it takes the capabilities for that in the initial user namespace. While the module
 * loads there is no device yet: if the load fails, an open file would not keep the module.
 */
static int capture_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_NET_ADMIN) || !capable(CAP_NET_RAW))
		return -EPERM;
	if (!READ_ONCE(sks_loaded))
		return -ENODEV;
	file->private_data = NULL;	/* misc_open() had stored the device there */
	return nonseekable_open(inode, file);
}

static int capture_release(struct inode *inode, struct file *file)
{
	struct capture *cap = file->private_data;

	if (cap) {
		stop(cap);
		capture_free(cap);
	}
	return 0;
}

static const struct file_operations fops = {
	.owner		= THIS_MODULE,
	.open		= capture_open,
	.release	= capture_release,
	.read		= capture_read,
	.unlocked_ioctl	= capture_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= SOCKSPLICE_CAPTURE_DEVICE,
	.fops	= &fops,
	.mode	= 0600,
};

static const struct verdict_sink sink = {
	.event = capture_event,
};

int sks_capture_init(void)
{
	sks_verdict_register(&sink);
	return misc_register(&device);
}

void sks_capture_exit(void)
{
	misc_deregister(&device);
}
