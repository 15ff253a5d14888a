/* Benchmark of tutti_all_gather. The size is that of the gathered whole. */
#include "collective.h"

static struct shape all_gather_perf_shape(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks;

	return (struct shape){
		.count = count,
		.whole = count * (size_t)at.ranks,
		.send = count,
		.recv = count * (size_t)at.ranks,
		.send_in_place = count * (size_t)at.rank,
	};
}

static tutti_status all_gather_perf_call(const struct operation *o)
{
	return tutti_all_gather(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
}

/* Block r is what rank r sent. */
static uint64_t all_gather_perf_wrong(const struct arrival *a)
{
	struct span block = {.iteration = a->iteration, .count = a->count};

	return wrong_blocks(a, block);
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "all_gather",
				 .shape = all_gather_perf_shape,
				 .call = all_gather_perf_call,
				 .wrong = all_gather_perf_wrong,
				 .bus_factor = bus_share,
			 });
}
