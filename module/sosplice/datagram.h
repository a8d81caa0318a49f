/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_DATAGRAM_H
#define SOCKSPLICE_DATAGRAM_H

#include "sosplice/splice.h"

/* A round of the mover for UDP: moves whole datagrams, and takes what they cost off *@left. Sets
 * *@why to the errno that ends the splice, or to 0 for an end without one. The source is locked,
 * the sink is not.
 */
enum mover_next sks_datagram_round(struct splice *s, u32 *left, int *why);

#endif /* SOCKSPLICE_DATAGRAM_H */
