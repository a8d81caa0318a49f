// SPDX-License-Identifier: GPL-2.0
/*
 * One instance serves all CPUs. The first thread that spins owns it and calls napi_poll(). The
 * others see that in its state, which nobody writes meanwhile, and spin beside it.
 */
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "core/napi.h"
#include "core/stats.h"

#ifdef CONFIG_NET_RX_BUSY_POLL

unsigned int sks_napi_id __read_mostly;	/* written under instance_lock, read by anybody */

static DEFINE_MUTEX(instance_lock);
static struct net_device *dev;		/* instance_lock; its private part is the instance */
static bool barred;			/* instance_lock; no instance may be made */
static bool leaving;			/* written under instance_lock, read by the owner */

static void want_work(struct work_struct *work)
{
	sks_napi_start();
}
static DECLARE_WORK(wanted, want_work);

/* There is nothing to receive: the loop around this call looks whether bytes have come. */
static int napi_poll(struct napi_struct *napi, int budget)
{
	sks_stat_inc(SOCKSPLICE_STAT_napi_polls);
	/* An owner gives the instance up when its CPU is wanted, and finds it disabled then. */
	if (unlikely(READ_ONCE(leaving))) {
		set_tsk_need_resched(current);
		set_preempt_need_resched();
	}
	napi_complete_done(napi, 0);
	return 0;
}

void sks_napi_want(void)
{
	if (!READ_ONCE(sks_napi_id))
		schedule_work(&wanted);
}

void sks_napi_start(void)
{
	struct napi_struct *napi;

	mutex_lock(&instance_lock);
	if (!dev && !barred)
		dev = alloc_netdev_dummy(sizeof(*napi));
	if (dev && !sks_napi_id) {
		napi = netdev_priv(dev);
		WRITE_ONCE(leaving, false);
		netif_napi_add(dev, napi, napi_poll);
		napi_enable(napi);
		WRITE_ONCE(sks_napi_id, napi->napi_id);
	}
	mutex_unlock(&instance_lock);
}

void sks_napi_stop(void)
{
	struct napi_struct *napi;

	mutex_lock(&instance_lock);
	barred = true;
	if (dev) {
		napi = netdev_priv(dev);
		WRITE_ONCE(sks_napi_id, 0);
		WRITE_ONCE(leaving, true);
		napi_disable(napi);
		netif_napi_del(napi);
		free_netdev(dev);
		dev = NULL;
	}
	mutex_unlock(&instance_lock);
}

void sks_napi_allow(void)
{
	mutex_lock(&instance_lock);
	barred = false;
	mutex_unlock(&instance_lock);
}

void sks_napi_exit(void)
{
	cancel_work_sync(&wanted);
	sks_napi_stop();
}

#endif
