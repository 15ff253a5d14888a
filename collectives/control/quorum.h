/* Of whom a majority is asked: the ranks of the communicator that a line of shrinks began with, its voters. Who was
 * left behind on the way counts until it is proved dead, for it may go on with others who were. docs/failure.md says why
 * no two groups then go on at the same time. */
#ifndef COLLECTIVES_CONTROL_QUORUM_H
#define COLLECTIVES_CONTROL_QUORUM_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

struct quorum {
	int voters, size;             /* size: of the present communicator                   */
	int *voter;                   /* by its rank: which of them that was                 */
	uint8_t *gone;                  /* by voter, 1: known to have died or left for good  */
};

/* A communicator that comes from none: its ranks are the voters. */
tutti_status quorum_begin(struct quorum *quorum, int size);
/* What is left of old: ranks (old ones, size of them) in their new order. */
tutti_status quorum_follow(struct quorum *quorum, const struct quorum *old, const int *ranks, int size);
/* Everybody, in the old order. */
tutti_status quorum_copy(struct quorum *quorum, const struct quorum *old);
void quorum_finish(struct quorum *quorum);

void quorum_mark_dead(struct quorum *quorum, int rank);
/* Those that a copy knows to be gone. */
void quorum_learn(struct quorum *quorum, const struct quorum *copy);
/* Voters that are not known to be gone. */
int quorum_alive(const struct quorum *quorum);
/* Whether those who are here (by rank, nonzero) may go on: more than half of these, or half of them with the lowest. */
bool quorum_is_reached(const struct quorum *quorum, const uint8_t *here);

#endif
