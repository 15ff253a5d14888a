/* Benchmark of tutti_barrier: one row, without a size. */
#include "collective.h"

static tutti_status barrier_perf_call(const struct operation *o)
{
	return tutti_barrier(o->comm, o->call);
}

static double barrier_perf_bus_factor(int ranks)
{
	(void)ranks;
	return 0;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "barrier",
				 .is_never_in_place = true,
				 .call = barrier_perf_call,
				 .bus_factor = barrier_perf_bus_factor,
			 });
}
