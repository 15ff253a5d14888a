/* Where a rank's thread runs, from /proc, which says it of every thread in the same namespace of
 * processes. (Ranks that share memory tell each other.) */
#include "core/placement/cpu_location.h"

#include "core/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AFTER_NAME 37 /* the CPU is this many fields behind the name: proc(5) */

struct cpu_location cpu_location_here(void)
{
	return (struct cpu_location){.processes = machine_namespace("pid"),
				     .process = (int32_t)getpid(),
				     .thread = (int32_t)syscall(SYS_gettid)};
}

/* The program chooses its name, which may have blanks and brackets in it. */
static int32_t cpu_in(const char *stat)
{
	const char *at = strrchr(stat, ')');
	char *end;

	for (int i = 0; at && i < AFTER_NAME; i++)
		at = strchr(at + 1, ' ');
	if (!at)
		return 0;
	long cpu = strtol(at, &end, 10);
	return end == at || cpu < 0 || cpu >= CPU_SETSIZE ? 0 : 1 + (int32_t)cpu;
}

int32_t cpu_location_now(const struct cpu_location *where)
{
	char path[64], stat[1024];

	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)where->process,
		 (int)where->thread);
	return machine_text(path, stat, sizeof stat) ? cpu_in(stat) : 0;
}
