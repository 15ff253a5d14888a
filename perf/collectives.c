/* The collectives that are measured: <name>_perf is this table's entry of that name. */
#include "collective.h"

#include <string.h>

static const struct collective collectives[] = {
	{.name = "all_reduce",
	 .call = CALL_ALL_REDUCE,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_COUNT,
	 .is_reduced = true},
	{.name = "all_gather",
	 .call = CALL_ALL_GATHER,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_BLOCKS},
	{.name = "reduce_scatter",
	 .call = CALL_REDUCE_SCATTER,
	 .send = BUFFER_BLOCKS,
	 .recv = BUFFER_COUNT,
	 .is_reduced = true},
	{.name = "broadcast",
	 .call = CALL_BROADCAST,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_COUNT,
	 .has_root = true},
	{.name = "reduce",
	 .call = CALL_REDUCE,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_COUNT,
	 .is_reduced = true,
	 .has_root = true,
	 .has_root_recv = true},
	{.name = "gather",
	 .call = CALL_GATHER,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_BLOCKS,
	 .has_root = true,
	 .has_root_recv = true},
	{.name = "scatter",
	 .call = CALL_SCATTER,
	 .send = BUFFER_BLOCKS,
	 .recv = BUFFER_COUNT,
	 .has_root = true,
	 .has_root_send = true},
	{.name = "all_to_all",
	 .call = CALL_ALL_TO_ALL,
	 .send = BUFFER_BLOCKS,
	 .recv = BUFFER_BLOCKS,
	 .is_never_in_place = true},
	{.name = "sendrecv",
	 .call = CALL_SENDRECV,
	 .send = BUFFER_COUNT,
	 .recv = BUFFER_COUNT,
	 .is_never_in_place = true},
	{.name = "barrier", .call = CALL_BARRIER, .is_never_in_place = true},
};

const struct collective *collective_named(const char *name)
{
	const struct collective *c = collectives;

	while (strcmp(c->name, name) != 0)
		c++;
	return c;
}

bool collective_has_data(const struct collective *c)
{
	return c->send != BUFFER_NONE;
}

static bool collective_has_blocks(const struct collective *c)
{
	return c->send == BUFFER_BLOCKS || c->recv == BUFFER_BLOCKS;
}

struct shape collective_shape(const struct collective *c, size_t elements, struct place at)
{
	size_t blocks = collective_has_blocks(c) ? (size_t)at.ranks : 1, count = elements / blocks;
	bool is_root = at.rank == at.root;
	struct shape s = {.count = count, .whole = count * blocks};

	if (!c->has_root_send || is_root)
		s.send = c->send == BUFFER_BLOCKS ? s.whole : count;
	if (!c->has_root_recv || is_root)
		s.recv = c->recv == BUFFER_BLOCKS ? s.whole : count;
	if (s.send < s.recv && s.send)
		s.send_in_place = count * (size_t)at.rank;
	if (s.recv < s.send && s.recv)
		s.recv_in_place = count * (size_t)at.rank;
	return s;
}

int collective_previous(int rank, int ranks)
{
	return (rank + ranks - 1) % ranks;
}

/* A block for each rank is what that rank has sent; else it is a result, the root's, or of the rank
 * before. Of blocks that were sent each rank gets its own. */
uint64_t collective_wrong(const struct collective *c, const struct arrival *a)
{
	struct span block = {.iteration = a->iteration, .count = a->count};
	size_t bytes = block.count * a->values->element_bytes;
	int blocks = c->recv == BUFFER_BLOCKS ? a->at.ranks : 1;
	uint64_t wrong = 0;

	if (c->send == BUFFER_BLOCKS)
		block.first = (size_t)a->at.rank * a->count;
	for (int i = 0; a->recv && i < blocks; i++) {
		int source = blocks > 1 || c->recv == BUFFER_BLOCKS ? i
			     : c->is_reduced                        ? VALUES_RESULT
			     : c->has_root                          ? a->at.root
					   : collective_previous(a->at.rank, a->at.ranks);

		wrong += values_wrong(a->values, source, block, a->recv + (size_t)i * bytes);
	}
	return wrong;
}

/* To be reduced and back, or once, travels all but a rank's own share. */
double collective_bus_factor(const struct collective *c, int ranks)
{
	double share = (double)(ranks - 1) / ranks;

	if (!collective_has_data(c))
		return 0;
	if (c->call == CALL_ALL_REDUCE)
		return 2 * share;
	return collective_has_blocks(c) ? share : 1;
}
