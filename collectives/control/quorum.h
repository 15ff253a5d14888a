/* The voters, of whom a majority decides: the ranks of the communicator that a line of shrinks
 * began with. A rank that was left behind on the way counts until it is proved dead, for it may
 * go on with others that were left behind. docs/consensus.md says why no two groups then go on at
 * the same time. */
#ifndef COLLECTIVES_CONTROL_QUORUM_H
#define COLLECTIVES_CONTROL_QUORUM_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

struct quorum {
	int voters, size;             /* size: of the present communicator                   */
	int *voter;                   /* by rank: which voter it was                         */
	uint8_t *gone;                  /* by voter: 1 if it is known to be dead or to have left */
};

/* Of a communicator without ancestors: its ranks are the voters. */
tutti_status quorum_begin(struct quorum *quorum, int size);
/* The part of old that is left: ranks (old ones, size of them) in their new order. */
tutti_status quorum_follow(struct quorum *quorum, const struct quorum *old, const int *ranks,
			   int size);
/* All of old's ranks, in the old order. */
tutti_status quorum_copy(struct quorum *quorum, const struct quorum *old);
void quorum_finish(struct quorum *quorum);

void quorum_mark_dead(struct quorum *quorum, int rank);
/* Takes over which voters copy knows to be gone. */
void quorum_learn(struct quorum *quorum, const struct quorum *copy);
/* Voters that are not known to be gone. */
int quorum_alive(const struct quorum *quorum);
/* Whether the ranks with nonzero here may go on: they are more than half of the voters alive, or
 * half of them with the lowest. */
bool quorum_is_reached(const struct quorum *quorum, const uint8_t *here);

#endif
