/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differential fuzzer.
 *
 *	plan.c	  seed -> program: a list of operations on the two ends of one connection
 *	play.c	  plays a program on a connection and says every result
 *	ops.c	  the operations: sending, receiving, several threads, looking
 *	states.c  the operations: options and states
 *	calls.c	  the system calls that send and receive, by any task
 *	shrink.c  failing program -> minimal failing program
 *	fuzz.c	  the loop, the comparison, the options
 *
 * Connections, children, transcripts and the list of pairs are those of the
 * behaviour suite (tests/behave).
 *
 * What is compared is what TCP defines. Where two answers of TCP are right, the
 * player sees to it that there is one:
 *   - After every operation it waits until all bytes and FINs have arrived (settle()
 *     in play.c) before it looks at anything, so how TCP cuts the stream, when its
 *     ACKs come and how long a FIN takes cannot be seen.
 *   - What is sent always fits into the receiver's buffer, or is read meanwhile and
 *     compared as one stream (STREAM, FILL): how many bytes fit is the kernel's choice.
 *   - A call that would block runs in a thread and is known to be asleep before the
 *     next operation, and known to have returned after the one that ends it.
 *     When that must be, follows from the bytes that were sent: wait_is_over().
 *   - Each operation checks what it needs and is left out otherwise. So any part
 *     of a program is a program, which is what shrinking needs.
 *   - What docs/differences.md lists is not done: a second urgent byte before the
 *     first is passed, a held-back byte (MSG_MORE, TCP_CORK) that is looked for,
 *     SIOCOUTQ, SO_RCVLOWAT or TCP_INQ changed under a sleeper, timestamps, SIGIO beside a
 *     reader that sleeps.
 *   - TCP_INQ of a reader that slept is some or none: how TCP cuts the stream, again.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "../behave/behave.h"
#include "../behave/child.h"

enum what {
	SEND, SEND_MORE, SEND_CORKED, SEND_OOB, SEND_ZEROCOPY, SEND_BAD,
	RECV, RECV_TIMED, RECV_OOB, RECV_ERRQUEUE, RECV_BAD,
	STREAM, FILL, TWO_WRITERS, TWO_READERS,
	WAIT_READY, SIGNAL, LOOK, EPOLL_ADD, EPOLL_WAIT,
	OPTION, LOWAT, PEEK_OFF, NONBLOCK, ASYNC, ODD_CALL,
	SHUT, CLOSE, ABORT, DISCONNECT, DUP, PASS, DROP,
	WHAT_MAX,
};

enum by { BY_MAIN, BY_THREAD, BY_CHILD, BY_MAX };

enum send_how { SEND_SEND, SEND_WRITE, SEND_WRITEV, SEND_SENDMSG, SEND_SENDTO, SEND_SENDMMSG,
		SEND_SENDFILE, SEND_SPLICE, SEND_HOW_MAX };
enum recv_how { RECV_RECV, RECV_READ, RECV_READV, RECV_RECVMSG, RECV_RECVMMSG, RECV_SPLICE,
		RECV_HOW_MAX };

struct op {
	enum what what;
	int end;		/* 0 is a, 1 is b */
	enum by by;
	int how;		/* send_how, recv_how, or a number of the operation's own */
	int n;			/* bytes, or a value */
	int flags;
};

#define OPS_MIN		6
#define OPS_MAX		30
#define ROOM		(24 * KIB)	/* unread bytes at most, with the kernel's own buffers */
#define ROOM_BIG	(200 * KIB)	/* with prep_big_buffers(): more than a ring */
#define BUF_SIZE	(512 * KIB)

struct program {
	uint64_t seed;
	int family;		/* 4, 6, 46 */
	bool swap;		/* end 0 is the accepted one */
	bool cold;		/* no warm-up: the first bytes go by TCP */
	int early;		/* bytes that the client sends before the accept; cold then */
	bool defer;		/* with TCP_DEFER_ACCEPT */
	bool big;		/* large buffers */
	int count;
	struct op op[OPS_MAX];
};

/* plan.c */
void plan(struct program *p, uint64_t seed);
void program_print(const struct program *p);
void op_text(const struct op *op, char *text, size_t size);

/* play.c: in a child; says all results */
extern bool mutate;		/* --self-test: one result of the paired run is falsified */
void play(const void *program);

struct side {
	int fd;			/* -1 if closed */
	int epoll;		/* 0 if there is none */
	int phase;		/* PHASE_*, as of the last settle() */
	int avail;		/* bytes sent to it that no finished call has taken */
	uint64_t pos;		/* of its next byte in what it sends */
	int lowat;
	bool urgent;		/* an urgent byte was sent to it that it may not have passed */
	bool shut_rd;
	bool nonblock;
	bool condemned;		/* a reset is on its way to it */
	bool disconnected;
	bool async;		/* SIGRTMIN + end says that something can be done */
	bool asleep;		/* a thread sleeps in: */
	struct call call;
	struct op waits_in;
	int target;		/* bytes with which that call returns; 0: poll(2) */
	struct pollfd pollfd;
};
enum { PHASE_OPEN, PHASE_SENT_FIN, PHASE_GOT_FIN, PHASE_END };

extern struct side side[2];
extern struct conn conn;
extern bool big;

void interrupt(struct side *s);			/* its sleeper, by a signal without SA_RESTART */
void settle(void);
void settle_fin(int fd);			/* until the FIN that it has sent is acknowledged */
bool at_end(const struct side *s);		/* it will receive no more bytes */
bool wait_is_over(const struct side *s);
void drain(int end, const char *why);
int other(int end);

/* ops.c */
void op_play(const struct op *op);
void wait_end(int end);		/* joins the thread that sleeps on this end, says its result */
void left_out(const char *why);
void say_result(long ret);	/* or errno */
int get_int(int fd, int level, int name);
bool set_int(int fd, int level, int name, int v);
bool sleeps_in_recv(const struct side *s);
void note_unpaired(void);	/* the operation goes back to TCP */
bool is_told_late(const struct side *s);	/* that there is enough for its mark */
bool signalled(int sig);	/* since it was last asked */

/* states.c */
void op_option(const struct op *op);
void op_lowat(const struct op *op);
void op_peek_off(const struct op *op);
void op_nonblock(const struct op *op);
void op_async(const struct op *op);
void op_odd_call(const struct op *op);
void op_shut(const struct op *op);
void op_close(const struct op *op);
void op_disconnect(const struct op *op);
void op_dup(const struct op *op);

/* calls.c */
extern int *sigpipes, *sigusrs;	/* signals that were handled by any task */
void calls_init(void);
unsigned char *send_area(void);
/* What the call has received, and where. */
struct received {
	long ret;
	int err;
	int len;		/* bytes in buf that it may have written */
	unsigned char *buf;
};
long call_send(const struct op *op, int fd, int n, int flags);
void call_recv(const struct op *op, int fd, int n, int flags, int end, struct received *r);
void call_recv_start(struct call *c, const struct op *op, int fd, int n, int flags, int end);
void call_recv_end(struct call *c, const struct op *op, int n, int end, struct received *r);
void say_control(const struct op *op, int end, bool slept);
int through_a_socket(int fd);	/* the same file: sent, closed and received again */

/* shrink.c */
typedef bool (*fails_fn)(const struct program *p);
void shrink(struct program *p, fails_fn fails);

#endif
