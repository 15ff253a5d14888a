/* Benchmark of tutti_broadcast. */
#include "collective.h"

static struct shape broadcast_perf_shape(size_t elements, struct place at)
{
	(void)at;
	return (struct shape){
		.count = elements, .whole = elements, .send = elements, .recv = elements};
}

static tutti_status broadcast_perf_call(const struct operation *o)
{
	return tutti_broadcast(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

static uint64_t broadcast_perf_wrong(const struct arrival *a)
{
	struct span all = {.iteration = a->iteration, .count = a->count};

	return values_wrong(a->values, a->at.root, all, a->recv);
}

static double broadcast_perf_bus_factor(int ranks)
{
	(void)ranks;
	return 1;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "broadcast",
				 .has_root = true,
				 .shape = broadcast_perf_shape,
				 .call = broadcast_perf_call,
				 .wrong = broadcast_perf_wrong,
				 .bus_factor = broadcast_perf_bus_factor,
			 });
}
