/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections whose reading end gets its bytes through a sockmap, in each of
 * the ways there are, and the module's counters.
 */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpf_object;

/* The bytes of a record of KIND_STRP and KIND_STRP_REDIR. */
#define RECORD	1000

/* How bytes written to flow.wr come to flow.rd. */
enum kind {
	KIND_TCP,		/* not in any map */
	KIND_BASE,		/* in a map that has no program: TCP's own queue */
	KIND_PASS,		/* a verdict program passes them */
	KIND_SELF,		/* a verdict program redirects them to the same socket */
	KIND_HASH,		/* KIND_PASS in a sockhash */
	KIND_PULLED,		/* KIND_PASS, the bytes in memory of kmalloc() */
	KIND_REDIR,		/* redirected from another connection; the reader has a
				 * verdict program
				 */
	KIND_REDIR_BASE,	/* likewise; the reader has none */
	KIND_REDIR_HASH,	/* likewise, through a sockhash */
	KIND_MSG,		/* redirected by an sk_msg program; the reader has no
				 * verdict program
				 */
	KIND_MSG_VERDICT,	/* likewise; the reader has a verdict program */
	KIND_MSG_APPLY,		/* KIND_MSG in portions of 1000 bytes */
	KIND_STRP,		/* a parser cuts RECORDs, the verdict passes them */
	KIND_STRP_REDIR,	/* likewise, redirected from another connection */
	KIND_MAX,
};

extern const char * const kind_names[];

/* wr and rd are the ends to use. Where the bytes do not come by rd's own
 * connection, peer is the other end of that (else it is wr), and via the
 * socket that redirects (else -1).
 */
struct flow {
	enum kind kind;
	int wr, rd, peer, via;
	struct bpf_object *obj;
};

/* Exits the process when it fails. */
void flow_open(struct flow *f, enum kind kind, int family);
/* One connection, f.wr and f.rd its ends, both in a map: an sk_msg program
 * passes what each sends straight to the other, or a verdict program passes what
 * arrives at each.
 */
void both_open(struct flow *f, bool verdict, int family);
/* One socket, f.wr and f.rd both: what is written to it an sk_msg program redirects to
 * its own queue.
 */
void own_open(struct flow *f, int family);
/* From the next record on, the parser of a KIND_STRP cuts records of so many bytes, or
 * fails with that error.
 */
void flow_parse(struct flow *f, int32_t record);
/* From now on a redirected flow's verdict redirects the FIN as well. */
void flow_redirect_fin(struct flow *f);
/* For processes that fork others which open flows: finds out what the kernel can do,
 * which each of them would find out again.
 */
void flow_warm_up(void);
/* Whether the sk_msg program empties what it redirects. */
void flow_empty(struct flow *f, bool on);
/* Puts the reader into a second map, which has no programs. */
void flow_map_too(struct flow *f);
/* Takes the verdict program off the reader's map. */
void flow_detach(struct flow *f);
/* Closes all that was opened. */
void flow_close(struct flow *f);
/* Takes the reader out of its map, and puts it back. */
void flow_unmap(struct flow *f);
void flow_map(struct flow *f);
/* Whether bytes come by the reader's own connection. */
bool flow_own(const struct flow *f);

/* Connects two sockets over loopback. */
void tcp_pair(int family, int *client, int *server);

/* The sum of the counter's value; exits when the module does not answer. */
uint64_t stat_get(const char *name);

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* A stream of bytes that depend on their position and on a seed. */
void stream_fill(uint64_t seed, uint64_t pos, void *buf, size_t len);
/* The first offset at which buf differs from the stream, or len. */
size_t stream_check(uint64_t seed, uint64_t pos, const void *buf, size_t len);

#endif
