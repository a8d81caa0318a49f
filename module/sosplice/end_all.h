/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOCKSPLICE_END_ALL_H
#define SOCKSPLICE_END_ALL_H

/* Ends the splices of all sockets that have an endpoint now, and detaches the endpoints. Begins
 * that and returns. A work goes on in the background until it is done.
 */
void sks_endpoint_drop_all(void);

/* Ends the work. The caller knows that no endpoint is left. */
void sks_endpoint_drop_exit(void);

#endif /* SOCKSPLICE_END_ALL_H */
