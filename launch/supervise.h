/* The life of a job once its ranks run. */
#ifndef LAUNCH_SUPERVISE_H
#define LAUNCH_SUPERVISE_H

#include "ranks.h"

/* Passes output and signals on, and starts failed ranks again, until the job is over; returns tuttirun's exit code.
 * start: what they were started with. signal_fd: a signalfd with supervise_signals, which are blocked. */
int launch_supervise(struct ranks *ranks, const struct start *start, int signal_fd);
void supervise_signals(sigset_t *signals);

#endif
