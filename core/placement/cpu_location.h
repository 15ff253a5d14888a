/* Where a rank's thread runs: any process of its node can ask the kernel. */
#ifndef CORE_PLACEMENT_CPU_LOCATION_H
#define CORE_PLACEMENT_CPU_LOCATION_H

#include <stdint.h>

#define CPU_LOCATIONS_MAX 16 /* with more ranks on a node they do not ask for each other's */

struct cpu_location {
	uint64_t processes; /* the namespace that the numbers are of, or 0 */
	int32_t process, thread;
};

/* Of the calling thread. */
struct cpu_location cpu_location_here(void);
/* 1 + the CPU on which it runs, or ran last; 0 if unknown. Reads /proc: about 10 us. */
int32_t cpu_location_now(const struct cpu_location *where);

#endif
