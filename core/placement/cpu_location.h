/* Where a rank's thread runs, as any other process of its node can ask the kernel. */
#ifndef CORE_PLACEMENT_CPU_LOCATION_H
#define CORE_PLACEMENT_CPU_LOCATION_H

#include <stdint.h>

#define WHEREABOUTS_MAX 16 /* ranks of a node that ask for each other's */

struct whereabouts {
	uint64_t processes; /* the namespace that the numbers are of; 0: not known */
	int32_t process, thread;
};

/* Of the calling thread. */
struct whereabouts whereabouts_here(void);
/* 1 + the CPU on which it runs, or ran last; 0: not known. A read of /proc, about 10 us. */
int32_t whereabouts_cpu(const struct whereabouts *w);

#endif
