/* Would break: a collective of the window that copies more than it must. What each rank puts into
 * its slots is counted and compared with the least: what others need of it, once; and its own block
 * or share never. */
#include "window_team.h"

#include "core/memory/dtype.h"
#include "tests/unit.h"

static uint64_t seed;

/* Elements that rank puts into its slots; reductions apart. */
static size_t least(const struct call *call, int rank, int size)
{
	enum collective pattern = collective_pattern(call->collective);
	size_t all = 0;

	switch (pattern) {
	case COLL_BROADCAST:
		return rank == call->root ? call->count : 0;
	case COLL_ALL_GATHER:
		return call_block(call, 0, rank);
	case COLL_GATHER:
		return rank == call->root ? 0 : call_block(call, 0, rank);
	case COLL_SCATTER:
		if (rank != call->root)
			return 0;
		break;
	default:
		break;
	}
	for (int to = 0; to < size; to++)
		all += to == rank ? 0 : call_block(call, rank, to);
	return all;
}

/* The same for both: a share of each piece is this rank's, in whole lines, so the last ranks' may
 * be smaller, and all ranks together have one copy of everything. */
static bool is_shared_out(const struct call *call)
{
	return call->collective == COLL_ALL_REDUCE || call->collective == COLL_REDUCE;
}

static void call_staged(struct window *window, int rank, int size, const struct call *call)
{
	struct manner manner = {.is_in_place = team_random(seed, (uint64_t)rank, 4) % 2};
	size_t unit = dtype_bytes(call->dtype), bytes = call->count * unit;
	uint64_t before[2], after[2], staged, through;

	window_stats(window, &before[0], &before[1]);
	call_make(window, rank, size, call, &manner);
	window_stats(window, &after[0], &after[1]);
	through = after[0] - before[0];
	staged = after[1] - before[1];
	if (is_shared_out(call)) {
		size_t share = bytes / (size_t)size, slack = 128 * (size_t)size * 40;
		team_check(through == bytes, "%zu bytes", (size_t)through);
		if (call->collective == COLL_REDUCE && staged == (rank == call->root ? 0 : bytes))
			return; /* the root does it alone */
		team_check(staged <= bytes - share + slack && staged + slack >= bytes - share,
			   "%zu of %zu bytes were staged", (size_t)staged, bytes);
		return;
	}
	team_check(staged == least(call, rank, size) * unit,
		   "rank %d of %d, %s, count %zu, seed %llu: %zu bytes were staged, not %zu", rank,
		   size, collective_name(call->collective), call->count,
		   (unsigned long long)call->seed, (size_t)staged, least(call, rank, size) * unit);
	if (collective_pattern(call->collective) == COLL_ALL_TO_ALL)
		bytes = (least(call, rank, size) + call_block(call, rank, rank)) * unit;
	else
		bytes = call_block(call, 0, rank) * unit;
	team_check(through == bytes, "%s: %zu bytes, not %zu", collective_name(call->collective),
		   (size_t)through, bytes);
}

/* A v-variant whose counts are drawn so small that they fit the lines is not what is meant here. */
static bool is_long(const struct call *call, int size)
{
	for (int to = 0; to < size; to++)
		if (call_block(call, 0, to) == call->count &&
		    (call->collective != COLL_ALL_TO_ALLV || to != 0))
			return true;
	return false;
}

static void every_collective(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;

	for (uint64_t i = 0; i < 3 * COLL_MEM_ALLOC; i++) {
		struct call call = {(enum collective)(i % COLL_MEM_ALLOC),
				    TUTTI_F32,
				    TUTTI_SUM,
				    (int)(i / 3 % (uint64_t)size),
				    4000 + (size_t)i * 100,
				    seed + i};
		if (call.collective == COLL_BARRIER)
			continue;
		for (int tries = 0; !is_long(&call, size); tries++) {
			team_check(tries < 1000, "no long counts are drawn");
			call.seed += 1000;
		}
		call_staged(window, rank, size, &call);
	}
}

static void test_staged(void **state)
{
	for (int size = 2; size <= 6; size += 2) {
		struct team team = {.size = size, .member = every_collective, .arg = &size};
		team.window_bytes = size == 4 ? 0 : 65536;
		team_run(&team);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_staged),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
