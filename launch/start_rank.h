/* The process of one rank. */
#ifndef LAUNCH_START_RANK_H
#define LAUNCH_START_RANK_H

#include "ranks.h"

/* Starts the local-th rank: restart 0 for the first time; or the number of the restart; or WITH_ALL. Returns as
 * ranks_start. */
int start_rank(struct ranks *ranks, const struct start *start, int local, int restart);

#endif
