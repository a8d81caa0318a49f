// SPDX-License-Identifier: GPL-2.0
/*
 * Readers that wait for bytes.
 *
 * A reader spins for as long as SO_BUSY_POLL or its policy says. Without that it spins only if its
 * last waits ended within sks_short_wait, and no longer than that. Going to sleep and being woken
 * on another CPU takes as long, and costs the writer time besides. The first longer wait ends the
 * spinning. SHORT_WAITS short waits in a row begin it again. So a reader burns no more CPU time
 * than it has saved, or would have saved. Compare what a mutex and KVM do.
 *
 * An event loop does not wait in recv(2), but it asks each socket that had bytes once more before
 * it sleeps: by poll(2), or in epoll_wait(2) of a set that is level-triggered. There it may spin,
 * too. It must not keep a loop from its other sockets. So it spins only if the poll before on this
 * CPU was of the same socket: a loop with several busy sockets asks them in turn. Nor is it to keep
 * a loop from sending its next request: epoll_ctl(2), which arms EPOLLOUT for that, asks, too. So
 * it spins only if this end has sent since the last poll that found nothing, or seems only to read.
 * If the answer to a request is there at the first poll, the next poll still spins in vain.
 */
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>
#include <net/busy_poll.h>
#include <net/tcp.h>

#include "core/params.h"
#include "core/stats.h"
#include "datapath/rcvlowat.h"
#include "datapath/rx.h"
#include "pair/end.h"
#include "pair/look.h"

#define SHORT_WAITS	2

/* An end seems only to read after so many polls that found nothing since it last sent. A loop that
 * asks for answers polls two or three times between one of them and its next request.
 */
#define STREAM_POLLS	8

/* A reader is at the end of a stream if it spins, had bytes at once when it last spun, and has
 * sent nothing since. A poller is if it seems only to read. Such a one looks at the ring this much
 * later. Each look, and each message that it takes alone, delays the writer, whose cache lines it
 * takes.
 */
#define GATHER		(2 * NSEC_PER_USEC)

/* Bytes came "at once" if the reader had spun for less than this, the time to gather included. */
#define HOT		(GATHER + NSEC_PER_USEC)

/* A reader that waits, with times by local_clock(). They are 0 if the length of the wait does not
 * matter.
 */
struct rx_sleeper {
	struct wait_queue_entry wait;
	u64 began;	/* start of the wait, spinning or asleep */
	u64 woken;
};

static bool rx_has_bytes(const struct sock *sk, const struct pair_end *end, u32 pos)
{
	const u32 total = sks_look_available(sk, end);
	int mark;

	/* Not only more: with MSG_PEEK another reader may have taken bytes, so there are fewer. */
	if (likely(pos != SOCKSPLICE_RX_MARK))
		return total != pos;
	mark = READ_ONCE(sk->sk_rcvlowat);
	return total >= (u32)mark || tcp_epollin_ready(sk, mark);
}

bool sks_rx_has_more(const struct sock *sk, const struct pair_end *end, u32 pos)
{
	return rx_has_bytes(sk, end, pos) || READ_ONCE(sk->sk_err) ||
	       (READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN) ||
	       READ_ONCE(sk->sk_state) == TCP_CLOSE || sock_flag(sk, SOCK_DONE) ||
	       test_bit(END_RX_CLOSED, &end->flags);
}

/* How long the reader is to spin. We do not set SO_BUSY_POLL for that, because TCP would spin on
 * the network device while the socket is not paired, or not any more.
 */
static u64 busy_poll_nsec(const struct sock *sk, const struct pair_end *end)
{
	u32 usec = READ_ONCE(end->busy_poll_usec);

#ifdef CONFIG_NET_RX_BUSY_POLL
	usec = max(usec, READ_ONCE(sk->sk_ll_usec));
#endif
	return min(usec, SOCKSPLICE_BUSY_POLL_MAX) * (u64)NSEC_PER_USEC;
}

/* True if the wait may be short: another CPU may be about to write, and no other task wants this
 * CPU. (Such a task may be the writer.) A real-time task has to sleep, because RLIMIT_RTTIME
 * counts until it does.
 */
static bool may_be_short(void)
{
	return num_online_cpus() > 1 && single_task_running() && !rt_task(current);
}

static u64 short_nsec(void)
{
	return (u64)READ_ONCE(sks_short_wait) * NSEC_PER_USEC;
}

/* Spins until there are bytes, for @budget ns after @start at most, and for @gather of them without
 * a look. Stops if another task wants this CPU. Sets *@spun to the time it took, which may be
 * negative if the task moved to another CPU.
 */
static bool spin_for_bytes(const struct sock *sk, const struct pair_end *end, u32 pos, u64 start,
			   s64 gather, s64 budget, s64 *spun)
{
	bool hit;

	*spun = 0;
	while (*spun < gather && single_task_running() && !need_resched()) {
		cpu_relax();
		*spun = local_clock() - start;
	}
	for (;;) {
		hit = sks_rx_has_more(sk, end, pos);
		if (hit || *spun >= budget || !single_task_running() || need_resched() ||
		    signal_pending(current))
			break;
		cpu_relax();
		*spun = local_clock() - start;
	}
	if (*spun > 0)
		sks_stat_add(SOCKSPLICE_STAT_busy_poll_nsec, *spun);
	if (hit)
		sks_stat_inc(SOCKSPLICE_STAT_busy_poll_hits);
	return hit;
}

/* Spins with the lock dropped. Takes the time off @timeo as schedule_timeout() would. */
static bool rx_spin(struct sock *sk, struct pair_end *end, long *timeo, u32 pos, s64 budget)
{
	const u64 sent = end->ring_bytes + end->tcp_bytes;
	const s64 gather = end->rx_stream_tail && sent == end->rx_sent ? min(GATHER, budget) : 0;
	const unsigned long before = jiffies;
	s64 spun;
	bool hit;

	end->rx_sent = sent;
	sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	release_sock(sk);
	hit = spin_for_bytes(sk, end, pos, local_clock(), gather, budget, &spun);
	lock_sock(sk);
	end->rx_stream_tail = hit && spun < HOT;
	sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	if (*timeo != MAX_SCHEDULE_TIMEOUT)
		*timeo -= min_t(unsigned long, *timeo, jiffies - before);
	return hit;
}

/* The end of the last poll on this CPU that found nothing. Compared, never followed. */
static DEFINE_PER_CPU(const struct pair_end *, polled_last);

bool sks_rx_poll_wait(const struct sock *sk, struct pair_end *end)
{
	const u64 sent = READ_ONCE(end->ring_bytes) + READ_ONCE(end->tcp_bytes);
	const bool again = this_cpu_read(polled_last) == end;
	const s64 budget = short_nsec();
	const bool answered = sent != READ_ONCE(end->poll_sent);
	const int quiet = answered ? 0 : min(READ_ONCE(end->poll_quiet) + 1, STREAM_POLLS);
	const s64 gather = quiet ? min(GATHER, budget) : 0;
	bool hit = false;
	u64 start;
	s64 spun;

	this_cpu_write(polled_last, end);
	WRITE_ONCE(end->poll_sent, sent);
	WRITE_ONCE(end->poll_quiet, quiet);
	if (!budget || !may_be_short())
		return false;
	start = local_clock();
	if (again && (!quiet || quiet == STREAM_POLLS) &&
	    READ_ONCE(end->poll_short) >= SHORT_WAITS) {
		hit = spin_for_bytes(sk, end, SOCKSPLICE_RX_MARK, start, gather, budget, &spun);
		if (!hit)
			WRITE_ONCE(end->poll_short, 0);
	}
	WRITE_ONCE(end->poll_began, hit ? 0 : start);
	return hit;
}

/* Twice as long counts as short: the poller was woken meanwhile, which takes about as long. */
void sks_rx_poll_over(struct pair_end *end)
{
	const u64 took = local_clock() - READ_ONCE(end->poll_began);
	const unsigned char shorts = READ_ONCE(end->poll_short);

	WRITE_ONCE(end->poll_began, 0);
	WRITE_ONCE(end->poll_short, took < 2 * short_nsec() ? min(shorts + 1, SHORT_WAITS) : 0);
}

/* Takes the reader off the queue at the first wake-up. So a writer that goes on writing before
 * this reader runs finds no sleeper, and spends no time on waking it again.
 */
static int rx_wake(struct wait_queue_entry *wait, unsigned int mode, int flags, void *key)
{
	struct rx_sleeper *s = container_of(wait, struct rx_sleeper, wait);
	int ret;

	if (s->began)
		s->woken = local_clock();
	ret = woken_wake_function(wait, mode, flags, key);
	list_del_init(&wait->entry);
	return ret;
}

bool sks_rx_is_sleeper(const struct wait_queue_entry *wait)
{
	return wait->func == rx_wake;
}

static int rx_sleep(struct sock *sk, struct pair_end *end, long *timeo, u32 pos,
		    struct rx_sleeper *s)
{
	int rc;

	init_wait_entry(&s->wait, 0);
	s->wait.func = rx_wake;
	add_wait_queue(sk_sleep(sk), &s->wait);
	sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	/* Queue the reader before it looks at the ring. Pairs with skwq_has_sleeper() in the
	 * writer's call of sk_data_ready. TCP needs no barrier, because its writer holds our lock.
	 */
	smp_mb();
	rc = sk_wait_event(sk, timeo, sks_rx_has_more(sk, end, pos), &s->wait);
	sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
	/* Takes the queue's lock, even if the reader is off the queue. So no CPU is in rx_wake()
	 * any more, and the module may go.
	 */
	remove_wait_queue(sk_sleep(sk), &s->wait);
	return rc;
}

int sks_rx_wait(struct sock *sk, struct pair_end *end, long *timeo, u32 pos)
{
	const bool may_be = may_be_short();
	struct rx_sleeper s = { .began = may_be ? local_clock() : 0 };
	u64 spin = busy_poll_nsec(sk, end);
	int rc = 0;

	if (!spin && may_be && end->rx_short >= SHORT_WAITS)
		spin = short_nsec();
	/* With MSG_PEEK another reader may take bytes while as many come. A reader that spins is on
	 * no queue, and would see the number that it has peeked.
	 */
	if (pos && pos != SOCKSPLICE_RX_MARK)
		spin = 0;
	/* TCP notifies its readers only when its own bytes reach the mark. */
	if (READ_ONCE(sk->sk_rcvlowat) > 1)
		sks_rcvlowat_poller(sks_end_peer(end));
	sks_end_pin(sk, end);
	end->rx_sleepers++;
	if (!spin || !rx_spin(sk, end, timeo, pos, spin)) {
		rc = rx_sleep(sk, end, timeo, pos, &s);
		if (rc > 0 && s.began && (s.woken ?: local_clock()) - s.began < short_nsec())
			end->rx_short = min(end->rx_short + 1, SHORT_WAITS);
		else
			end->rx_short = 0;
	}
	end->rx_sleepers--;
	sks_end_unpin(sk, end);
	return min(rc, 0);
}

int sks_rx_nothing_left_at_mark(struct sock *sk, long timeo)
{
	if (sock_flag(sk, SOCK_DONE))
		return 0;
	if (sk->sk_err)
		return sock_error(sk);
	if (sk->sk_shutdown & RCV_SHUTDOWN)
		return 0;
	if (sk->sk_state == TCP_CLOSE)
		return -ENOTCONN;
	return timeo ? 1 : -EAGAIN;
}

int sks_rx_nothing_left(struct sock *sk, long timeo)
{
	const int ret = sks_rx_nothing_left_at_mark(sk, timeo);

	return ret > 0 && signal_pending(current) ? sock_intr_errno(timeo) : ret;
}
