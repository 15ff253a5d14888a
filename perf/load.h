/* Busy processes beside the ranks of a machine, which compute and want a core as other programs do.
 */
#ifndef PERF_LOAD_H
#define PERF_LOAD_H

#include <stdbool.h>
#include <sys/types.h>

#define LOAD_MAX 1024

struct load {
	pid_t *processes;
	int count;
};

/* They may run on all CPUs that the machine gives to this process, whatever the rank is bound to,
 * and end with it, however it ends. False: some could not be made; a message on stderr says why. */
bool load_start(struct load *load, int count);
void load_stop(struct load *load); /* one that is zero is fine */

#endif
