/* What each benchmark program measures: <name>_perf is this table's entry of that name. */
#include "collective.h"

#include <string.h>

/* ---- how large the buffers are ---- */

static struct shape shape_equal(size_t elements, struct place at)
{
	(void)at;
	return (struct shape){
		.count = elements, .whole = elements, .send = elements, .recv = elements};
}

static struct shape shape_reduce(size_t elements, struct place at)
{
	return (struct shape){
		.count = elements,
		.whole = elements,
		.send = elements,
		.recv = at.rank == at.root ? elements : 0,
	};
}

/* The others' size is that of all blocks together. */
static struct shape shape_all_gather(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks, whole = count * (size_t)at.ranks;

	return (struct shape){
		.count = count,
		.whole = whole,
		.send = count,
		.recv = whole,
		.send_in_place = count * (size_t)at.rank,
	};
}

static struct shape shape_reduce_scatter(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks, whole = count * (size_t)at.ranks;

	return (struct shape){
		.count = count,
		.whole = whole,
		.send = whole,
		.recv = count,
		.recv_in_place = count * (size_t)at.rank,
	};
}

/* Only the root has the whole. */
static struct shape shape_gather(size_t elements, struct place at)
{
	struct shape shape = shape_all_gather(elements, at);

	if (at.rank != at.root)
		shape.recv = shape.send_in_place = 0;
	return shape;
}

static struct shape shape_scatter(size_t elements, struct place at)
{
	struct shape shape = shape_reduce_scatter(elements, at);

	if (at.rank != at.root)
		shape.send = shape.recv_in_place = 0;
	return shape;
}

static struct shape shape_all_to_all(size_t elements, struct place at)
{
	size_t count = elements / (size_t)at.ranks, whole = count * (size_t)at.ranks;

	return (struct shape){.count = count, .whole = whole, .send = whole, .recv = whole};
}

/* ---- the calls ---- */

static tutti_status call_all_reduce(const struct operation *o)
{
	return tutti_all_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call);
}

static tutti_status call_all_gather(const struct operation *o)
{
	return tutti_all_gather(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
}

static tutti_status call_reduce_scatter(const struct operation *o)
{
	return tutti_reduce_scatter(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call);
}

static tutti_status call_broadcast(const struct operation *o)
{
	return tutti_broadcast(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

static tutti_status call_reduce(const struct operation *o)
{
	return tutti_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->root, o->comm, o->call);
}

static tutti_status call_gather(const struct operation *o)
{
	return tutti_gather(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

static tutti_status call_scatter(const struct operation *o)
{
	return tutti_scatter(o->send, o->recv, o->count, o->dtype, o->root, o->comm, o->call);
}

static tutti_status call_all_to_all(const struct operation *o)
{
	return tutti_all_to_all(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
}

static tutti_status call_barrier(const struct operation *o)
{
	return tutti_barrier(o->comm, o->call);
}

static int previous_of(int rank, int ranks)
{
	return (rank + ranks - 1) % ranks;
}

/* In a group each rank sends to the next one and receives from the one before. The recv first: a
 * peer that looks for one when data come finds it. NCCL takes the stream from the members, Tutti
 * from the group's end. */
static tutti_status call_sendrecv(const struct operation *o)
{
	int rank = tutti_rank(o->comm), ranks = tutti_size(o->comm);
	tutti_status status = tutti_group_begin(), ended;

	if (status != TUTTI_OK)
		return status;
	status =
		tutti_recv(o->recv, o->count, o->dtype, previous_of(rank, ranks), o->comm, o->call);
	if (status == TUTTI_OK)
		status = tutti_send(o->send, o->count, o->dtype, (rank + 1) % ranks, o->comm,
				    o->call);
	ended = tutti_group_end(o->call);
	return status == TUTTI_OK ? ended : status;
}

/* ---- how many elements of what arrived are wrong ---- */

static uint64_t wrong_from(const struct arrival *a, int source, size_t first)
{
	struct span span = {.iteration = a->iteration, .first = first, .count = a->count};

	return values_wrong(a->values, source, span, a->recv);
}

static uint64_t wrong_result(const struct arrival *a)
{
	return wrong_from(a, VALUES_RESULT, 0);
}

/* Off the root nothing arrives, and what was sent must stay. */
static uint64_t wrong_reduce(const struct arrival *a)
{
	return a->at.rank == a->at.root ? wrong_result(a) : 0;
}

static uint64_t wrong_broadcast(const struct arrival *a)
{
	return wrong_from(a, a->at.root, 0);
}

static uint64_t wrong_reduce_scatter(const struct arrival *a)
{
	return wrong_from(a, VALUES_RESULT, (size_t)a->at.rank * a->count);
}

static uint64_t wrong_scatter(const struct arrival *a)
{
	return wrong_from(a, a->at.root, (size_t)a->at.rank * a->count);
}

static uint64_t wrong_sendrecv(const struct arrival *a)
{
	return wrong_from(a, previous_of(a->at.rank, a->at.ranks), 0);
}

/* Block r of what arrived is what rank r sent from its element first on. */
static uint64_t wrong_blocks(const struct arrival *a, size_t first)
{
	struct span block = {.iteration = a->iteration, .first = first, .count = a->count};
	size_t bytes = block.count * a->values->element_bytes;
	uint64_t sum = 0;

	for (int rank = 0; rank < a->at.ranks; rank++)
		sum += values_wrong(a->values, rank, block, a->recv + (size_t)rank * bytes);
	return sum;
}

static uint64_t wrong_all_gather(const struct arrival *a)
{
	return wrong_blocks(a, 0);
}

static uint64_t wrong_gather(const struct arrival *a)
{
	return a->at.rank == a->at.root ? wrong_blocks(a, 0) : 0;
}

static uint64_t wrong_all_to_all(const struct arrival *a)
{
	return wrong_blocks(a, (size_t)a->at.rank * a->count);
}

/* ---- busbw / algbw, as nccl-tests defines it ---- */

/* Every element travels to be reduced and travels back, but for a rank's own share. */
static double bus_twice(int ranks)
{
	return 2.0 * (ranks - 1) / ranks;
}

/* All but a rank's own share of the whole travels over its link. */
static double bus_share(int ranks)
{
	return (double)(ranks - 1) / ranks;
}

static double bus_whole(int ranks)
{
	(void)ranks;
	return 1;
}

static double bus_none(int ranks)
{
	(void)ranks;
	return 0;
}

static const struct collective collectives[] = {
	{
		.name = "all_reduce",
		.is_reduced = true,
		.shape = shape_equal,
		.call = call_all_reduce,
		.wrong = wrong_result,
		.bus_factor = bus_twice,
	},
	{
		.name = "all_gather",
		.shape = shape_all_gather,
		.call = call_all_gather,
		.wrong = wrong_all_gather,
		.bus_factor = bus_share,
	},
	{
		.name = "reduce_scatter",
		.is_reduced = true,
		.shape = shape_reduce_scatter,
		.call = call_reduce_scatter,
		.wrong = wrong_reduce_scatter,
		.bus_factor = bus_share,
	},
	{
		.name = "broadcast",
		.has_root = true,
		.shape = shape_equal,
		.call = call_broadcast,
		.wrong = wrong_broadcast,
		.bus_factor = bus_whole,
	},
	{
		.name = "reduce",
		.is_reduced = true,
		.has_root = true,
		.shape = shape_reduce,
		.call = call_reduce,
		.wrong = wrong_reduce,
		.bus_factor = bus_whole,
	},
	{
		.name = "gather",
		.has_root = true,
		.shape = shape_gather,
		.call = call_gather,
		.wrong = wrong_gather,
		.bus_factor = bus_share,
	},
	{
		.name = "scatter",
		.has_root = true,
		.shape = shape_scatter,
		.call = call_scatter,
		.wrong = wrong_scatter,
		.bus_factor = bus_share,
	},
	{
		.name = "all_to_all",
		.is_never_in_place = true,
		.shape = shape_all_to_all,
		.call = call_all_to_all,
		.wrong = wrong_all_to_all,
		.bus_factor = bus_share,
	},
	{
		.name = "sendrecv",
		.is_never_in_place = true,
		.shape = shape_equal,
		.call = call_sendrecv,
		.wrong = wrong_sendrecv,
		.bus_factor = bus_whole,
	},
	{
		.name = "barrier",
		.is_never_in_place = true,
		.call = call_barrier,
		.bus_factor = bus_none,
	},
};

/* COLLECTIVE: the name of the program that is built. */
int main(int argc, char **argv)
{
	const struct collective *c = collectives;

	while (strcmp(c->name, COLLECTIVE) != 0)
		c++;
	return perf_main(argc, argv, c);
}
