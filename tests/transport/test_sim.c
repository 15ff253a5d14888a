/* no_tsan: it has one thread */
/* Would break: sim is not a transport like the others, so what passes on it proves nothing of them.
 */
#include "tests/transport/conformance.h"

#include "tests/sim/sim.h"

static void *create(int size, uint64_t seed)
{
	const struct sim_config config = {.size = size, .seed = seed};
	struct sim *sim;

	return sim_create(&sim, &config) == TUTTI_OK ? sim : NULL;
}

static void destroy(void *world)
{
	sim_destroy(world);
}

static int step(void *world)
{
	int ranks[2];

	return sim_step(world, ranks);
}

static void kill_rank(void *world, int rank)
{
	sim_kill(world, rank);
}

int main(void)
{
	static const struct conformance sim = {
		.transport = &transport_sim,
		.world_create = create,
		.world_destroy = destroy,
		.world_step = step,
		.world_kill = kill_rank,
	};
	return conformance_main(&sim);
}
