// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>

#include "core/params.h"
#include "uapi/socksplice.h"

/* The values that an unsigned int parameter accepts. */
struct bounds {
	unsigned int *value;
	unsigned int min, max;
	bool is_ring;		/* accepts only what sks_ring_size_valid() does, */
	bool zero;		/* or zero */
};

bool sks_ring_size_valid(u32 size)
{
	return is_power_of_2(size) && size >= SOCKSPLICE_RING_SIZE_MIN &&
	       size <= SOCKSPLICE_RING_SIZE_MAX;
}

static bool is_within(const struct bounds *b, unsigned int n)
{
	if (b->is_ring)
		return sks_ring_size_valid(n) || (b->zero && !n);
	return n >= b->min && n <= b->max;
}

static int bounded_set(const char *val, const struct kernel_param *kp)
{
	const struct bounds *b = kp->arg;
	unsigned int n;
	int err = kstrtouint(val, 0, &n);

	if (err)
		return err;
	if (!is_within(b, n))
		return -EINVAL;
	WRITE_ONCE(*b->value, n);
	return 0;
}

static int bounded_get(char *buffer, const struct kernel_param *kp)
{
	const struct bounds *b = kp->arg;

	return sysfs_emit(buffer, "%u\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = bounded_set,
	.get = bounded_get,
};

#define BOUNDED(name, standard, ...)							\
	unsigned int sks_##name = (standard);					\
	static const struct bounds name##_bounds = { &sks_##name, __VA_ARGS__ };	\
	module_param_cb(name, &bounded_ops, (void *)&name##_bounds, 0644)

#define SWITCH(name, standard)								\
	bool sks_##name = (standard);						\
	module_param_named(name, sks_##name, bool, 0644)

/* All parameters: name, default, bounds, and the text that `modinfo` prints. */
/* clang-format off */

SWITCH(pairing, true);
MODULE_PARM_DESC(pairing, "Pair new connections whose two ends are enrolled (default: yes)");

SWITCH(shadow, false);
MODULE_PARM_DESC(shadow, "Match and count new connections, but move no data (default: no)");

SWITCH(unprivileged_splice, true);
MODULE_PARM_DESC(unprivileged_splice, "Allow SO_SPLICE to all processes of the initial user namespace, not only to those with CAP_NET_ADMIN (default: yes)");

BOUNDED(splice_cpu_percent, 75, 1, 100);
MODULE_PARM_DESC(splice_cpu_percent, "Percent, 1 to 100, of a contended CPU that the splices of one user may run (default: 75)");

BOUNDED(path_timeout, 5, 3, 300);
MODULE_PARM_DESC(path_timeout, "Seconds, 3 to 300, after which a ring closes whose connection loses its packets (default: 5)");

BOUNDED(ring_idle, 30, 0, 86400);
MODULE_PARM_DESC(ring_idle, "Seconds, up to 86400, without a byte after which an empty ring is freed; 0: never (default: 30). After one second it keeps one page");

BOUNDED(short_wait, 10, 0, SOCKSPLICE_BUSY_POLL_MAX);
MODULE_PARM_DESC(short_wait, "Microseconds, up to 1000, that a reader or a poll spins before it sleeps if its last waits were shorter; 0: they spin only where SO_BUSY_POLL or a policy says so (default: 10)");

BOUNDED(ring_size, SOCKSPLICE_RING_SIZE_DEFAULT, .is_ring = true);
MODULE_PARM_DESC(ring_size, "Default bytes that one direction of a pair can hold, a power of two (default: 65536). Pages are allocated one by one, as the data need them");

BOUNDED(ring_max, SOCKSPLICE_RING_MAX_DEFAULT, .is_ring = true, .zero = true);
MODULE_PARM_DESC(ring_max, "Default bytes that a ring may grow to if it is full again and again, a power of two; 0: rings keep their size (default: 262144)");

#define CAP_UNSET	U64_MAX

u64 sks_memory_cap = CAP_UNSET;
module_param_named(memory_cap, sks_memory_cap, ullong, 0644);
MODULE_PARM_DESC(memory_cap, "Most bytes that all rings may hold together; 0: no limit (default: an eighth of the memory)");
/* clang-format on */

void __init sks_params_init(void)
{
	/* As net.ipv4.tcp_mem bounds TCP's buffers: an eighth of the memory. */
	const u64 eighth = (u64)totalram_pages() * PAGE_SIZE / 8;

	if (sks_memory_cap == CAP_UNSET)
		sks_memory_cap = min(round_down(eighth, SZ_1M), SOCKSPLICE_MEMORY_CAP_MAX);
}
