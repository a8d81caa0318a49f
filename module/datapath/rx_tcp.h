/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Receiving by TCP's own function, on a socket that has our recvmsg: while it waits for its
 * peer, after it has stopped being paired, and for the urgent byte.
 */
#ifndef SOCKSPLICE_RX_TCP_H
#define SOCKSPLICE_RX_TCP_H

#include <net/sock.h>

#include "compat/compat.h"

struct pair_end;

/* A call of recvmsg, and the turn of its reader (rx.c). */
struct rx_turn {
	struct pair_end *end, *peer;	/* held while the reader has its turn, else NULL */
	long timeo;		/* what is left of the time-out */
	int disconnects;	/* the socket's sk_disconnects when the call began */
	bool slept;
	bool inq_control;	/* TCP_INQ was on when the call began, which is when TCP reads it */
	bool told;		/* TCP's function has put a TCP_CM_INQ for a part of the call */
	void *control;		/* where the control messages begin */
	size_t controllen;
};

/* Whether TCP would have ended a receive of no bytes on a socket that is no longer paired: TCP
 * returns 0 after the first sleep, whatever ended that. @seen: the end of what TCP had
 * received before.
 */
bool sks_rx_tcp_is_over(const struct sock *sk, const struct rx_turn *turn, size_t len, u32 seen);

/* Reports @inq unread bytes, as TCP_CM_INQ only if @control. The socket need not be locked. */
void sks_rx_put_inq(struct sock *sk, struct msghdr *msg, int inq, bool control);

/* Takes back the TCP_CM_INQ that TCP has put last. TCP has put none if another thread has
 * switched TCP_INQ off meanwhile, or if the memory cannot be written.
 */
void sks_rx_unput_inq(struct msghdr *msg, const struct rx_turn *turn);

/* Each of these calls TCP's recvmsg. They expect @turn with timeo, disconnects and inq_control
 * set, but for sks_rx_tcp_urgent(), which needs control and controllen only.
 */

/* MSG_OOB: the urgent byte. Takes the pair back to TCP. The number of unread bytes that goes with
 * the urgent byte counts the ring. The socket is not locked.
 */
int sks_rx_tcp_urgent(struct sock *sk, struct rx_turn *turn, struct msghdr *msg, size_t len,
		      int flags COMPAT_ADDR_LEN_PARAM);

/* For a locked socket whose end moves no data. Drops the lock. */
int sks_rx_tcp_unpaired(struct sock *sk, struct pair_end *end, struct msghdr *msg, size_t len,
			int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn);

/* For a socket that stopped being ours while the call slept. The socket is not locked. */
int sks_rx_tcp_pass(struct sock *sk, struct msghdr *msg, size_t len,
		    int flags COMPAT_ADDR_LEN_PARAM, struct rx_turn *turn);

#endif /* SOCKSPLICE_RX_TCP_H */
