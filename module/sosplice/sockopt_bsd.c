// SPDX-License-Identifier: GPL-2.0
/*
 * Similar to core/hook.c. A call that was redirected holds a module reference. If the module is
 * going, it returns at once, and sks_inflight_drain() waits for that.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sockptr.h>
#include <net/sock.h>

#include "sosplice/begin.h"
#include "sosplice/sockopt.h"
#include "sosplice/sockopt_bsd.h"
#include "sosplice/splice.h"

static DEFINE_MUTEX(bsd_lock);	/* protects the three below */
static bool bsd_ready;		/* between init and exit */
static bool bsd_on = true;		/* the administrator wants it; also read without */
static int bsd_status = LITERAL_UNUSED;	/* read without */

int sks_sockopt_bsd_status(void)
{
	return READ_ONCE(bsd_status);
}

#if defined(CONFIG_DYNAMIC_FTRACE) && defined(CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS)

/* Replaces sk_setsockopt(), for our option only. May sleep in a page fault for as long as the
 * caller likes. That makes rmmod fail, but does not make it hang.
 */
static int bsd_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			  unsigned int optlen)
{
	int ret = -ENOPROTOOPT;

	if (try_module_get(THIS_MODULE)) {
		ret = sks_sockopt_set(sk, optval, optlen);
		module_put(THIS_MODULE);
	}
	return ret;
}

/* Replaces sk_getsockopt() in the same way. */
static int bsd_getsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			  sockptr_t optlen)
{
	int len, ret = -ENOPROTOOPT;

	if (try_module_get(THIS_MODULE)) {
		ret = -EFAULT;
		if (!copy_from_sockptr(&len, optlen, sizeof(len)))
			ret = sks_sockopt_get(sk, optval, &len);
		if (!ret && copy_to_sockptr(optlen, &len, sizeof(len)))
			ret = -EFAULT;
		module_put(THIS_MODULE);
	}
	return ret;
}

/* Both kernel functions have the level and the option as these arguments. */
static void notrace redirect(struct ftrace_regs *fregs, void *function)
{
	if ((int)ftrace_regs_get_argument(fregs, 1) == SOL_SOCKET &&
	    (int)ftrace_regs_get_argument(fregs, 2) == LITERAL_SO_SPLICE)
		ftrace_regs_set_instruction_pointer(fregs, (unsigned long)function);
}

static void notrace set_callback(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
				 struct ftrace_regs *fregs)
{
	redirect(fregs, bsd_setsockopt);
}

static void notrace get_callback(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
				 struct ftrace_regs *fregs)
{
	redirect(fregs, bsd_getsockopt);
}

static struct bsd_hook {
	char *function;
	bool filtered;		/* bsd_lock */
	struct ftrace_ops ops;
} hooks[] = {
	{
		.function = "sk_setsockopt",
		.ops = {
			.func = set_callback,
			.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
		},
	},
	{
		.function = "sk_getsockopt",
		.ops = {
			.func = get_callback,
			.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
		},
	},
};

static int hook_add(struct bsd_hook *h)
{
	int err = 0;

	/* Set the filter once only: ftrace_free_filter() leaves pointers behind that set_filter
	 * would follow.
	 */
	if (!h->filtered)
		err = ftrace_set_filter(&h->ops, h->function, strlen(h->function), 0);
	h->filtered = !err;
	return err ?: register_ftrace_function(&h->ops);
}

static int hooks_add(void)
{
	int err = hook_add(&hooks[0]);

	if (err)
		return err;
	err = hook_add(&hooks[1]);
	if (err)
		unregister_ftrace_function(&hooks[0].ops);
	return err;
}

static void hooks_remove(void)
{
	unregister_ftrace_function(&hooks[1].ops);
	unregister_ftrace_function(&hooks[0].ops);
}

/* Frees the filters for good. */
static void hooks_free(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (hooks[i].filtered)
			ftrace_free_filter(&hooks[i].ops);
}

#else

static int hooks_add(void)
{
	return -EOPNOTSUPP;
}

static void hooks_remove(void)
{
}

static void hooks_free(void)
{
}

#endif

void sks_sockopt_bsd_update(void)
{
	int status;

	mutex_lock(&bsd_lock);
	status = bsd_status;
	if (bsd_ready && bsd_on && status && READ_ONCE(sks_splice_enabled)) {
		status = hooks_add();
		if (status)
			pr_warn("setsockopt(SOL_SOCKET, SO_SPLICE) cannot be had (error %d): use the module's own level, as <socksplice.h> does\n",
				status);
	} else if (!(bsd_ready && bsd_on)) {
		if (!status)
			hooks_remove();
		status = LITERAL_UNUSED;
	}
	WRITE_ONCE(bsd_status, status);
	mutex_unlock(&bsd_lock);
}

static void set_ready(bool ready)
{
	mutex_lock(&bsd_lock);
	bsd_ready = ready;
	mutex_unlock(&bsd_lock);
	sks_sockopt_bsd_update();
}

void sks_sockopt_bsd_init(void)
{
	set_ready(true);
}

void sks_sockopt_bsd_exit(void)
{
	set_ready(false);
	hooks_free();
}

static int bsd_param_set(const char *val, const struct kernel_param *kp)
{
	int err;

	mutex_lock(&bsd_lock);
	err = param_set_bool(val, kp);
	mutex_unlock(&bsd_lock);
	sks_sockopt_bsd_update();
	return err;
}

static const struct kernel_param_ops bsd_param_ops = {
	.set = bsd_param_set,
	.get = param_get_bool,
};

module_param_cb(so_splice_literal, &bsd_param_ops, &bsd_on, 0644);
__MODULE_PARM_TYPE(so_splice_literal, "bool");
MODULE_PARM_DESC(
	so_splice_literal,
	"Serve setsockopt(SOL_SOCKET, SO_SPLICE), too, once so_splice is switched on (default: yes)");
