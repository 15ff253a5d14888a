/* Spreads ranks of a node that share no window over its CPUs (core/placement/cpu_spread.h), when
 * there are more ranks than CPUs. The kernel says where each rank runs; it is asked less and less
 * often. */
#include "collectives/engine/run.h"

#include <sys/syscall.h>
#include <unistd.h>

#define PACE_MOST_NS 64000000u

static int32_t cpu_of(void *arg, int place)
{
	const struct engine *e = arg;
	return cpu_location_now(&e->config.near[place]);
}

/* The others know one thread of this rank: another one that makes calls stays where it is. */
void engine_spread(struct engine *e)
{
	struct spread_node node = {.size = e->config.ranks_near_count,
				   .me = e->config.ranks_near_me,
				   .cpu_of = cpu_of,
				   .arg = e,
				   .pace_most_ns = PACE_MOST_NS};

	if (e->config.near[node.me].thread == (int32_t)syscall(SYS_gettid))
		spread_among(&e->spread, &node);
}
