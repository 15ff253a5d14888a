/* Benchmark of tutti_reduce_scatter. The size is that of what each rank sends. */
#include "collective.h"

static struct shape reduce_scatter_perf_shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;

	return (struct shape){
		.count = count,
		.whole = count * (size_t)at.ranks,
		.send = count * (size_t)at.ranks,
		.recv = count,
		.recv_in_place = count * (size_t)at.rank,
	};
}

static tutti_status reduce_scatter_perf_call(const struct operation *o)
{
	return tutti_reduce_scatter(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call);
}

/* A rank gets its own block of the result. */
static uint64_t reduce_scatter_perf_wrong(const struct arrival *a)
{
	struct span block = {
		.iteration = a->iteration,
		.first = (size_t)a->at.rank * a->count,
		.count = a->count,
	};

	return values_wrong(a->values, VALUES_RESULT, block, a->recv);
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "reduce_scatter",
				 .is_reduced = true,
				 .shape = reduce_scatter_perf_shape,
				 .call = reduce_scatter_perf_call,
				 .wrong = reduce_scatter_perf_wrong,
				 .bus_factor = bus_share,
			 });
}
