/* A line below the output of the ranks, on a terminal: how far the job is. */
#ifndef LAUNCH_PROGRESS_H
#define LAUNCH_PROGRESS_H

#include "ranks.h"

struct progress {
	bool is_wanted, is_shown;
	uint64_t began_ms, due_ms;
};

/* Only where stderr is a terminal. */
struct progress progress_begin(const struct options *options);
/* When the line is due; UINT64_MAX: never. */
uint64_t progress_due_ms(const struct progress *progress);
/* Draws the line if it is due and no other line is half written. */
void progress_draw(struct progress *progress, const struct ranks *ranks, bool are_hosts);
/* Before anything else is written. */
void progress_erase(struct progress *progress);

#endif
