/* Benchmark of tutti_all_reduce. */
#include "collective.h"

static struct shape all_reduce_perf_shape(size_t elements, struct place at)
{
	(void)at;
	return (struct shape){
		.count = elements, .whole = elements, .send = elements, .recv = elements};
}

static tutti_status all_reduce_perf_call(const struct operation *o)
{
	return tutti_all_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call);
}

static uint64_t all_reduce_perf_wrong(const struct arrival *a)
{
	struct span all = {.iteration = a->iteration, .count = a->count};

	return values_wrong(a->values, VALUES_RESULT, all, a->recv);
}

/* Every element travels to be reduced and travels back, but for a rank's own share. */
static double all_reduce_perf_bus_factor(int ranks)
{
	return 2.0 * (ranks - 1) / ranks;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "all_reduce",
				 .is_reduced = true,
				 .shape = all_reduce_perf_shape,
				 .call = all_reduce_perf_call,
				 .wrong = all_reduce_perf_wrong,
				 .bus_factor = all_reduce_perf_bus_factor,
			 });
}
