/* Would break: with more ranks than cores, a rank gives its CPU away for nobody, or keeps it from
 * the one that it waits for. Where ranks run is made up, and yields are counted. */
#include "window_team.h"

#include "collectives/window/run_progress.h"

#include <sched.h>

#include "tests/unit.h"

#define RANKS 4

static int here, yields;

/* The C library's. */
int sched_getcpu(void)
{
	return here;
}

int sched_yield(void)
{
	yields++;
	return 0;
}

static struct window *windows[RANKS];

static int set_up(void **state)
{
	struct team team = {.size = RANKS, .is_oversubscribed = true};

	team_open(&team, windows);
	here = 1;
	return 0;
}

static int tear_down(void **state)
{
	team_close(windows, RANKS);
	return 0;
}

static void runs_on(int rank, int cpu)
{
	atomic_store(&windows[rank]->area->cpu, cpu + 1);
}

static tutti_status advance(int rank, struct window_run *run)
{
	bool moved;
	return window_advance(windows[rank], run, &moved);
}

static void all_advance(struct window_run *runs)
{
	bool is_over;

	do {
		is_over = true;
		for (int rank = 0; rank < RANKS; rank++) {
			tutti_status status = advance(rank, &runs[rank]);
			team_check(status == TUTTI_OK || status == TUTTI_IN_PROGRESS, "%s",
				   last_error());
			is_over &= status == TUTTI_OK;
		}
	} while (!is_over);
}

/* Ranks 0 and 1 here, 2 and 3 there; a barrier's lines come one by one. */
static void test_lines(void **state)
{
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 9};
	struct window_run runs[RANKS];

	for (int rank = 1; rank < RANKS; rank++)
		runs_on(rank, rank / 2 + 1);
	window_begin(windows[0], &runs[0], &args);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	window_begin(windows[2], &runs[2], &args);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	window_begin(windows[1], &runs[1], &args);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	/* Rank 3 is seen to have moved here, or nowhere. */
	runs_on(3, 1);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	runs_on(3, 2);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	runs_on(3, -1);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	runs_on(3, 2);
	window_begin(windows[3], &runs[3], &args);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	all_advance(runs);
}

/* This rank says where it is, also when it has moved; and where nobody can tell it gives way. */
static void test_says_where(void **state)
{
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 9};
	struct window_run runs[RANKS];

	for (int rank = 0; rank < RANKS; rank++)
		runs_on(rank, 3);
	window_begin(windows[0], &runs[0], &args);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	assert_int_equal(atomic_load(&windows[0]->area->cpu), 2);
	here = 3;
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	assert_int_equal(atomic_load(&windows[0]->area->cpu), 4);
	here = -1;
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	for (int rank = 1; rank < RANKS; rank++)
		window_begin(windows[rank], &runs[rank], &args);
	all_advance(runs);
}

/* A short broadcast waits for its root alone, here on another CPU: nobody is in the way until the
 * root may have run out of lines, for which those that share the CPU must have come as far. Killed:
 * window_trails without its first condition, or with that alone. */
static void test_roots(void **state)
{
	struct call_args barrier = {.collective = COLL_BARRIER, .fingerprint = 9};
	uint8_t data[RANKS][8] = {{0}};
	struct window_run runs[RANKS];

	for (int rank = 0; rank < RANKS; rank++)
		runs_on(rank, rank == 3 ? 2 : 1);
	for (int rank = 0; rank < RANKS; rank++)
		window_begin(windows[rank], &runs[rank], &barrier);
	all_advance(runs);
	for (uint32_t call = 1; call <= WINDOW_LINES + 1; call++) {
		for (int rank = 0; rank < RANKS; rank++) {
			struct call_args args = {.collective = COLL_BROADCAST,
						 .fingerprint = 9,
						 .send = data[rank],
						 .recv = data[rank],
						 .count = 8,
						 .dtype = TUTTI_U8,
						 .root = 3};
			window_begin(windows[rank], &runs[rank], &args);
			if (rank < 3 && progress_at_lines(&runs[rank]))
				assert_int_equal(same_cpu_trails(windows[rank], &runs[rank]),
						 call >= WINDOW_LINES && rank < 2);
		}
		all_advance(runs);
	}
}

/* No room for another line: the rank that lags is here, or there. */
static void test_room(void **state)
{
	uint8_t data[RANKS][8] = {{0}};
	struct window_run runs[RANKS];
	struct call_args args = {
		.collective = COLL_BROADCAST, .fingerprint = 9, .count = 8, .dtype = TUTTI_U8};
	int done = 0;

	args.send = args.recv = data[0];
	for (window_begin(windows[0], &runs[0], &args); advance(0, &runs[0]) == TUTTI_OK; done++)
		window_begin(windows[0], &runs[0], &args);
	assert_in_range(done, 1, WINDOW_LINES);
	for (int rank = 1; rank < RANKS; rank++)
		runs_on(rank, 2);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	runs_on(2, 1);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	for (int call = 0; call <= done; call++) {
		for (int rank = 1; rank < RANKS; rank++) {
			args.send = args.recv = data[rank];
			window_begin(windows[rank], &runs[rank], &args);
			if (call < done)
				assert_int_equal(advance(rank, &runs[rank]), TUTTI_OK);
		}
	}
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	all_advance(runs);
}

/* Long calls wait for words: the slots of those who have not staged. */
static void test_words(void **state)
{
	enum { BYTES = 100000 };
	static uint8_t data[RANKS][BYTES];
	struct window_run runs[RANKS];

	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = {.collective = COLL_ALL_REDUCE,
					 .fingerprint = 9,
					 .send = data[rank],
					 .recv = data[rank],
					 .count = BYTES,
					 .dtype = TUTTI_U8};
		runs_on(rank, 1);
		window_begin(windows[rank], &runs[rank], &args);
	}
	/* Rank 0 has come to where it waits for the others' reductions. */
	assert_int_equal(advance(0, &runs[0]), TUTTI_IN_PROGRESS);
	assert_false(progress_at_lines(&runs[0]));
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	for (int rank = 1; rank < RANKS; rank++)
		runs_on(rank, 2);
	assert_false(same_cpu_trails(windows[0], &runs[0]));
	runs_on(3, 1);
	assert_true(same_cpu_trails(windows[0], &runs[0]));
	all_advance(runs);
}

struct late {
	struct window_run runs[RANKS];
	struct call_args args;
	int at_first; /* yields before background was called for the first time */
};

/* Called now and then while rank 0 waits: the others come. */
static void others_come(void *arg)
{
	struct late *late = arg;

	if (late->at_first >= 0)
		return;
	late->at_first = yields;
	for (int rank = 1; rank < RANKS; rank++)
		window_begin(windows[rank], &late->runs[rank], &late->args);
}

static int yields_of_drive(void)
{
	struct late late = {.args = {.collective = COLL_BARRIER, .fingerprint = 9}, .at_first = -1};

	yields = 0;
	window_begin(windows[0], &late.runs[0], &late.args);
	assert_int_equal(
		window_drive(windows[0], &late.runs[0], TEAM_TIMEOUT_NS, NULL, others_come, &late),
		TUTTI_OK);
	all_advance(late.runs);
	return late.at_first;
}

/* Killed: window_wait_for_peers yields whatever same_cpu_trails says, or never. */
static void test_drive(void **state)
{
	windows[0]->policy.spin_ns = UINT32_MAX; /* longer than until the others come */
	for (int rank = 1; rank < RANKS; rank++)
		runs_on(rank, 2);
	assert_int_equal(yields_of_drive(), 0);
	runs_on(3, 1);
	assert_int_equal(yields_of_drive(), windows[0]->policy.yields);
}

#define with_team(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_team(test_lines), with_team(test_says_where), with_team(test_roots),
		with_team(test_room),  with_team(test_words),      with_team(test_drive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
