/* What the server of a meeting does, turn by turn, without its thread (server.c), so that a test
 * can take the turns itself. */
#ifndef RENDEZVOUS_SERVER_LOOP_H
#define RENDEZVOUS_SERVER_LOOP_H

#include "rendezvous/server.h"

#include <limits.h>
#include <stdbool.h>

struct server_loop;

/* The config's descriptors are the loop's from the call on, also when it fails. */
tutti_status server_loop_new(struct server_loop **loop, const struct server_config *config);
/* Waits for something to happen, most_ms at the most, and does what there is to do. False: it is
 * over. */
bool server_loop_turn(struct server_loop *loop, int most_ms);
#define SERVER_LOOP_PATIENT INT_MAX
/* No other connection can come. */
void server_loop_close_listeners(struct server_loop *loop);
void server_loop_free(struct server_loop *loop);

#endif
