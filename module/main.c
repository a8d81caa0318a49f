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
#include "sosplice/sockopt.h"
#include "sosplice/splice.h"
#include "upkeep/probe.h"
#include "upkeep/reclaim.h"
#include "upkeep/yield.h"

module_param_named(pairing, socksplice_pairing, bool, 0644);
MODULE_PARM_DESC(pairing, "Pair new connections whose two ends are enrolled (default: yes)");
module_param_named(shadow, socksplice_shadow, bool, 0644);
MODULE_PARM_DESC(shadow, "Match and count new connections, but move no data (default: no)");

module_param_named(unprivileged_splice, socksplice_sosplice_unprivileged, bool, 0644);
MODULE_PARM_DESC(unprivileged_splice, "Whoever is in the initial user namespace may use SO_SPLICE, not only CAP_NET_ADMIN (default: yes)");

/* An unsigned int between two bounds. */
struct bounded {
	unsigned int *value, min, max;
};

static int bounded_set(const char *val, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;
	unsigned int n;
	int err = kstrtouint(val, 0, &n);

	if (err)
		return err;
	if (n < b->min || n > b->max)
		return -EINVAL;
	WRITE_ONCE(*b->value, n);
	return 0;
}

static int bounded_get(char *buffer, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;

	return sysfs_emit(buffer, "%u\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = bounded_set,
	.get = bounded_get,
};

#define BOUNDED_PARAM(name, variable, least, most)					\
	static const struct bounded name##_bounds = { &(variable), least, most };	\
	module_param_cb(name, &bounded_ops, (void *)&name##_bounds, 0644)

BOUNDED_PARAM(splice_cpu_percent, socksplice_budget_percent, 1, 100);
MODULE_PARM_DESC(splice_cpu_percent, "Percent of a CPU that others want too, which the splices of one user may run, 1 to 100 (default: 75)");

BOUNDED_PARAM(path_timeout, socksplice_path_timeout, SOCKSPLICE_PATH_TIMEOUT_MIN,
	      SOCKSPLICE_PATH_TIMEOUT_MAX);
MODULE_PARM_DESC(path_timeout, "Seconds, 3 to 300, within which a ring closes whose connection's packets are lost (default: 5)");

BOUNDED_PARAM(ring_idle, socksplice_ring_idle, 0, SOCKSPLICE_RING_IDLE_MAX);
MODULE_PARM_DESC(ring_idle, "Seconds, up to 86400, without a byte after which an empty ring is given back; 0: never (default: 30). After one second it keeps one page");

BOUNDED_PARAM(short_wait, socksplice_short_wait, 0, SOCKSPLICE_BUSY_POLL_MAX);
MODULE_PARM_DESC(short_wait, "Microseconds, up to 1000, that a reader spins whose last waits were shorter; 0: only those spin that SO_BUSY_POLL or a policy asks to (default: 10)");

static int ring_size_set(const char *val, const struct kernel_param *kp)
{
	unsigned int size;

	if (kstrtouint(val, 0, &size) || !socksplice_ring_size_valid(size))
		return -EINVAL;
	WRITE_ONCE(socksplice_ring_size, size);
	return 0;
}

static const struct kernel_param_ops ring_size_ops = {
	.set = ring_size_set,
	.get = param_get_uint,
};
module_param_cb(ring_size, &ring_size_ops, &socksplice_ring_size, 0644);
MODULE_PARM_DESC(ring_size, "Default bytes that a direction of a pair can hold, a power of two (default: 65536); it takes them page by page, as it needs them");

static int ring_max_set(const char *val, const struct kernel_param *kp)
{
	unsigned int size;

	if (kstrtouint(val, 0, &size) || (size && !socksplice_ring_size_valid(size)))
		return -EINVAL;
	WRITE_ONCE(socksplice_ring_max, size);
	return 0;
}

static const struct kernel_param_ops ring_max_ops = {
	.set = ring_max_set,
	.get = param_get_uint,
};
module_param_cb(ring_max, &ring_max_ops, &socksplice_ring_max, 0644);
MODULE_PARM_DESC(ring_max, "Bytes that a ring may grow to if it is full again and again, where no policy says, or 0, and it keeps its size (default: 262144)");

module_param_named(memory_cap, socksplice_memory_cap, ullong, 0644);
MODULE_PARM_DESC(memory_cap, "Most bytes that all rings may hold together; 0: no limit (default: an eighth of the memory)");

static int __init socksplice_init(void)
{
	int err;

	socksplice_memory_init();
	socksplice_moment_init();
	err = socksplice_proto_init();
	if (err)
		return err;
	err = socksplice_enroll_init();
	if (err)
		return err;
	err = socksplice_chan_init();
	if (err)
		return err;
	err = socksplice_match_init();
	if (err)
		goto err_chan;
	err = socksplice_sosplice_init();
	if (err)
		goto err_ident;
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
err_ident:
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
