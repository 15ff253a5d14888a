/* Which ranks share this one's CPU, and moving to one with fewer. */
#ifndef COLLECTIVES_WINDOW_SAME_CPU_H
#define COLLECTIVES_WINDOW_SAME_CPU_H

#include "collectives/window/window_internal.h"

/* Once. spreads: the thread that waits may move to a CPU with fewer ranks. */
void same_cpu_begin(struct window *window, bool spreads);
/* Whether a rank on this CPU is in the way of run (progress_trails), so that this one should give
 * it the CPU. */
bool same_cpu_trails(struct window *window, const struct window_run *run);

#endif
