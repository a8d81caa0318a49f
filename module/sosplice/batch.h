/* SPDX-License-Identifier: GPL-2.0 */
/* What the mover takes from a source at one time: the pages of the bytes that come next. */
#ifndef SOCKSPLICE_BATCH_H
#define SOCKSPLICE_BATCH_H

#include <linux/bvec.h>
#include <linux/types.h>

struct sk_buff;
struct splice;

#define BATCH_PAGES	64		/* the mover's budget, in pages */

struct batch {
	struct bio_vec bv[BATCH_PAGES];	/* each holds a reference on its page */
	unsigned int n;
	u32 len;
	bool ring;			/* the bytes are in the source's ring; no page is held */
	bool oob;			/* its one byte is urgent */
	bool foreign;			/* the next bytes are not in pages of this kernel */
};

/* Fills @b with the next bytes for the reader of the source, which is locked: at most @limit. */
void sks_batch_fill(struct splice *s, struct batch *b, u32 limit);
void sks_batch_free(struct batch *b);

/* Fills @b with the @len bytes of @skb from @off on, or with fewer if there is no memory. */
void sks_batch_fill_skb(struct splice *s, struct batch *b, const struct sk_buff *skb, u32 off,
			u32 len);

#endif /* SOCKSPLICE_BATCH_H */
