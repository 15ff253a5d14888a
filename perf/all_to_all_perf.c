/* Benchmark of tutti_all_to_all, which has no form in place. The size is that of what each rank
 * sends. */
#include "collective.h"

static struct shape shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;
	size_t whole = count * (size_t)at.ranks;

	return (struct shape){.count = count, .whole = whole, .send = whole, .recv = whole};
}

static tutti_status call(const struct operation *o)
{
	return tutti_all_to_all(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
}

/* Block r is this rank's block of what rank r sent. */
static uint64_t wrong(const struct arrival *a)
{
	struct span block = {
		.iteration = a->iteration,
		.first = (size_t)a->at.rank * a->count,
		.count = a->count,
	};
	uint64_t sum = 0;

	for (int rank = 0; rank < a->at.ranks; rank++)
		sum += values_wrong(a->values, rank, block,
				    a->recv + (size_t)rank * a->count * a->values->element_bytes);
	return sum;
}

static double bus_factor(int ranks)
{
	return (double)(ranks - 1) / ranks;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "all_to_all",
				 .is_never_in_place = true,
				 .shape = shape,
				 .call = call,
				 .wrong = wrong,
				 .bus_factor = bus_factor,
			 });
}
