/* A rank's way to the meeting: finding the server, proving the secret, saying which rank this
 * is. */
#ifndef CORE_JOIN_FIND_SERVER_H
#define CORE_JOIN_FIND_SERVER_H

#include "core/join/wire.h"

#include <tutti/transport.h>

/* Where to look, and with which key. */
struct dial {
	char hosts[HOST_BYTES];            /* "a,b"                                           */
	int port, ports;                   /* how many from port on                           */
	bool is_only;                      /* a wrong answer there is an error                */
	uint8_t key[TUTTI_KEY_BYTES];
	uint8_t other_key[TUTTI_KEY_BYTES]; /* of secret_other_kind                           */
	bool has_other_key;
	char host[HOST_BYTES];             /* of the server that answered and proved the key  */
	int host_port;
};

#define PROBED_PORTS 16

/* Connects and says hello, again and again until the deadline. dial says where at last. */
tutti_status find_server(struct dial *dial, const struct job *job, const struct env *env,
                          uint64_t deadline_ns, struct wire *wire);
/* To a server that has answered, but closed the connection without a message: it may have had
 * too many pending connections to keep one whose proof had not come yet. PEER, without a
 * message: no process listens there any more. */
tutti_status find_server_again(const struct dial *dial, const struct job *job, uint64_t deadline_ns,
                               struct wire *wire);
/* The same over a connection that is there already. */
tutti_status find_server_own(struct wire *wire, const uint8_t key[TUTTI_KEY_BYTES],
                             const struct job *job, uint64_t deadline_ns);

#endif
