/* Would break: pieces that stay short where each wait costs another program's turn, or long where
 * none does; ranks that cut a call differently, because only some of them have noticed the load. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/clock.h"
#include "tests/unit.h"

#define CALLS   40
#define RANKS   6
#define TURN_NS 2000000u /* twice what makes a round of four ranks long */

static uint64_t seed;

/* One call whose pieces are short: so many rounds, of which the last took last_us. */
static void judged(struct contention *c, int rounds, uint64_t round_us, uint64_t last_us)
{
	uint64_t now = 1000000;

	contention_begin(c, true, now);
	for (int i = 0; i < rounds; i++) {
		now += 1000 * (i < rounds - 1 ? round_us : last_us);
		contention_round(c, 2000000, now);
	}
	contention_end(c);
}

static void unjudged(struct contention *c)
{
	contention_begin(c, false, 0);
	contention_end(c);
}

static void test_judged(void **state)
{
	struct contention c = {0};

	judged(&c, 100, 50, 50);
	assert_false(contention_is_noticed(&c));
	judged(&c, 150, 50, 3000); /* one turn in 10 ms */
	assert_false(contention_is_noticed(&c));
	judged(&c, 100, 1900, 1900); /* slow, and no turn of another program */
	assert_false(contention_is_noticed(&c));
	judged(&c, 10, 50, 3000); /* one in 3.5 ms */
	assert_true(contention_is_noticed(&c));
	for (unsigned i = 0; i < CONTENTION_CALLS; i++) {
		assert_true(contention_is_noticed(&c));
		unjudged(&c);
	}
	assert_false(contention_is_noticed(&c));
	unjudged(&c);
	assert_false(contention_is_noticed(&c));
	judged(&c, 3, 4000, 4000);
	judged(&c, 100, 50, 50); /* the load has gone before the others have heard of it */
	assert_false(contention_is_noticed(&c));
}

static void run(int size, void (*body)(struct window *, int, void *), void *arg)
{
	struct team team = {.size = size,
			    .is_oversubscribed = true,
			    .window_bytes = 32 << 20,
			    .member = body,
			    .arg = arg};

	team_run(&team);
}

/* What each rank agreed to in each call, and how long its pieces were. */
struct seen {
	int size;
	bool agreed[RANKS][CALLS];
	size_t piece_bytes[RANKS][CALLS];
};

static struct call call_of(uint64_t i, int size)
{
	return (struct call){
		.collective = (enum collective)(team_random(seed, i, 0) % COLL_MEM_ALLOC),
		.dtype = TUTTI_I32,
		.op = TUTTI_SUM,
		.root = (int)(team_random(seed, i, 1) % (uint64_t)size),
		.count = team_random(seed, i, 2) % (team_random(seed, i, 3) % 3 ? 300000 : 3000),
		.seed = team_random(seed, i, 4),
	};
}

/* Now and then one rank notices the load. */
static void makes_calls(struct window *window, int rank, void *arg)
{
	struct seen *seen = arg;
	const struct manner manner = {.is_in_place = team_random(seed, (uint64_t)rank, 5) % 2};

	for (uint64_t i = 0; i < CALLS; i++) {
		struct made made = {.size = seen->size};
		struct call call = call_of(i, seen->size);
		tutti_status status;

		window->contention.calls_left =
			team_random(seed, i, 6) % (3 * (uint64_t)seen->size) == (uint64_t)rank;
		made_begin(&made, window, rank, &call, &manner);
		status = window_drive(window, &made.run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
		team_check(status == TUTTI_OK, "rank %d, call %d: %s", rank, (int)i, last_error());
		seen->piece_bytes[rank][i] = made.run.is_small ? 0 : made.run.piece_bytes;
		made_check(&made);
		seen->agreed[rank][i] = window->contention.is_agreed;
	}
}

static void test_all_agree(void **state)
{
	for (int size = 2; size <= RANKS; size += 2) {
		struct seen seen = {.size = size};
		int contended = 0;

		run(size, makes_calls, &seen);
		for (int i = 0; i < CALLS; i++) {
			contended += seen.agreed[0][i];
			for (int rank = 1; rank < size; rank++) {
				assert_int_equal(seen.agreed[rank][i], seen.agreed[0][i]);
				assert_int_equal(seen.piece_bytes[rank][i], seen.piece_bytes[0][i]);
			}
		}
		assert_in_range(contended, 1, CALLS - 1);
	}
}

/* What all have agreed on counts for the call after, and for no more. */
static void lengths(struct window *window, int rank, void *arg)
{
	size_t *bytes = arg;
	const struct manner manner = {0};
	const struct call call = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1 << 20, seed};

	for (int i = 0; i < 4; i++) {
		struct made made = {.size = 4};

		window->contention.calls_left = rank == 2 && i == 1;
		made_begin(&made, window, rank, &call, &manner);
		team_check(window_drive(window, &made.run, TEAM_TIMEOUT_NS, NULL, NULL, NULL) ==
				   TUTTI_OK,
			   "%s", last_error());
		if (rank == 0)
			bytes[i] = made.run.piece_bytes;
		made_check(&made);
		window->contention.is_judged = false;
	}
}

static void test_lengths(void **state)
{
	size_t bytes[4];

	run(4, lengths, bytes);
	assert_int_equal(bytes[0], 64 << 10);
	assert_int_equal(bytes[1], 64 << 10);
	assert_int_equal(bytes[2], 1 << 20);
	assert_int_equal(bytes[3], 64 << 10);
}

/* One rank is slow between its steps, as one that shares its core: those that wait for it notice.
 */
static void waits(struct window *window, int rank, void *arg)
{
	bool *has_noticed = arg;
	const struct manner manner = {0};
	const struct call call = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1 << 18, seed};
	struct made made = {.size = 4};
	tutti_status status;

	made_begin(&made, window, rank, &call, &manner);
	if (rank == 1) {
		while ((status = window_advance_once(window, &made.run)) == TUTTI_IN_PROGRESS)
			for (uint64_t end = clock_now_ns() + TURN_NS; clock_now_ns() < end;)
				continue;
	} else {
		status = window_drive(window, &made.run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	}
	team_check(status == TUTTI_OK, "%s", last_error());
	made_check(&made);
	has_noticed[rank] = contention_is_noticed(&window->contention);
}

static void test_noticed(void **state)
{
	bool has_noticed[4];

	run(4, waits, has_noticed);
	assert_true(has_noticed[0] && has_noticed[2] && has_noticed[3]);
}

/* Calls that are never cut short do not use up what was noticed. */
static void broadcasts(struct window *window, int rank, void *arg)
{
	unsigned *calls = arg;
	const struct manner manner = {0};
	const struct call call = {COLL_BROADCAST, TUTTI_F32, TUTTI_SUM, 0, 1 << 16, seed};

	window->contention.calls_left = 3;
	for (int i = 0; i < 5; i++)
		call_make(window, rank, 4, &call, &manner);
	calls[rank] = window->contention.calls_left;
}

static void test_not_used_up(void **state)
{
	unsigned calls[4];

	run(4, broadcasts, calls);
	for (int rank = 0; rank < 4; rank++)
		assert_int_equal(calls[rank], 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judged),      cmocka_unit_test(test_all_agree),
		cmocka_unit_test(test_lengths),     cmocka_unit_test(test_noticed),
		cmocka_unit_test(test_not_used_up),
	};

	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
