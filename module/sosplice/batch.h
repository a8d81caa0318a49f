/* SPDX-License-Identifier: GPL-2.0 */
/* What the mover takes from a source in one go: the pages of the bytes that stand next. */
#ifndef SOCKSPLICE_BATCH_H
#define SOCKSPLICE_BATCH_H

#include <linux/bvec.h>
#include <linux/types.h>

struct splice;

#define BATCH_PAGES	64		/* the mover's budget, in pages */

struct batch {
	struct bio_vec bv[BATCH_PAGES];	/* each with a reference on its page */
	unsigned int n;
	u32 len;
	bool ring;			/* the source's ring has it, and no page a reference */
	bool oob;			/* its one byte is urgent */
	bool foreign;			/* what follows has no pages of this kernel */
};

/* Notes what stands next for the reader of the source, which is locked: at most @limit bytes. */
void sks_batch_fill(struct splice *s, struct batch *b, u32 limit);
void sks_batch_free(struct batch *b);

#endif /* SOCKSPLICE_BATCH_H */
