// SPDX-License-Identifier: GPL-2.0
/*
 * How connections are enrolled: BPF programs call a kfunc. Without BPF, the module parameter
 * enroll_all enrolls every connection.
 *
 * An end is enrolled when its connection becomes ESTABLISHED. At that point both initial sequence
 * numbers and both flow hashes are known, and the end has sent no byte yet. The caller owns the
 * socket. On the active side the connecting task owns it, in process context. On the passive side
 * a softirq does.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/filter.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/path.h>
#include <linux/tracepoint.h>

#include "admit/enroll.h"
#include "admit/kfunc.h"
#include "compat/compat.h"
#include "core/stats.h"

static bool has_btf, has_sockops;

__bpf_kfunc_start_defs();

/* Only BPF programs call these. The declarations are for sparse. */
int bpf_sock_splice_pair_sk(struct sock *sk, struct socksplice_pair_opts *opts, u32 opts__sz);
void bpf_sock_splice_no_policy(void);
int bpf_sock_splice_pair(struct bpf_sock_ops_kern *skops, struct socksplice_pair_opts *opts,
			 u32 opts__sz);

/**
 * bpf_sock_splice_pair_sk - enrol one end of a connection for pairing
 * @sk: the socket argument of the tracepoint
 * @opts: options; may not be NULL
 * @opts__sz: its size, which must be that of struct socksplice_pair_opts
 *
 * For programs on tp_btf/inet_sock_set_state, called with the socket of an
 * event whose new state is TCP_ESTABLISHED (from TCP_SYN_SENT or TCP_SYN_RECV).
 * The connection is paired when both of its ends have been enrolled.
 *
 * Return: as sks_enroll(); -EINVAL also for a wrong size or moment.
 */
__bpf_kfunc int bpf_sock_splice_pair_sk(struct sock *sk, struct socksplice_pair_opts *opts,
					u32 opts__sz)
{
	/* The event comes before TCP writes the new state. */
	if (opts__sz != sizeof(*opts) ||
	    (sk->sk_state != TCP_SYN_SENT && sk->sk_state != TCP_SYN_RECV))
		return -EINVAL;
	return sks_enroll(sk, sk->sk_state == TCP_SYN_SENT, opts);
}

/**
 * bpf_sock_splice_no_policy - count an end that no policy names
 *
 * For programs on tp_btf/inet_sock_set_state, instead of bpf_sock_splice_pair_sk(). The counter is
 * the module's, so it outlives a program that another one replaces.
 */
__bpf_kfunc void bpf_sock_splice_no_policy(void)
{
	sks_stat_inc(SOCKSPLICE_STAT_no_policy);
}

/**
 * bpf_sock_splice_pair - enrol one end of a connection for pairing
 * @skops: the context of the program, as bpf_cast_to_kern_ctx() gives it
 * @opts: options; may not be NULL
 * @opts__sz: its size, which must be that of struct socksplice_pair_opts
 *
 * For sock_ops programs, in the callbacks BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB
 * and BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB. Kernels older than 7.0 do not let
 * sock_ops programs call kfuncs; bpf_sock_splice_pair_sk() works there.
 *
 * Return: as sks_enroll(); -EINVAL also for a wrong size or callback,
 * and where no packet made the connection (TCP_REPAIR).
 */
__bpf_kfunc int bpf_sock_splice_pair(struct bpf_sock_ops_kern *skops,
				     struct socksplice_pair_opts *opts, u32 opts__sz)
{
	bool active = skops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB;

	if (opts__sz != sizeof(*opts) || !skops->skb ||
	    (!active && skops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB))
		return -EINVAL;
	return sks_enroll(skops->sk, active, opts);
}

__bpf_kfunc_end_defs();

COMPAT_ALIGN_BTF_IDS;

BTF_KFUNCS_START(tracing_kfuncs)
BTF_ID_FLAGS(func, bpf_sock_splice_pair_sk, COMPAT_KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_sock_splice_no_policy)
BTF_KFUNCS_END(tracing_kfuncs)

BTF_KFUNCS_START(sockops_kfuncs)
BTF_ID_FLAGS(func, bpf_sock_splice_pair, COMPAT_KF_TRUSTED_ARGS)
BTF_KFUNCS_END(sockops_kfuncs)

/* Refuses all other hooks: their socket may be unlocked, or past its handshake. The verifier asks
 * the filter about every kfunc of the program type, even those of other modules.
 */
static int tracing_filter(const struct bpf_prog *prog, u32 kfunc_id)
{
	if (!btf_id_set8_contains(&tracing_kfuncs, kfunc_id))
		return 0;
	if (prog->type != BPF_PROG_TYPE_TRACING || prog->expected_attach_type != BPF_TRACE_RAW_TP ||
	    !prog->aux->attach_func_name ||
	    strcmp(prog->aux->attach_func_name, "inet_sock_set_state"))
		return -EACCES;
	return 0;
}

static int sockops_filter(const struct bpf_prog *prog, u32 kfunc_id)
{
	if (!btf_id_set8_contains(&sockops_kfuncs, kfunc_id))
		return 0;
	return prog->type == BPF_PROG_TYPE_SOCK_OPS ? 0 : -EACCES;
}

static const struct btf_kfunc_id_set tracing_set = {
	.owner	= THIS_MODULE,
	.set	= &tracing_kfuncs,
	.filter	= tracing_filter,
};

static const struct btf_kfunc_id_set sockops_set = {
	.owner	= THIS_MODULE,
	.set	= &sockops_kfuncs,
	.filter	= sockops_filter,
};

/* enroll_all: our own probe on the tracepoint, without BPF. */

static struct tracepoint *state_tp;
static bool enroll_all;			/* written under enroll_lock */
static bool ready;			/* enroll_lock; true between init and exit */
static bool registered;			/* enroll_lock */
static DEFINE_MUTEX(enroll_lock);

static void state_probe(void *data, const struct sock *sk, const int oldstate, const int newstate)
{
	if (!READ_ONCE(enroll_all) || newstate != TCP_ESTABLISHED ||
	    sk->sk_protocol != IPPROTO_TCP ||
	    (oldstate != TCP_SYN_SENT && oldstate != TCP_SYN_RECV))
		return;
	sks_enroll((struct sock *)sk, oldstate == TCP_SYN_SENT, NULL);
}

/* The probe stays registered until the module is unloaded, because registering it patches kernel
 * code.
 */
static int state_probe_register(void)
{
	int err;

	lockdep_assert_held(&enroll_lock);
	if (registered)
		return 0;
	if (!state_tp)
		return -ENOENT;
	err = tracepoint_probe_register(state_tp, state_probe, NULL);
	registered = !err;
	return err;
}

static int enroll_all_set(const char *val, const struct kernel_param *kp)
{
	int err = 0;
	bool on;

	if (kstrtobool(val, &on))
		return -EINVAL;
	mutex_lock(&enroll_lock);
	if (on && ready)
		err = state_probe_register();
	if (!err)
		WRITE_ONCE(enroll_all, on);
	mutex_unlock(&enroll_lock);
	return err;
}

static const struct kernel_param_ops enroll_all_ops = {
	.set = enroll_all_set,
	.get = param_get_bool,
};
module_param_cb(enroll_all, &enroll_all_ops, &enroll_all, 0644);
MODULE_PARM_DESC(enroll_all, "Enrol every TCP connection of this host, without a BPF policy");

static void find_tracepoint(struct tracepoint *tp, void *arg)
{
	if (!strcmp(tp->name, "inet_sock_set_state"))
		state_tp = tp;
}

bool sks_kfunc_has_btf(void)
{
	return has_btf;
}

bool sks_kfunc_has_sockops(void)
{
	return has_btf && has_sockops;
}

bool sks_kfunc_enrolls_all(void)
{
	return READ_ONCE(enroll_all);
}

/* Without module BTF the kfuncs register all the same, but no program can call them. */
static bool module_btf_loaded(void)
{
	struct path path;

	if (kern_path("/sys/kernel/btf/" KBUILD_MODNAME, LOOKUP_FOLLOW, &path))
		return false;
	path_put(&path);
	return true;
}

int sks_kfunc_init(void)
{
	int err;

	/* Register first the set that older kernels refuse. A refusal drops all sets that the
	 * module has registered before.
	 */
	has_sockops = !register_btf_kfunc_id_set(BPF_PROG_TYPE_SOCK_OPS, &sockops_set);
	err = register_btf_kfunc_id_set(BPF_PROG_TYPE_TRACING, &tracing_set);
	has_btf = !err && module_btf_loaded();
	if (!has_btf)
		pr_warn("no usable module BTF (error %d): BPF policies cannot enrol sockets; rebuild the module against this kernel's own headers, with pahole installed\n",
			err);
	for_each_kernel_tracepoint(find_tracepoint, NULL);

	mutex_lock(&enroll_lock);
	err = enroll_all ? state_probe_register() : 0;
	ready = !err;
	mutex_unlock(&enroll_lock);
	return err;
}

void sks_kfunc_exit(void)
{
	mutex_lock(&enroll_lock);
	ready = false;
	if (registered) {
		tracepoint_probe_unregister(state_tp, state_probe, NULL);
		tracepoint_synchronize_unregister();
		registered = false;
	}
	mutex_unlock(&enroll_lock);
}
