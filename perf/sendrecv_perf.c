/* Benchmark of tutti_send and tutti_recv: in a group each rank sends to the next one and receives
 * from the one before, in buffers of its own. The size is that of each message. */
#include "collective.h"

static struct shape sendrecv_perf_shape(size_t elements, struct place at)
{
	(void)at;
	return (struct shape){
		.count = elements, .whole = elements, .send = elements, .recv = elements};
}

static int next_of(int rank, int ranks)
{
	return (rank + 1) % ranks;
}

static int previous_of(int rank, int ranks)
{
	return (rank + ranks - 1) % ranks;
}

/* The recv first: a peer that looks for one when data come finds it. NCCL takes the stream from the
 * members, Tutti from the group's end. */
static tutti_status sendrecv_perf_call(const struct operation *o)
{
	int rank = tutti_rank(o->comm), ranks = tutti_size(o->comm);
	tutti_status status = tutti_group_begin(), ended;

	if (status != TUTTI_OK)
		return status;
	status =
		tutti_recv(o->recv, o->count, o->dtype, previous_of(rank, ranks), o->comm, o->call);
	if (status == TUTTI_OK)
		status = tutti_send(o->send, o->count, o->dtype, next_of(rank, ranks), o->comm,
				    o->call);
	ended = tutti_group_end(o->call);
	return status == TUTTI_OK ? ended : status;
}

static uint64_t sendrecv_perf_wrong(const struct arrival *a)
{
	struct span all = {.iteration = a->iteration, .count = a->count};

	return values_wrong(a->values, previous_of(a->at.rank, a->at.ranks), all, a->recv);
}

/* All of it travels over a rank's link, each way. */
static double sendrecv_perf_bus_factor(int ranks)
{
	(void)ranks;
	return 1;
}

int main(int argc, char **argv)
{
	return perf_main(argc, argv,
			 &(struct collective){
				 .name = "sendrecv",
				 .is_never_in_place = true,
				 .shape = sendrecv_perf_shape,
				 .call = sendrecv_perf_call,
				 .wrong = sendrecv_perf_wrong,
				 .bus_factor = sendrecv_perf_bus_factor,
			 });
}
