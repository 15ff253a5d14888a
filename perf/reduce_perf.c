/* Benchmark of tutti_reduce. Off the root nothing arrives, and what was sent must stay. */
#include "collective.h"

static struct shape reduce_perf_shape(size_t elements, struct place at)
{
	return (struct shape){
		.count = elements,
		.whole = elements,
		.send = elements,
		.recv = at.rank == at.root ? elements : 0,
	};
}

static tutti_status reduce_perf_call(const struct operation *o)
{
	return tutti_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->root, o->comm, o->call);
}

static uint64_t reduce_perf_wrong(const struct arrival *a)
{
	struct span all = {.iteration = a->iteration, .count = a->count};

	return a->at.rank == a->at.root ? values_wrong(a->values, VALUES_RESULT, all, a->recv) : 0;
}

static double reduce_perf_bus_factor(int ranks)
{
	(void)ranks;
	return 1;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "reduce",
				 .is_reduced = true,
				 .has_root = true,
				 .shape = reduce_perf_shape,
				 .call = reduce_perf_call,
				 .wrong = reduce_perf_wrong,
				 .bus_factor = reduce_perf_bus_factor,
			 });
}
