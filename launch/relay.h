/* The output of all ranks on its way to our stdout and stderr. */
#ifndef LAUNCH_RELAY_H
#define LAUNCH_RELAY_H

#include "ranks.h"

#include <poll.h>

/* How many descriptors are polled: the two sinks, then two streams a rank. */
int relay_polls(const struct ranks *r);
void relay_interests(struct ranks *r, struct pollfd *polls);
/* Whether output is about to be written. */
bool relay_writes(const struct pollfd *polls);
/* Moves what can be moved. turn: another number each time. */
void relay_move(struct ranks *r, const struct pollfd *polls, int turn);
/* When there is something to do though no descriptor says so; UINT64_MAX: never. */
uint64_t relay_due_ms(const struct ranks *r);
/* All ranks have ended, but a child that was left behind holds their pipes. with_output: also of
 * streams that still hold some. */
void relay_leave(struct ranks *r, bool with_output);
/* All output has gone, and no more can come. */
bool relay_is_empty(struct ranks *r);

#endif
