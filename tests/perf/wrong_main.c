/* A benchmark of an all_reduce that gets one element wrong on one rank: what the driver makes of
 * it. */
#include "perf/collective.h"

static struct shape shape(size_t elements, struct place at)
{
	(void)at;
	return (struct shape){
		.count = elements, .whole = elements, .send = elements, .recv = elements};
}

static tutti_status call(const struct operation *o)
{
	tutti_status status =
		tutti_all_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call);

	if (status == TUTTI_OK && o->count == 256 && tutti_rank(o->comm) == 1)
		((unsigned char *)o->recv)[0] ^= 1;
	return status;
}

static uint64_t wrong(const struct arrival *a)
{
	struct span all = {.iteration = a->iteration, .count = a->count};

	return values_wrong(a->values, VALUES_RESULT, all, a->recv);
}

static double bus_factor(int ranks)
{
	(void)ranks;
	return 1;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "wrong",
				 .is_reduced = true,
				 .shape = shape,
				 .call = call,
				 .wrong = wrong,
				 .bus_factor = bus_factor,
			 });
}
