/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What goes by ring, copied for who captures it; uapi/capture.h is the interface.
 *
 * A sender reserves room for its bytes before it publishes them, and copies them
 * there after that. So what its peer answers is reserved later, and the records are
 * in an order in which the bytes can have been sent; the reader of the ring does not
 * wait for the copy. Who captures reads up to the first record whose copy is still
 * under way.
 *
 * Where there is no room the record is counted and dropped: a sender never waits.
 * While nobody captures, a send costs a branch that is patched out.
 */
#ifndef SOCKSPLICE_CAPTURE_H
#define SOCKSPLICE_CAPTURE_H

#include <linux/jump_label.h>
#include <linux/types.h>

#include "uapi/capture.h"
#include "uapi/socksplice.h"

struct capture;
struct sock;
struct pair_end;

DECLARE_STATIC_KEY_FALSE(sks_capture_key);

/* Room for one record. The sender's own, on its stack, and small: the compiler may
 * zero it for each send.
 */
struct capture_slot {
	struct capture *capture;	/* NULL: nothing is captured. RCU; held by _begin */
	u32 pos;			/* in its buffer */
	u32 length;
	u32 kept;			/* bytes of data that there is room for */
};

/* Do not call directly. */
void __sks_capture_begin(const struct sock *sk, struct pair_end *end, u32 n,
			 struct capture_slot *slot);
void __sks_capture_end(const struct pair_end *end, u32 n,
		       struct capture_slot *slot);

/* Before @n bytes are published to the ring of @end, whose socket @sk is locked, and
 * after: @n is then how many of them stayed there. No sleep in between.
 */
static inline void sks_capture_begin(const struct sock *sk, struct pair_end *end,
				     u32 n, struct capture_slot *slot)
{
	slot->capture = NULL;
	if (static_branch_unlikely(&sks_capture_key))
		__sks_capture_begin(sk, end, n, slot);
}

static inline void socksplice_capture_end(const struct pair_end *end, u32 n,
					  struct capture_slot *slot)
{
	if (unlikely(slot->capture))
		__sks_capture_end(end, n, slot);
}

int sks_capture_init(void);

/* No file of the device is open: each holds the module. */
void sks_capture_exit(void);

#endif /* SOCKSPLICE_CAPTURE_H */
