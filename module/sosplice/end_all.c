// SPDX-License-Identifier: GPL-2.0
#include <linux/workqueue.h>
#include <net/sock.h>

#include "sosplice/end_all.h"
#include "sosplice/endpoint.h"
#include "sosplice/splice.h"

#define DROP_BATCH	256
#define DROP_AGAIN (HZ / 50 ?: 1)  /* jiffies */

static void end_all_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(drop, end_all_work);

/* True if there is nothing left to do for this socket. */
static bool drop_one(struct sock *sk)
{
	struct splice_endpoint *end;
	bool done = true;

	if (!sks_endpoint_trylock(sk))
		return false;
	end = sks_endpoint_of(sk);
	if (end && !end->out && !end->in) {
		sks_endpoint_detach(sk);
	} else if (end) {
		if (end->out)
			set_bit(SPLICE_DROP, &end->out->flags);
		sks_endpoint_queue(end);
		done = false;
	}
	release_sock(sk);
	return done;
}

static void end_all_work(struct work_struct *work)
{
	static struct sock *batch[DROP_BATCH];	/* only this work uses it */
	bool again = false;
	unsigned int n, i;
	u64 last = 0;

	do {
		n = sks_endpoints_marked(batch, DROP_BATCH, &last);
		for (i = 0; i < n; i++) {
			again |= !drop_one(batch[i]);
			sock_put(batch[i]);
		}
		cond_resched();
	} while (n == DROP_BATCH);
	if (again)
		schedule_delayed_work(&drop, DROP_AGAIN);
}

void sks_endpoint_drop_all(void)
{
	sks_endpoints_mark();
	cancel_delayed_work(&drop);
	schedule_delayed_work(&drop, 0);
}

void sks_endpoint_drop_exit(void)
{
	cancel_delayed_work_sync(&drop);
}
