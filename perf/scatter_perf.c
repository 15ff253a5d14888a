/* Benchmark of tutti_scatter. The size is that of what the root hands out. */
#include "collective.h"

static struct shape scatter_perf_shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;
	bool is_root = at.rank == at.root;

	return (struct shape){
		.count = count,
		.whole = count * (size_t)at.ranks,
		.send = is_root ? count * (size_t)at.ranks : 0,
		.recv = count,
		.recv_in_place = is_root ? count * (size_t)at.rank : 0,
	};
}

static tutti_status scatter_perf_call(const struct operation *o)
{
	return tutti_scatter(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

/* A rank gets its own block of what the root has sent. */
static uint64_t scatter_perf_wrong(const struct arrival *a)
{
	struct span block = {
		.iteration = a->iteration,
		.first = (size_t)a->at.rank * a->count,
		.count = a->count,
	};

	return values_wrong(a->values, a->at.root, block, a->recv);
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "scatter",
				 .has_root = true,
				 .shape = scatter_perf_shape,
				 .call = scatter_perf_call,
				 .wrong = scatter_perf_wrong,
				 .bus_factor = bus_share,
			 });
}
