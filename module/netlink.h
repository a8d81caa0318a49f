/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_NETLINK_H
#define SOCKSPLICE_NETLINK_H

int socksplice_netlink_init(void);
void socksplice_netlink_exit(void);

#endif /* SOCKSPLICE_NETLINK_H */
