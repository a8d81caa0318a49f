// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which the parts come up, and its mirror.
 *
 * Leaving. Each attached socket holds a module reference, and so does each task
 * that sleeps in a function of ours (inflight.h): there is neither when the exit
 * function runs. It waits for nothing that a user can keep; ARCHITECTURE.md,
 * "Unloading", goes through what it does wait for.
 *   1. No new sockets (sopt, policy), no more events, and no new calls (capture,
 *	netlink, hook).
 *   2. Tasks that are about to return from a function of ours do so (inflight).
 *   3. Work and callbacks that still have to run do so (kick, probe, idle,
 *	tap, drop, sosplice and ident, then chan, whose last references they
 *	may hold).
 *   4. Memory goes.
 */
#include <linux/module.h>

#include "admit/enroll.h"
#include "admit/helper.h"
#include "admit/kfunc.h"
#include "admit/match.h"
#include "core/hook.h"
#include "core/inflight.h"
#include "core/nap.h"
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

static int __init socksplice_init(void)
{
	int err;

	socksplice_params_init();
	socksplice_moment_init();
	err = socksplice_proto_init();
	if (err)
		return err;
	err = socksplice_enroll_init();
	if (err)
		return err;
	err = socksplice_chan_init(socksplice_match_unpark);
	if (err)
		return err;
	err = socksplice_match_init();
	if (err)
		goto err_chan;
	err = socksplice_sosplice_init();
	if (err)
		goto err_match;
	socksplice_helper_init();
	socksplice_pair_splice_init();
	socksplice_psock_init();
	/* Without the hook everything but pairing works; see enroll.c. */
	socksplice_hook_init();
	err = socksplice_netlink_init();
	if (err)
		goto err_hook;
	socksplice_notify_init();
	err = socksplice_capture_init();
	if (err)
		goto err_netlink;
	err = socksplice_policy_init();
	if (err)
		goto err_capture;
	err = socksplice_sopt_init();
	if (err)
		goto err_policy;
	WRITE_ONCE(socksplice_loaded, true);
	return 0;

err_policy:
	socksplice_policy_exit();
err_capture:
	socksplice_capture_exit();
err_netlink:
	socksplice_notify_stop();
	socksplice_netlink_exit();
err_hook:
	socksplice_hook_exit();
	socksplice_inflight_drain();
	socksplice_moment_exit();
	socksplice_helper_exit();
	socksplice_drop_exit();
	socksplice_sosplice_exit();
err_match:
	socksplice_match_exit();
err_chan:
	socksplice_chan_exit();
	return err;
}

static void __exit socksplice_exit(void)
{
	socksplice_sopt_exit();
	socksplice_policy_exit();
	socksplice_capture_exit();
	socksplice_notify_stop();
	socksplice_netlink_exit();
	socksplice_hook_exit();
	socksplice_inflight_drain();
	socksplice_moment_exit();
	socksplice_helper_exit();
	socksplice_kick_exit();
	socksplice_probe_exit();
	socksplice_idle_exit();
	socksplice_tap_exit();
	socksplice_drop_exit();
	socksplice_sosplice_exit();
	socksplice_match_exit();
	socksplice_chan_exit();
}

module_init(socksplice_init);
module_exit(socksplice_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The authors of socksplice");
MODULE_VERSION("0.1.0");
MODULE_DESCRIPTION("Socket splicing: local TCP connections without the network stack");
