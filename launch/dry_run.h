/* Commands and environment of a job that is not started, for --dry-run. */
#ifndef LAUNCH_DRY_RUN_H
#define LAUNCH_DRY_RUN_H

#include "hosts.h"
#include "ranks.h"

/* Prints it to stdout. hosts: NULL, or those of all nodes. Returns the exit code. */
int dry_run(const struct start *start, struct hosts *hosts);

#endif
