/* A network of this process's own, with nothing in it but loopback, whose connections the test
 * resets as a network does: what either end has not had is lost, both ends learn of it. Needs root.
 */
#ifndef TESTS_TRANSPORT_NETWORK_H
#define TESTS_TRANSPORT_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

/* Before any thread is made. False: not allowed here, or the kernel cannot (INET_DIAG_DESTROY), which is printed. */
bool network_enter(void);
void network_up(bool is_up);
/* Resets the connection of this socket. False when it has none. */
bool network_reset(int fd);
/* Resets one of all there are between two sockets that are not listeners. False: there is none. */
bool network_reset_any(uint64_t random);
/* Resets them all; returns how many there were. */
int network_reset_all(void);
/* Descriptors that this process has open. */
int network_descriptors(void);

#endif
