/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies of the bytes that go by ring, for `socksplice capture`. uapi/capture.h is the interface.
 *
 * A sender reserves room for its bytes before it publishes them, and copies them there after that.
 * So the peer's answer is reserved later, and the records are in an order in which the bytes can
 * have been sent. The reader of the ring does not wait for the copy. The capturing process reads
 * up to the first record that is still being copied.
 *
 * If there is no room, the record is counted and dropped: a sender never waits. While there is no
 * capture, a send costs a branch that is patched out.
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

/* Room for one record. It lies on the sender's stack, and is small, because the compiler may zero
 * it for each send.
 */
struct capture_slot {
	struct capture *capture;	/* NULL: nothing is captured. _begin holds RCU for it */
	u32 pos;			/* position in the capture's buffer */
	u32 length;
	u32 kept;			/* bytes of data that there is room for */
};

/* Called by the two functions below only. */
void __sks_capture_begin(const struct sock *sk, struct pair_end *end, u32 n,
			 struct capture_slot *slot);
void __sks_capture_end(const struct pair_end *end, u32 n, struct capture_slot *slot);

/* _begin is called before @n bytes are published to the ring of @end, whose socket @sk is locked.
 * _end is called after that: @n is then how many of them stayed there. The sender does not sleep
 * in between.
 */
static inline void sks_capture_begin(const struct sock *sk, struct pair_end *end, u32 n,
				     struct capture_slot *slot)
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

/* No file of the device is open, because each open file holds the module. */
void sks_capture_exit(void);

#endif /* SOCKSPLICE_CAPTURE_H */
