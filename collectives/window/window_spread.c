/* Spreads the ranks of a window over the CPUs (core/placement/cpu_spread.h), by where they have
 * said that they are. */
#include "collectives/window/window_internal.h"

static int32_t cpu_of(void *arg, int rank)
{
	const struct window *w = arg;
	return atomic_load_explicit(&w->areas[rank].cpu, memory_order_relaxed);
}

void spread_look(struct window *w)
{
	struct spread_node node = {.size = w->size, .me = w->rank, .cpu_of = cpu_of, .arg = w};

	spread_among(&w->spread, &node);
	same_cpu_say(w);
}
