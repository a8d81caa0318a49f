/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verified load for the topology scripts: every byte says which tenant,
 * connection and round it belongs to, so a byte that reaches a stranger is seen.
 */
#ifndef TOPO_LOAD_H
#define TOPO_LOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define LOAD_MAGIC	0x53504c43
#define LOAD_MAX	(256 * 1024)

struct header {
	uint32_t magic, tenant, conn, round, len;
};

struct options {
	unsigned int tenant, conns, rounds, size, seconds, workers, port, bind;
	unsigned int seed;
	bool hold, wait, timed, fastopen;
	const char *addr, *option;
};

__attribute__((format(printf, 1, 2), noreturn)) void die(const char *fmt, ...);
void address(struct sockaddr_storage *ss, socklen_t *len, const char *addr, unsigned int port);
int tcp_socket(const char *addr, int flags);
int option_socket(const struct options *o);

/* message.c */
void message_make(void *buf, const struct header *h);
bool message_good(const void *buf, const struct header *h);
int message_exchange(int fd, unsigned int tenant, unsigned int conn, unsigned int round,
		     unsigned int size);

int serve(const struct options *o);
int proxy(const struct options *o);
int run(const struct options *o);
int churn(const struct options *o);
int storm(const struct options *o);
int simultaneous(const struct options *o);
int forge(const struct options *o);

/* pairs.c */
int pairs_summary(unsigned int want, unsigned int seconds, int argc, char **argv);
int pairs_list(void);
int stat_show(const char *name);

#endif
