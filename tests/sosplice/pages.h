/* SPDX-License-Identifier: GPL-2.0 */
/* Cases for the sentences of the BSDs' manual pages. A function has one sentence, and takes the
 * kind of the sockets. Where another file has the case of a kind, it is not repeated.
 */
#ifndef PAGES_H
#define PAGES_H

#include "tls.h"

/* Of both connections of a relay. */
enum kind { TCP, KTLS, UDP };

void kind_open(enum kind k, struct relay *r);

/* Sends @len bytes of the stream from @pos on, or a datagram that only they are in. */
void kind_give(enum kind k, int fd, uint64_t pos, size_t len);
/* Waits for these bytes, or for this datagram. */
void kind_want(enum kind k, int fd, uint64_t pos, size_t len);
/* Has @from send, and waits until @to has received it. */
void kind_pass(enum kind k, int from, int to, uint64_t pos, size_t len);
/* There is nothing to read at @fd, and no end of a stream. */
void kind_nothing(int fd);

/* Splices as splice_fds(), and returns an errno, or 0. */
int kind_try(int from, int to, int64_t max);
/* @fd is the source of no splice: there is none to end. */
void is_no_source(int fd);
/* As kind_open(), with little room at the sink. */
void kind_open_small(enum kind k, struct relay *r);
/* Gives the client bytes until the splice waits for room. Returns how many. */
uint64_t kind_fill(enum kind k, struct relay *r);

/* The cases of @f are f_TCP() and so on. */
#define ON(k, f) static void f##_##k(void) { f(k); }

#endif
