/* A rank's way to the server of its meeting: a socket, and TLS over it where the job has that.
 * Each call waits until it is done or its deadline is over; PEER: the other end is gone. */
#ifndef CORE_JOIN_WIRE_H
#define CORE_JOIN_WIRE_H

#include "core/auth.h"
#include "core/tls.h"
#include "core/join/frame.h"
#include "core/join/place.h"

#include <stdbool.h>

/* The names are for messages. */
struct wire {
	int rank, fd;                /* fd is -1 when there is none                      */
	struct tls *tls;             /* NULL: in clear                                   */
	bool is_stuck;               /* a message was cut off: nothing can follow it */
	bool is_own;                 /* both ends are this process's: it needs no TLS    */
	bool is_served;              /* by the process that called tutti_rendezvous_open */
	bool is_growing;             /* served by a rank that was there before           */
	bool has_spoken;             /* a frame of the server has come                   */
	char where[HOST_BYTES + 16];
};

/* The greeting of the dialer's end: which place it looks for, and how it means to go on. */
void wire_context(uint8_t context[AUTH_CONTEXT_BYTES], bool has_tls);
/* From here on by TLS; the greeting is over. */
tutti_status wire_secure(struct wire *wire, const struct auth *auth, uint64_t deadline_ns);
tutti_status wire_send(struct wire *wire, const void *data, size_t bytes, uint64_t deadline_ns);
void wire_close(struct wire *wire);

/* How much longer than its deadline a rank waits for the server's message about it. */
uint64_t wire_grace(uint64_t deadline_ns);
/* The server is gone or silent: PEER and TIMEOUT get their message, others have one. */
tutti_status wire_lost(const struct wire *wire, tutti_status status);
/* The frame of this kind and length; or what the meeting has failed with, for all ranks. */
tutti_status wire_await(struct wire *wire, enum frame_kind kind, void *body, size_t bytes,
			uint64_t deadline_ns);

#endif
