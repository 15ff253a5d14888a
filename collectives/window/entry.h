/* How a run enters: window_begin, and what window.c does of it later where there was no room. */
#ifndef COLLECTIVES_WINDOW_ENTRY_H
#define COLLECTIVES_WINDOW_ENTRY_H

#include "collectives/window/run_progress.h"

/* OK when there is room. */
tutti_status entry_see_room(struct window *window, struct window_run *run);
/* There is room: says what this rank has to say. */
void entry_post(struct window *window, struct window_run *run);
/* From here on run waits for the lines of all ranks. */
void entry_wait_for_all(const struct window *window, struct window_run *run);

#endif
