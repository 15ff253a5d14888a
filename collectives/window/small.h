/* Calls whose data fits the ranks' lines: each rank posts its data with its line and reads the
 * others'. */
#ifndef COLLECTIVES_WINDOW_SMALL_H
#define COLLECTIVES_WINDOW_SMALL_H

#include "collectives/window/window_internal.h"

/* Whether all data of run fits; sets run->payload. The same on all ranks. */
bool small_fits(const struct window *window, struct window_run *run);
/* Before the line is posted. */
void small_write(struct window *window, const struct window_run *run);
/* After it was posted, where every rank has a core: pushes what this rank has written to the
 * others, and fetches what it will write in a next call of this length. */
void small_hand_over(struct window *window, const struct window_run *run);
/* What can be done before the others' lines are there, and when they are. */
void small_prepare(struct window *window, const struct window_run *run);
void small_finish(struct window *window, const struct window_run *run);

#endif
