/* How the ranks of a node come to share a window. */
#ifndef COLLECTIVES_WINDOW_WINDOW_JOIN_H
#define COLLECTIVES_WINDOW_WINDOW_JOIN_H

#include "collectives/window/window_internal.h"

#define JOIN_ASK_MS      20 /* between two looks whether it makes sense to wait on */
#define JOIN_PAUSES      5  /* of 1, 2, 4, 8, 16 ms, again and again, until the leader listens */
#define JOIN_PENDING_MAX 32 /* connections that have said nothing yet; then the oldest goes */

struct join_wait { /* until when it is worth to wait for the others */
	uint64_t deadline_ns;
	bool (*is_over)(void *arg); /* or NULL */
	void *arg;
};

#define HELLO_MAGIC 0x7475747469303177u
struct join_hello {
	uint64_t magic, comm_id[2];
	int32_t rank, size;
};

struct join_welcome {
	int32_t status;
	uint8_t has_process[WINDOW_MAX_RANKS]; /* a pidfd follows */
};

/* Where the leader listens. */
void window_socket_name(char *name, size_t bytes, const uint64_t comm_id[2]);
/* Joins at the listener, or over a connection to it. Both close it where they do not keep it. */
tutti_status window_lead_at(struct window **window, const struct window_config *config,
			    int listener, const struct join_wait *wait);
tutti_status window_follow_over(struct window **window, const struct window_config *config,
				int socket, uint64_t deadline_ns);

#endif
