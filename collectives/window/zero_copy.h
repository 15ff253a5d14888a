/* Buffers that all ranks of the window can reach (tutti_mem_alloc). */
#ifndef COLLECTIVES_WINDOW_ZERO_COPY_H
#define COLLECTIVES_WINDOW_ZERO_COPY_H

#include "collectives/window/window_internal.h"

/* With all lines there: run goes this path; false, on every rank alike: it cannot. */
bool zero_copy_begin(struct window *window, struct window_run *run);

/* reach.c */

/* Says in buffers where this rank's are, or an id of 0 where the others cannot reach one that they
 * would use. Returns whether the call may go without staging, for all that this rank knows. */
bool reach_publish(struct window *window, const struct window_run *run,
		   struct line_buffers *buffers);
/* With all ranks' lines: whether every buffer is reachable. The same on every rank. Sets
 * run->is_shared. */
bool reach_all(struct window *window, struct window_run *run);
/* Whether the others use a buffer of rank. */
bool reach_lends(const struct window_run *run, int rank);
/* Whether, by the root's line, the root and the others may share the work. All lines decide. */
bool reach_may_share(struct window *window, const struct window_run *run,
		     const struct line_buffers *root);

#endif
