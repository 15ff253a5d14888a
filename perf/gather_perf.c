/* Benchmark of tutti_gather. The size is that of the gathered whole, which only the root has. */
#include "collective.h"

static struct shape shape(size_t elements, struct place at)
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

static tutti_status call(const struct operation *o)
{
	return tutti_gather(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

/* Block r is what rank r sent. */
static uint64_t wrong(const struct arrival *a)
{
	struct span block = {.iteration = a->iteration, .count = a->count};
	uint64_t sum = 0;

	if (a->at.rank != a->at.root)
		return 0;
	for (int rank = 0; rank < a->at.ranks; rank++)
		sum += values_wrong(a->values, rank, block,
				    a->recv + (size_t)rank * a->count * a->values->element_bytes);
	return sum;
}

/* All but the root's own share travels over the root's link. */
static double bus_factor(int ranks)
{
	return (double)(ranks - 1) / ranks;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "gather",
				 .has_root = true,
				 .shape = shape,
				 .call = call,
				 .wrong = wrong,
				 .bus_factor = bus_factor,
			 });
}
