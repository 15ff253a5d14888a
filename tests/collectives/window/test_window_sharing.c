/* Would break: the root of a zero-copy broadcast, scatter or gather that takes a part of the work:
 * who moves what at any length and alignment, and all ranks decide alike, from what their lines
 * say, whether they share. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/status.h"

#include <unistd.h>

#include "tests/unit.h"

#define ARENA_BYTES ((size_t)16 << 20)
#define CALLS       18

static uint64_t seed;

/* Enough to share however the cores are, except in a scatter of ranks that share them. */
static size_t long_count(enum collective collective, int size)
{
	bool is_whole = collective == COLL_BROADCAST;
	return (is_whole ? (size_t)1 << 20 : (size_t)128 << 10) / 4 * (is_whole ? (size_t)size : 1);
}

static bool drive(struct window *window, int rank, int size, const struct call *call,
		  const struct manner *manner)
{
	struct made made = {.size = size};

	made_begin(&made, window, rank, call, manner);
	team_check(window_drive(window, &made.run, TEAM_TIMEOUT_NS, NULL, NULL, NULL) == TUTTI_OK,
		   "rank %d: %s", rank, last_error());
	made_check(&made);
	return made.run.is_shared;
}

/* Killed: zero_copy_help_with not in whole elements of every block; the last step that waits for
 * nobody; a rank that cannot be reached taken for one that can. */
static void share(struct window *window, int rank, void *arg)
{
	static const enum collective kinds[] = {COLL_BROADCAST, COLL_SCATTER, COLL_GATHER};
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, ARENA_BYTES);

	for (uint64_t i = 0; i < CALLS; i++) {
		uint64_t h = team_random(seed, i, 1),
			 own = team_random(seed, i, (uint64_t)rank + 9);
		enum collective kind = kinds[i % 3];
		struct call call = {kind, TUTTI_F32, TUTTI_SUM, (int)(h % (uint64_t)size),
				    0,    seed + i};
		bool in_place = i % 2 || kind != COLL_BROADCAST, all_reach = h >> 8 & 3;
		bool reaches = all_reach || rank != (call.root + 1) % size;
		struct manner manner = {.is_in_place = rank == call.root ? in_place : own & 1,
					.send_shift = own >> 1 & 127,
					.recv_shift = own >> 8 & 127,
					.send_arena = reaches ? arena : NULL,
					.recv_arena = reaches ? arena + ARENA_BYTES / 2 : NULL};
		bool shares;
		call.count = long_count(kind, size) + (h >> 16) % 1000;
		shares = drive(window, rank, size, &call, &manner);
		if (window->geometry.shares_cores)
			in_place = in_place && kind != COLL_SCATTER;
		team_check(shares == (in_place && all_reach) ||
				   (kind == COLL_BROADCAST && !window->geometry.shares_cores &&
				    shares == all_reach),
			   "rank %d, call %llu, %s", rank, (unsigned long long)i,
			   shares ? "shared" : "not shared");
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void test_share(void **state)
{
	for (int kind = 0; kind < 4; kind++) {
		for (int size = 2; size <= 4; size += 2) {
			struct team team = {.size = size,
					    .are_processes = kind & 1,
					    .is_oversubscribed = kind & 2,
					    .member = share,
					    .arg = &size};
			assert_int_equal(team_run(&team), 0);
		}
	}
}

/* Blocks of any lengths: none, all, a few elements. */
static void share_unequal(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, ARENA_BYTES);

	for (uint64_t i = 0; i < CALLS; i++) {
		enum collective kind = i % 2 ? COLL_SCATTERV : COLL_GATHERV;
		struct call call = {kind,
				    TUTTI_F32,
				    TUTTI_SUM,
				    (int)(i % (uint64_t)size),
				    long_count(kind, size) * 2,
				    seed + 100 + i};
		uint64_t own = team_random(seed, i, (uint64_t)rank + 9);
		struct manner manner = {.is_in_place = rank == call.root || own & 1,
					.send_shift = own >> 1 & 127,
					.recv_shift = own >> 8 & 127,
					.send_arena = arena,
					.recv_arena = arena + ARENA_BYTES / 2};
		drive(window, rank, size, &call, &manner);
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void test_share_unequal(void **state)
{
	for (int size = 2; size <= 5; size += 3) {
		struct team team = {.size = size, .member = share_unequal, .arg = &size};
		assert_int_equal(team_run(&team), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_share_unequal),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
