// SPDX-License-Identifier: GPL-2.0
/*
 * The arguments of SO_SPLICE, and the private one of its two ways in: the socket option SOL_IP,
 * SOCKSPLICE_SO_SPLICE. The other way is sockopt_bsd.c. TCP sockets of both families pass options
 * that the kernel does not know to netfilter's core, which calls this. The socket is not locked,
 * and netfilter's core holds the module meanwhile.
 */
#include <linux/compat.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/netfilter.h>
#include <linux/uaccess.h>
#include <net/sock.h>

#include "sosplice/begin.h"
#include "sosplice/sockopt.h"
#include "sosplice/sockopt_bsd.h"
#include "sosplice/splice.h"
#include "uapi/so_splice.h"

/* Accepts what OpenBSD accepts: nothing, an int, or the whole struct. The struct of 32-bit callers
 * is another one, so they may only give an int.
 */
int sks_sockopt_set(struct sock *sk, sockptr_t arg, unsigned int len)
{
	struct socksplice_so_splice opt = { .sp_fd = -1 };

	if (len >= sizeof(opt) && !in_compat_syscall()) {
		if (copy_from_sockptr(&opt, arg, sizeof(opt)))
			return -EFAULT;
	} else if (len == sizeof(opt.sp_fd)) {
		if (copy_from_sockptr(&opt.sp_fd, arg, sizeof(opt.sp_fd)))
			return -EFAULT;
	} else if (len) {
		return -EINVAL;
	}
	if (opt.sp_idle_sec < 0 || opt.sp_idle_usec < 0 || opt.sp_idle_usec >= USEC_PER_SEC)
		return -EINVAL;
	/* A century is long enough. */
	opt.sp_idle_sec = min_t(s64, opt.sp_idle_sec, 100LL * 366 * 24 * 60 * 60);
	return sks_splice_set(sk, opt.sp_fd, opt.sp_max,
			      opt.sp_idle_sec * USEC_PER_SEC + opt.sp_idle_usec);
}

int sks_sockopt_get(const struct sock *sk, sockptr_t val, int *len)
{
	s64 moved;

	if (!sks_splice_can(sk))
		return -EPROTONOSUPPORT;
	if (*len < (int)sizeof(moved))
		return -EINVAL;
	moved = sks_splice_moved(sk);
	*len = sizeof(moved);
	return copy_to_sockptr(val, &moved, sizeof(moved)) ? -EFAULT : 0;
}

static int private_set(struct sock *sk, int optval, sockptr_t arg, unsigned int len)
{
	return sks_sockopt_set(sk, arg, len);
}

static int private_get(struct sock *sk, int optval, void __user *user, int *len)
{
	return sks_sockopt_get(sk, USER_SOCKPTR(user), len);
}

static struct nf_sockopt_ops private_option = {
	.pf		= PF_INET,
	.set_optmin	= SOCKSPLICE_SO_SPLICE,
	.set_optmax	= SOCKSPLICE_SO_SPLICE + 1,
	.set		= private_set,
	.get_optmin	= SOCKSPLICE_SO_SPLICE,
	.get_optmax	= SOCKSPLICE_SO_SPLICE + 1,
	.get		= private_get,
	.owner		= THIS_MODULE,
};

void sks_sockopt_enable(bool on)
{
	WRITE_ONCE(sks_splice_enabled, on);
	sks_sockopt_bsd_update();
}

static int enable_param_set(const char *val, const struct kernel_param *kp)
{
	bool on;
	int err = kstrtobool(val, &on);

	if (!err)
		sks_sockopt_enable(on);
	return err;
}

static const struct kernel_param_ops enable_param_ops = {
	.set = enable_param_set,
	.get = param_get_bool,
};

module_param_cb(so_splice, &enable_param_ops, &sks_splice_enabled, 0644);
__MODULE_PARM_TYPE(so_splice, "bool");
MODULE_PARM_DESC(so_splice, "Accept new splices (SO_SPLICE) (default: no)");

int sks_sockopt_init(void)
{
	int err = nf_register_sockopt(&private_option);

	if (!err)
		sks_sockopt_bsd_init();
	return err;
}

void sks_sockopt_exit(void)
{
	sks_sockopt_bsd_exit();
	nf_unregister_sockopt(&private_option);
}
