// SPDX-License-Identifier: GPL-2.0
/*
 * Takes tcp_splice_read(), or tcp_set_rcvlowat() with lowat=1, as a live patch would: who
 * else wants to redirect it is refused. It redirects nothing.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/net.h>
#include <net/inet_common.h>

static bool lowat;
module_param(lowat, bool, 0444);

static void notrace occupy_callback(unsigned long ip, unsigned long parent_ip,
				    struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
}

static struct ftrace_ops occupy_ops = {
	.func = occupy_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

static int __init occupy_init(void)
{
	unsigned long addr = lowat ? (unsigned long)inet_stream_ops.set_rcvlowat :
				     (unsigned long)inet_stream_ops.splice_read;
	int err;

	err = ftrace_set_filter_ip(&occupy_ops, addr, 0, 0);
	if (!err)
		err = register_ftrace_function(&occupy_ops);
	if (err)
		ftrace_free_filter(&occupy_ops);
	return err;
}

static void __exit occupy_exit(void)
{
	unregister_ftrace_function(&occupy_ops);
	ftrace_free_filter(&occupy_ops);
}

module_init(occupy_init);
module_exit(occupy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Owns tcp_splice_read() or tcp_set_rcvlowat(), for a test of socksplice");
