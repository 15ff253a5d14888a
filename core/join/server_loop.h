/* The work of a meeting's server, turn by turn, without its thread (server.c), so that a test
 * can take the turns itself. */
#ifndef CORE_JOIN_SERVER_LOOP_H
#define CORE_JOIN_SERVER_LOOP_H

#include "core/long_wait.h"
#include "core/join/caller.h"
#include "core/join/server.h"

#include <limits.h>
#include <poll.h>

struct server_loop {
	struct host host;
	struct server_config config;
	struct caller **callers, *own;
	struct pollfd *polls;
	struct admission pending;
	int count, capacity, told;
	int turned_away;      /* in a row, for want of memory: ranks come again */
	int stop_fd;          /* server.c's: readable when it is to stop, or -1 */
	bool is_stopped;
	uint8_t welcome[FRAME_WELCOME_BYTES];
	uint64_t failed_ns;   /* 0 until it fails                               */
	uint64_t stop_ns;     /* rank 0, whose process this is, waits no longer */
	uint64_t idle_for_ns, idle_ns;
	uint64_t now_ns;      /* at the end of the last turn                    */
	struct long_wait wait; /* for ranks                                     */
};

/* The config's descriptors are the loop's from the call on, also when it fails. */
tutti_status server_loop_new(struct server_loop **loop, const struct server_config *config);
/* Waits for something to happen, most_ms at the most, and does what there is to do. False: it is
 * over. */
bool server_loop_turn(struct server_loop *loop, int most_ms);
#define SERVER_LOOP_PATIENT INT_MAX
/* No other connection can come. */
void server_loop_close_listeners(struct server_loop *loop);
void server_loop_free(struct server_loop *loop);

/* NULL if there is no memory; fd is closed. */
struct caller *server_add_caller(struct server_loop *s, int fd);

#endif
