/* The collectives that are measured: <name>_perf is this table's entry of that name. */
#include "collective.h"

#include <string.h>

static const struct collective collectives[] = {
	{"all_reduce", CALL_ALL_REDUCE, BUFFER_COUNT, BUFFER_COUNT, .is_reduced = true},
	{"all_gather", CALL_ALL_GATHER, BUFFER_COUNT, .recv = BUFFER_BLOCKS},
	{"reduce_scatter", CALL_REDUCE_SCATTER, BUFFER_BLOCKS, BUFFER_COUNT, .is_reduced = true},
	{"broadcast", CALL_BROADCAST, BUFFER_COUNT, BUFFER_COUNT, .has_root = true},
	{"reduce", CALL_REDUCE, BUFFER_COUNT, BUFFER_COUNT, .is_reduced = true, .has_root = true,
	 .has_root_recv = true},
	{"gather", CALL_GATHER, BUFFER_COUNT, BUFFER_BLOCKS, .has_root = true,
	 .has_root_recv = true},
	{"scatter", CALL_SCATTER, BUFFER_BLOCKS, BUFFER_COUNT, .has_root = true,
	 .has_root_send = true},
	{"all_to_all", CALL_ALL_TO_ALL, BUFFER_BLOCKS, BUFFER_BLOCKS, .is_never_in_place = true},
	{"sendrecv", CALL_SENDRECV, BUFFER_COUNT, BUFFER_COUNT, .is_never_in_place = true},
	{"barrier", CALL_BARRIER, BUFFER_NONE, BUFFER_NONE, .is_never_in_place = true},
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
		int source = c->recv == BUFFER_BLOCKS ? i
			     : c->is_reduced          ? VALUES_RESULT
			     : c->has_root            ? a->at.root
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
