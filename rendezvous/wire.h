/* A rank's way to the server of its meeting: a socket, and TLS over it where the job has that. Each call waits until it is
 * done or its deadline is over; PEER: the other end is gone. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include "core/auth.h"
#include "core/tls.h"
#include "rendezvous/place.h"

#include <stdbool.h>

/* The names are for messages. */
struct wire {
	int rank, fd;                /* fd -1: there is none                             */
	struct tls *tls;             /* NULL: in clear                                   */
	bool is_stuck;               /* something could not be said to its end: nothing more can */
	bool is_own;                 /* both ends are this process's: it needs no TLS    */
	bool is_served;              /* by the process that called tutti_rendezvous_open */
	bool is_growing;             /* served by a rank that was there before           */
	bool has_spoken;             /* the server: a frame of its has come              */
	char where[HOST_BYTES + 16];
};

/* What the dialer's end greets with: which place it looks for, and how it means to go on. */
void wire_context(uint8_t context[AUTH_CONTEXT_BYTES], bool has_tls);
/* From here on by TLS; the greeting is over. */
tutti_status wire_secure(struct wire *wire, const struct auth *auth, uint64_t deadline_ns);
tutti_status wire_send(struct wire *wire, const void *data, size_t bytes, uint64_t deadline_ns);
tutti_status wire_recv(const struct wire *wire, void *data, size_t bytes, uint64_t deadline_ns);
void wire_close(struct wire *wire);

#endif
