/* Processes that end together: all of them as soon as one has failed, time is up, or their parent
 * is gone. */
#ifndef PERF_LIMITS_WATCH_H
#define PERF_LIMITS_WATCH_H

#include "limits.h"

#include <stdbool.h>
#include <sys/types.h>

struct watch {
	int timeout_s; /* from the first watch_until_end on */
	int started;   /* how many; the fields below are of each, in the order of starting */
	pid_t pids[LIMITS_MOST]; /* 0: it has ended */
	int ends[LIMITS_MOST]; /* of pipes whose other ends they hold: shut when they have ended */
};

/* fork, of one more: 0 in the new process; -1 after a message. */
pid_t watch_fork(struct watch *watch);
/* Waits until all have ended. False after a message when one failed or time was up; then it has
 * killed the others. */
bool watch_until_end(struct watch *watch);
void watch_kill(struct watch *watch);

#endif
