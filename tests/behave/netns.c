// SPDX-License-Identifier: GPL-2.0
/*
 *	client namespace            server namespace
 *	  c0 10.9.0.1/24  ==veth==  s0 10.9.0.2/24
 *	     fd09::1/64                fd09::2/64
 *
 * The namespaces have no names: descriptors hold them, so that nothing is left
 * behind when the program dies.
 */
#include "behave.h"
#include "netns.h"

#include <sched.h>
#include <sys/mount.h>

static int ns_home = -1, ns_side[2];

static int ns_create(void)
{
	int fd;

	if (unshare(CLONE_NEWNET) < 0) {
		perror("behave: unshare");
		exit(2);
	}
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || system("ip link set lo up"))
		exit(2);
	return fd;
}

static void ns_enter(int fd)
{
	if (setns(fd, CLONE_NEWNET) < 0) {
		perror("behave: setns");
		exit(2);
	}
}

void netns_setup(void)
{
	char cmd[256];

	ns_home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	ns_side[1] = ns_create();
	ns_side[0] = ns_create();
	/* The shell's own descriptors do not matter: the path names ours. */
	snprintf(cmd, sizeof(cmd),
		 "ip link add c0 type veth peer name s0 && ip link set s0 netns /proc/%d/fd/%d",
		 getpid(), ns_side[1]);
	if (system(cmd) ||
	    system("ip addr add 10.9.0.1/24 dev c0 && ip -6 addr add fd09::1/64 dev c0 nodad && "
		   "ip link set c0 up"))
		exit(2);
	ns_enter(ns_side[1]);
	if (system("ip addr add 10.9.0.2/24 dev s0 && ip -6 addr add fd09::2/64 dev s0 nodad && "
		   "ip link set s0 up"))
		exit(2);
	ns_enter(ns_home);
}

void netns_enter(bool server)
{
	if (env.netns)
		ns_enter(ns_side[server]);
}

void netns_leave(void)
{
	if (env.netns)
		ns_enter(ns_home);
}

const char *netns_server_addr(int family)
{
	if (family == 6)
		return env.netns ? "fd09::2" : "::1";
	return env.netns ? "10.9.0.2" : "127.0.0.1";
}
