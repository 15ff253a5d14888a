/* The server of one meeting: a thread that accepts, checks and serves the ranks, and ends by
 * itself. */
#ifndef CORE_JOIN_SERVER_H
#define CORE_JOIN_SERVER_H

#include "core/status.h"

#include <tutti/transport.h>

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

struct server;

/* Descriptors are the server's from the call on, also when it fails. */
struct server_config {
	int listen_fd;                      /* TCP                                             */
	int unix_fd;                        /* hands out key and port to this user; or -1      */
	int own_fd;                         /* rank 0's connection, made already; or -1        */
	int port;
	uint8_t key[TUTTI_KEY_BYTES];
	int rank;                           /* of this process; -1: none                       */
	char where[272];                    /* its address, for messages                       */
	int size;                           /* 0 if the first rank says it                     */
	int local_ranks;                    /* as the ranks say it, in struct job; or 0          */
	uint64_t deadline_ns;               /* of joining                                      */
};

static inline void server_config_close(const struct server_config *config)
{
	const int fds[] = {config->listen_fd, config->unix_fd, config->own_fd};

	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* The Unix socket hands out the key and the port. */
#define OFFER_BYTES (TUTTI_KEY_BYTES + 4)

/* If server is NULL, no thread waits for it: it is open, and frees itself. */
tutti_status server_start(struct server **server, const struct server_config *config);
/* Ends this process's open server with this key and waits for its thread; the ranks that wait there
 * fail. False: there is none, or it has ended. */
bool server_stop(const uint8_t key[TUTTI_KEY_BYTES]);
/* Waits for the thread: it ends when all ranks have left, or when the time that its own rank's
 * BYE or a failure leaves is over. why: receives the meeting's
 * failure, or OK; may be NULL. */
void server_join(struct server *server, struct kept_error *why);

#endif
