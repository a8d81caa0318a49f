// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which the parts come up, and its mirror.
 *
 * Unloading. Each attached socket holds a module reference, and one more stands for the tasks
 * that are inside a function of ours (inflight.h). So the exit function runs when there is no
 * such socket, and waits for nothing that a user can keep; ARCHITECTURE.md, "Unloading", goes
 * through what it does wait for.
 *   1. No new sockets (sockopt, kfunc), no more events (notify), and no new calls (capture,
 *	netlink, hook).
 *   2. Tasks that are about to return from a function of ours do so (inflight).
 *   3. Pending work and callbacks run: rcvlowat, probe, reclaim, yield, unpair, the splices,
 *	match. The end comes last, because they may hold its last references.
 *   4. Memory is freed.
 */
#include <linux/module.h>

#include "admit/enroll.h"
#include "admit/helper.h"
#include "admit/kfunc.h"
#include "admit/match.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "core/nap.h"
#include "core/napi.h"
#include "core/params.h"
#include "ctl/netlink.h"
#include "ctl/notify.h"
#include "datapath/capture.h"
#include "datapath/proto.h"
#include "datapath/rcvlowat.h"
#include "datapath/rx.h"
#include "datapath/splice_read.h"
#include "datapath/unpair.h"
#include "pair/end.h"
#include "pair/memory.h"
#include "sockmap/psock.h"
#include "sosplice/begin.h"
#include "sosplice/sockopt.h"
#include "sosplice/splice.h"
#include "upkeep/probe.h"
#include "upkeep/reclaim.h"
#include "upkeep/yield.h"

static int __init sks_init(void)
{
	int err;

	sks_params_init();
	sks_nap_init();
	err = sks_proto_init();
	if (err)
		return err;
	err = sks_enroll_init();
	if (err)
		return err;
	err = sks_end_init(sks_match_unpark);
	if (err)
		return err;
	err = sks_match_init();
	if (err)
		goto err_end;
	err = sks_splice_init();
	if (err)
		goto err_match;
	sks_helper_init();
	sks_pair_splice_init();
	sks_psock_init();
	/* Without the hook everything but pairing works; see enroll.c. */
	sks_hook_init();
	err = sks_netlink_init();
	if (err)
		goto err_hook;
	sks_notify_init();
	err = sks_capture_init();
	if (err)
		goto err_netlink;
	err = sks_kfunc_init();
	if (err)
		goto err_capture;
	err = sks_sockopt_init();
	if (err)
		goto err_policy;
	WRITE_ONCE(sks_loaded, true);
	sks_hook_loaded();
	return 0;

err_policy:
	sks_kfunc_exit();
err_capture:
	sks_capture_exit();
err_netlink:
	sks_notify_stop();
	sks_netlink_exit();
err_hook:
	sks_hook_exit();
	sks_inflight_drain();
	sks_napi_exit();
	sks_nap_exit();
	sks_helper_exit();
	sks_unpair_exit();
	sks_splice_exit();
err_match:
	sks_match_exit();
err_end:
	sks_end_exit();
	return err;
}

static void __exit sks_exit(void)
{
	sks_sockopt_exit();
	sks_kfunc_exit();
	sks_capture_exit();
	sks_notify_stop();
	sks_netlink_exit();
	sks_hook_exit();
	sks_inflight_drain();
	sks_napi_exit();
	sks_nap_exit();
	sks_helper_exit();
	sks_rcvlowat_exit();
	sks_probe_exit();
	sks_reclaim_exit();
	sks_yield_exit();
	sks_unpair_exit();
	sks_splice_exit();
	sks_match_exit();
	sks_end_exit();
}

module_init(sks_init);
module_exit(sks_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The authors of socksplice");
MODULE_VERSION("0.1.0");
MODULE_DESCRIPTION("Socket splicing: local TCP connections without the network stack");
