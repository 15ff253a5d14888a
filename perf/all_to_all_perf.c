/* Benchmark of tutti_all_to_all, which has no form in place. The size is that of what each rank
 * sends. */
#include "collective.h"

static struct shape all_to_all_perf_shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;
	size_t whole = count * (size_t)at.ranks;

	return (struct shape){.count = count, .whole = whole, .send = whole, .recv = whole};
}

static tutti_status all_to_all_perf_call(const struct operation *o)
{
	return tutti_all_to_all(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
}

/* Block r is this rank's block of what rank r sent. */
static uint64_t all_to_all_perf_wrong(const struct arrival *a)
{
	struct span block = {
		.iteration = a->iteration,
		.first = (size_t)a->at.rank * a->count,
		.count = a->count,
	};

	return wrong_blocks(a, block);
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "all_to_all",
				 .is_never_in_place = true,
				 .shape = all_to_all_perf_shape,
				 .call = all_to_all_perf_call,
				 .wrong = all_to_all_perf_wrong,
				 .bus_factor = bus_share,
			 });
}
