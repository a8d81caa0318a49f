/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_END_ALL_H
#define SOCKSPLICE_END_ALL_H

/* Ends the splices of all sockets that have an end now, and detaches those, in the
 * background, until it is done.
 */
void sks_endpoint_drop_all(void);

/* No endpoint is left. */
void sks_endpoint_drop_exit(void);

#endif /* SOCKSPLICE_END_ALL_H */
