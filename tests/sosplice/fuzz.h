/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fuzzer of SO_SPLICE. A world is a few connections. Each of their ends may be the source or
 * the sink of a splice, so chains and loops come about. A sequence of random operations runs on
 * them in one thread, and a model follows what each end's queue holds.
 *
 * How much a splice has moved is up to the kernel's timing. So the model learns that from
 * getsockopt(SO_SPLICE), and moves as many bytes in its own queues. Everything else follows: what
 * each reader gets, byte for byte, which splices must go on, and with which error one must end.
 */
#ifndef SPLICEFUZZ_H
#define SPLICEFUZZ_H

#include "tls.h"

#define ENDS_MAX	8
#define CHUNKS_MAX	1024
#define STEPS_MAX	60
#define ANY_ERROR	-1	/* of a reset connection; which one depends on timing */
#define HOPS_MAX	128

enum kind { TCP, TLS, UDP, KINDS };

/* Bytes that the application wrote to end number @origin, from its byte @pos on. A datagram or
 * a control record of TLS is a chunk of its own.
 */
struct chunk {
	int origin;
	int type;		/* of its record: DATA, unless it is a control record */
	uint64_t pos;
	uint32_t len;
	uint32_t by;		/* a datagram: the last splice that sent it, or 0 */
	int hops;		/* a datagram: splices that it passed */
};

/* What has been sent to an end, and was read neither by the application nor by a splice. */
struct queue {
	struct chunk c[CHUNKS_MAX];
	int n;
	uint64_t bytes;
};

struct splicing {
	bool active;
	int sink;
	uint32_t id;
	int64_t max, moved;
	int64_t surplus;	/* counted, but the model has not seen these bytes come yet */
	long idle;		/* ms; 0: it has no idle time that could run out */
	long began;		/* tick_ms(), if it has one */
	bool ringed;		/* it has been part of a ring */
	bool traced, loops;	/* TCP looks for loops before the first byte */
};

/* Ends 2i and 2i+1 are connected. */
struct end {
	int fd;
	enum kind kind;
	bool gone;		/* closed */
	bool unconnected;	/* by connect(AF_UNSPEC) */
	bool dead;		/* TCP: state CLOSE, not by the end of both streams */
	bool doomed;		/* TCP: has sent to a closed socket, so a reset must come */
	bool wr_shut, rd_shut;
	bool fin;		/* the peer has shut down or closed: the end follows @in */
	bool lossy;		/* the connection was reset or closed: some of @in may be lost */
	int err;		/* what SO_ERROR must have */
	bool foreign;		/* @err is not one that a splice of this source left */
	struct queue in;
	uint64_t sent;		/* bytes that the application wrote here */
	int64_t count;		/* of the last splice */
	int in_from;		/* the source of the splice into this end, or -1 */
	int sndbuf;
	struct splicing out;
};

struct world {
	uint64_t seed;
	uint64_t rng;
	int n;			/* ends */
	bool tight;		/* small buffers: a splice may wait for room at any time */
	uint32_t ids;		/* splices made */
	int spare[2];		/* unconnected sockets: TCP, UDP */
	struct end e[ENDS_MAX];
};

enum mutation { NONE, WRONG_BYTE, WRONG_COUNT, WRONG_ERROR, LOST_BYTE, MUTATIONS };

/* Shared by all children, to show what the sequences have reached. */
struct tally {
	unsigned long steps, splices, refused, unspliced, hurried, reads, bytes, datagrams, moved;
	unsigned long ended[256];	/* by errno */
	unsigned long resets;
	unsigned long mutated;
};

extern struct tally *tally;
extern enum mutation mutation;
extern bool verbose;
extern long patience;		/* ms, for what must come about */

/* fuzz_world.c */
uint32_t pick(struct world *w, uint32_t n);	/* 0 to n-1 */
void world_open(struct world *w, uint64_t seed);
const char *error_name(int err);
__attribute__((format(printf, 1, 2))) void say(const char *fmt, ...);
uint8_t byte_of(int origin, uint64_t pos);
void push(struct queue *q, const struct chunk *c, bool merge);
void drop_front(struct queue *q, uint32_t len);
void drop_all(struct queue *q);
int tcp_state(int fd);
int64_t moved_of(int fd);
int error_of(int fd);
ssize_t receive(struct end *e, void *buf, size_t len, int *type);

/* fuzz_model.c */
bool sends_lost(struct world *w, int to);
void send_to(struct world *w, int from, const struct chunk *c);
void splice_begins(struct world *w, int from, int to, int64_t max, long idle, long began);
void splice_ended(struct world *w, int from, int err);
/* The application has ended it. */
void splice_unspliced(struct world *w, int from);
void check_begun(struct world *w, int i);
/* Waits until all that must happen has happened, and checks the state of every socket. */
void settle(struct world *w);
uint64_t outstanding(const struct world *w);
bool closes_ring(const struct world *w, int from, int to);

/* fuzz_ops.c */
void step(struct world *w, int i);
void finish(struct world *w);

#endif
