/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two network namespaces joined by a veth pair: the client's and the server's.
 */
#ifndef BEHAVE_NETNS_H
#define BEHAVE_NETNS_H

#include <stdbool.h>

void netns_setup(void);
void netns_enter(bool server);
void netns_leave(void);
const char *netns_server_addr(int family);

#endif
