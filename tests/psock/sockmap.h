/* SPDX-License-Identifier: GPL-2.0 */
/* What the BPF programs and their loader share. */
#ifndef SOCKMAP_H
#define SOCKMAP_H

enum {
	RULE_PASS,
	RULE_DROP,
	RULE_TO_SRC,	/* redirect to a socket of map `src` */
	RULE_TO_DST,
	RULE_TO_HASH,
};

struct rule {
	__u32 action;
	__u32 key;	/* in the map redirected to */
	__u64 flags;	/* BPF_F_INGRESS, or 0 */
	__u32 record;	/* the parser's record length or sk_msg's apply_bytes; 0: all */
	__u32 pull;	/* the verdict first moves all bytes to the packet's head; sk_msg
			 * empties the message
			 */
	__u32 fin;	/* the packet of a FIN alone goes the same way */
	__u32 pad;
};

#endif
