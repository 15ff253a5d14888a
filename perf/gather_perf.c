/* Benchmark of tutti_gather. The size is that of the gathered whole, which only the root has. */
#include "collective.h"

static struct shape gather_perf_shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;
	bool is_root = at.rank == at.root;

	return (struct shape){
		.count = count,
		.whole = count * (size_t)at.ranks,
		.send = count,
		.recv = is_root ? count * (size_t)at.ranks : 0,
		.send_in_place = is_root ? count * (size_t)at.rank : 0,
	};
}

static tutti_status gather_perf_call(const struct operation *o)
{
	return tutti_gather(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

/* Block r is what rank r sent. */
static uint64_t gather_perf_wrong(const struct arrival *a)
{
	struct span block = {.iteration = a->iteration, .count = a->count};

	if (a->at.rank != a->at.root)
		return 0;
	return wrong_blocks(a, block);
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "gather",
				 .has_root = true,
				 .shape = gather_perf_shape,
				 .call = gather_perf_call,
				 .wrong = gather_perf_wrong,
				 .bus_factor = bus_share,
			 });
}
