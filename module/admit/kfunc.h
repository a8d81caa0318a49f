/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_KFUNC_H
#define SOCKSPLICE_KFUNC_H

#include <linux/types.h>

int sks_kfunc_init(void);

/* Unregisters the tracepoint of enroll_all. The kfuncs go with the module. */
void sks_kfunc_exit(void);

bool sks_kfunc_has_btf(void);		/* BPF can find the kfuncs */
bool sks_kfunc_has_sockops(void);	/* sock_ops programs may call them */
bool sks_kfunc_enrolls_all(void);

#endif /* SOCKSPLICE_KFUNC_H */
