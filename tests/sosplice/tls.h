/* SPDX-License-Identifier: GPL-2.0 */
/* What the cases of kTLS share. Both ends of a connection get the same fixed keys, so no handshake
 * is needed.
 */
#ifndef TLS_H
#define TLS_H

#include <linux/tls.h>

#include "sosplice.h"

#define ALERT		21
#define HANDSHAKE	22
#define DATA		23
#define RECORD		16384

/* These return an errno, or 0. */
int set_keys(int fd, int what, int version, char key);
int set_ulp(int fd);
int try_splice(int from, int to);

bool tls_is_there(void);

/* kTLS on both ends of a connection. A kernel without it cannot run the case. */
void secure(int a, int b, int version);

/* Which connections of a relay have kTLS. */
enum { CLIENT = 1, SERVER = 2 };

void tls_open(struct relay *r, int which, int version);

void send_record(int fd, unsigned char type, const void *data, size_t len);
/* The next record is of this type and content. */
void want_record(int fd, unsigned char type, const void *data, size_t len);

/* The splice has ended without an error. */
void has_ended(int fd);
void wait_end(int fd);
void reset(int fd);

/* Writes in pieces of every kind of length, in a process of its own. */
pid_t write_all(int fd, uint64_t len);
void wait_ok(pid_t pid);

#endif
