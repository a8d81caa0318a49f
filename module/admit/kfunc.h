/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_POLICY_H
#define SOCKSPLICE_POLICY_H

#include <linux/types.h>

int socksplice_policy_init(void);

/* Unhooks enroll_all; the kfuncs go with the module. */
void socksplice_policy_exit(void);

bool socksplice_policy_has_btf(void);		/* BPF can find the kfuncs */
bool socksplice_policy_has_sockops(void);	/* sock_ops programs may call them */
bool socksplice_policy_enrolls_all(void);

#endif /* SOCKSPLICE_POLICY_H */
