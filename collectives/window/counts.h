/* Blocks of different lengths: what a rank tells the others of them, so that all ranks cut the call
 * alike and none copies more than the other side has room for. */
#ifndef COLLECTIVES_WINDOW_COUNTS_H
#define COLLECTIVES_WINDOW_COUNTS_H

#include "collectives/window/window_internal.h"

/* Writes this rank's row, where the call needs one, before its line. */
void counts_publish(struct window *window, struct window_run *run);
/* An all_to_allv, with all lines there: whether all blocks that are sent are expected. MISMATCH, on
 * all ranks alike, when one is not. */
tutti_status counts_agree(const struct window *window, const struct window_run *run);
/* An all_to_allv: says in buffers what this rank sends, and puts it into its payload if it fits. */
void counts_write(struct window *window, const struct window_run *run,
		  struct line_buffers *buffers);
/* Copies it out; false, on all ranks alike, when some rank's did not fit. */
bool counts_finish(struct window *window, const struct window_run *run);

#endif
