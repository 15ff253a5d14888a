/* The server of one meeting: a thread that accepts, checks and serves the ranks, and ends by itself. */
#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

#include "core/status.h"

#include <tutti/transport.h>

#include <stdint.h>

struct server;

/* Descriptors are the server's from the call on, also when it fails. */
struct server_config {
	int listen_fd;                      /* TCP                                             */
	int unix_fd;                        /* hands out key and port to this user; -1: none   */
	int own_fd;                         /* rank 0's connection, made already; -1: none     */
	int port;
	uint8_t key[TUTTI_KEY_BYTES];
	int size;                           /* 0: the first rank says it                       */
	uint64_t deadline_ns;               /* of joining                                      */
};

/* What the Unix socket hands out. */
#define OFFER_BYTES (TUTTI_KEY_BYTES + 4)

/* server NULL: nobody waits for it; it frees itself. */
tutti_status server_start(struct server **server, const struct server_config *config);
/* Waits for the thread: it ends when all ranks have left, or when the time that its own rank's BYE or a
 * failure leaves is over. */
void server_join(struct server *server);

#endif
