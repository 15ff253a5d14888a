/* A small process that outlives a killed launcher, to end what the ranks had started: the kernel ends the
 * ranks themselves with the launcher, but not their children. */
#ifndef LAUNCH_GUARD_H
#define LAUNCH_GUARD_H

#include "ranks.h"

/* Returns its pid, or -1: then there is none, which only a killed launcher's job would notice. */
pid_t guard_start(const struct ranks *ranks);
/* The job has ended in order; nobody needs guarding. */
void guard_end(pid_t guard);

#endif
