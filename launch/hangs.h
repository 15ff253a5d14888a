/* The ranks of a job that is ended for its time: the calls that they are in, and their traces. */
#ifndef LAUNCH_HANGS_H
#define LAUNCH_HANGS_H

#include "ranks.h"

/* Says on the ranks' stderr which call each rank is in; writes their traces into the folder of
 * TUTTI_TRACE_DIR, if it is set. */
void hangs_report(struct ranks *ranks, const struct start *start);

#endif
