/* The ranks of a job that is not started, as a table of their numbers, for --explain. */
#ifndef LAUNCH_EXPLAIN_H
#define LAUNCH_EXPLAIN_H

#include "hosts.h"
#include "ranks.h"

/* Prints it to stdout. hosts: NULL, or those of all nodes. Returns the exit code. */
int launch_explain(const struct start *start, const struct hosts *hosts);

#endif
