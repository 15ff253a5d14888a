/* Of whom a majority is asked: the ranks of the communicator that a line of shrinks began with, its founders. Who was
 * left behind on the way counts until it is proved dead, for it may go on with others who were. docs/design.md says why
 * no two groups then go on at the same time. */
#ifndef COLLECTIVES_CONTROL_QUORUM_H
#define COLLECTIVES_CONTROL_QUORUM_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

struct lineage {
	int founders, size;             /* size: of the present communicator                   */
	int *founder;                   /* by its rank: which of them that was                 */
	uint8_t *gone;                  /* by founder, 1: known to have died or left for good  */
};

/* A communicator that comes from none: its ranks are the founders. */
tutti_status lineage_begin(struct lineage *lineage, int size);
/* What is left of old: ranks (old ones, size of them) in their new order. */
tutti_status lineage_follow(struct lineage *lineage, const struct lineage *old, const int *ranks, int size);
/* Everybody, in the old order. */
tutti_status lineage_copy(struct lineage *lineage, const struct lineage *old);
void lineage_finish(struct lineage *lineage);

void lineage_bury(struct lineage *lineage, int rank);
/* Those that a copy knows to be gone. */
void lineage_learn(struct lineage *lineage, const struct lineage *copy);
/* Founders that are not known to be gone. */
int lineage_alive(const struct lineage *lineage);
/* Whether those who are here (by rank, nonzero) may go on: more than half of these, or half of them with the lowest. */
bool lineage_has_quorum(const struct lineage *lineage, const uint8_t *here);

#endif
