// SPDX-License-Identifier: GPL-2.0
#include <linux/workqueue.h>
#include <net/sock.h>

#include "sosplice/end_all.h"
#include "sosplice/endpoint.h"
#include "sosplice/splice.h"

#define DROP_BATCH	256
#define DROP_AGAIN	(HZ / 50 ? : 1)		/* jiffies */

static void drop_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(drop, drop_work);

/* True if there is nothing left to do for this socket. */
static bool drop_one(struct sock *sk)
{
	struct soend *end;
	bool done = true;

	if (!socksplice_soend_trylock(sk))
		return false;
	end = socksplice_soend_get(sk);
	if (end && !end->out && !end->in) {
		socksplice_soend_detach(sk);
	} else if (end) {
		if (end->out)
			set_bit(SOSPLICE_DROP, &end->out->flags);
		socksplice_soend_queue(end);
		done = false;
	}
	release_sock(sk);
	return done;
}

static void drop_work(struct work_struct *work)
{
	static struct sock *batch[DROP_BATCH];	/* this work's only */
	bool again = false;
	unsigned int n, i;
	u64 last = 0;

	do {
		n = socksplice_soends_marked(batch, DROP_BATCH, &last);
		for (i = 0; i < n; i++) {
			again |= !drop_one(batch[i]);
			sock_put(batch[i]);
		}
		cond_resched();
	} while (n == DROP_BATCH);
	if (again)
		schedule_delayed_work(&drop, DROP_AGAIN);
}

void socksplice_soend_drop_all(void)
{
	socksplice_soends_mark();
	cancel_delayed_work(&drop);
	schedule_delayed_work(&drop, 0);
}

void socksplice_soend_drop_exit(void)
{
	cancel_delayed_work_sync(&drop);
}
