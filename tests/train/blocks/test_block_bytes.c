/* What would break: blocks that travel more than once to a rank. A rank sends as much as with
 * tutti_all_gather and tutti_reduce_scatter: its communicator is asked what really left it. */
#include "tests/train/ranks.h"

#include <tutti/parallel.h>

#include <stdlib.h>

#include "tests/unit.h"

enum { COUNT = 1680, ELEMENT = 4, AGREEMENT = 4 };

static uint64_t sent_bytes(const tutti_comm *comm)
{
	tutti_stats stats;

	CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
	CHECK(stats.window_bytes == 0);
	return stats.sent_bytes;
}

static tutti_status use(void *arg, int rank, void *data, size_t count)
{
	CHECK(count == COUNT);
	return TUTTI_OK;
}

static tutti_status fill(void *arg, int rank, void *data, size_t count)
{
	for (size_t i = 0; i < count; i++)
		((float *)data)[i] = (float)rank;
	return TUTTI_OK;
}

static void pass_blocks(tutti_comm *comm, void *arg)
{
	static const float block[COUNT];
	float sum[COUNT];
	uint64_t others = (uint64_t)tutti_size(comm) - 1, bytes = others * COUNT * ELEMENT;

	uint64_t before = sent_bytes(comm);
	CHECK(tutti_all_gather_each(block, COUNT, TUTTI_F32, use, NULL, comm, NULL) == TUTTI_OK);
	uint64_t gathered = sent_bytes(comm) - before;
	CHECK(gathered == bytes);
	CHECK(tutti_reduce_scatter_each(sum, COUNT, TUTTI_F32, TUTTI_SUM, fill, NULL, comm, NULL) ==
	      TUTTI_OK);
	/* The agreement is one element, which ranks do not share evenly. */
	uint64_t all = sent_bytes(comm) - before - gathered;
	CHECK(all >= bytes && all <= bytes + 2 * AGREEMENT);
	CHECK(tutti_all_reduce(&all, &all, 1, TUTTI_U64, TUTTI_SUM, comm, NULL) == TUTTI_OK);
	CHECK(all == (others + 1) * bytes + 2 * others * AGREEMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {RANKS_TEST(pass_blocks, 1, 8)};

	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_ALGO", "all_reduce=ring,all_gather=ring,broadcast=ring,reduce=ring", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
