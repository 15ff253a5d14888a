/* slow: 8 s */
/* What would break: a pipeline that never ends, does an action twice or never, holds more than its
 * schedule says, or takes longer than its formula. Lists of actions are executed in virtual time
 * with the buffers that ranks have, and the ranks go on in random order. */
#include "train/pipeline/schedule/schedule.h"
#include "train/pipeline/schedule/virtual_step.h"

#include "tests/random.h"
#include "tests/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 64

static uint64_t seed;

struct lists {
	struct action_list of[RANKS_MAX];
	struct schedule_buffers buffers[RANKS_MAX];
};

static void make(struct lists *lists, const struct pipeline_shape *shape)
{
	char why[SCHEDULE_WHY_BYTES];

	assert_true(schedule_fits(shape, why));
	for (int r = 0; r < shape->ranks; r++) {
		lists->of[r] = schedule_list(shape, r);
		assert_non_null(lists->of[r].at);
		lists->buffers[r] = schedule_buffers_of(shape, &lists->of[r], r);
	}
}

static void drop(struct lists *lists, const struct pipeline_shape *shape)
{
	for (int r = 0; r < shape->ranks; r++)
		free(lists->of[r].at);
}

static void say(const struct pipeline_shape *shape)
{
	print_message("%s of %d ranks, %d micro-batches, %d chunks, seed %llu\n",
		      schedule_name(shape->schedule), shape->ranks, shape->micro_batches,
		      shape->chunks, (unsigned long long)seed);
}

#define EXPECT(shape, condition)                                                                   \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			say(shape);                                                                \
			assert_true(condition);                                                    \
		}                                                                                  \
	} while (0)

/* Calls fn for every schedule of so many ranks. */
typedef void (*shape_fn)(const struct pipeline_shape *shape);

static void each_schedule(int ranks, int micro_batches, int chunks_max, shape_fn fn)
{
	for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++)
		for (int chunks = 1; chunks <= chunks_max; chunks++) {
			struct pipeline_shape shape = {(tutti_schedule)s, ranks, micro_batches,
						       chunks};
			if (chunks == 1 || s >= TUTTI_INTERLEAVED)
				fn(&shape);
		}
}

/* Numbers of micro-batches: all up to some, and those around multiples of the ranks. */
static bool is_of_interest(int ranks, int count)
{
	int rest = count % ranks;

	return ranks <= whole_or(5, 4, 4) || count <= 2 || rest <= 1 || rest == ranks - 1 ||
	       rest == ranks / 2;
}

static struct virtual_step run(const struct lists *lists, const struct pipeline_shape *shape,
			       bool is_bounded, const struct action_times *times,
			       struct virtual_rank ranks[RANKS_MAX])
{
	struct virtual_step step =
		virtual_step_run(shape, lists->of, is_bounded ? lists->buffers : NULL, times,
				 random_next(&seed), ranks, NULL);

	assert_true(step.has_memory);
	return step;
}

/* Each stage and micro-batch of this rank once of each kind, and only these. */
static void count_actions(const struct pipeline_shape *shape)
{
	bool splits = shape->schedule == TUTTI_ZERO_BUBBLE;
	int per_kind = shape->chunks * shape->micro_batches;
	size_t kinds = ACTION_BACKWARD_WEIGHTS + 1;

	for (int r = 0; r < shape->ranks; r++) {
		struct action_list list = schedule_list(shape, r);
		char *seen = calloc((size_t)per_kind * kinds, 1);
		int64_t messages = 0;

		assert_non_null(seen);
		EXPECT(shape, list.count == per_kind * (splits ? 3 : 2));
		for (int i = 0; i < list.count; i++) {
			const struct action *a = &list.at[i];
			EXPECT(shape, a->stage % shape->ranks == r && a->stage >= 0 &&
					      a->stage < schedule_stages(shape));
			EXPECT(shape, a->micro_batch >= 0 && a->micro_batch < shape->micro_batches);
			EXPECT(shape, a->kind == ACTION_FORWARD ||
					      (a->kind == ACTION_BACKWARD) == !splits);
			char *once =
				&seen[((int)a->kind * shape->chunks + a->stage / shape->ranks) *
					      shape->micro_batches +
				      a->micro_batch];
			EXPECT(shape, *once == 0);
			*once = 1;
			messages += action_sends(shape, a) && shape->ranks > 1;
		}
		EXPECT(shape, messages == schedule_messages(shape, r));
		free(seen);
		free(list.at);
	}
}

static void test_every_action_is_there_once(void **state)
{
	for (int ranks = 1; ranks <= 16; ranks++)
		for (int count = 1; count <= 2 * ranks + 1; count++)
			each_schedule(ranks, count, 3, count_actions);
	each_schedule(64, 100, 3, count_actions);
}

static const struct action_times unit = {1, 1, 1, 0};
static const struct action_times some_times[] = {
	{1, 1, 1, 0}, {1, 2, 1, 0}, {2, 1, 1, 0}, {1, 1, 2, 0},
	{3, 4, 2, 0}, {3, 2, 4, 0}, {1, 2, 2, 0}, {2, 3, 5, 0},
};
enum { TIMES = sizeof some_times / sizeof *some_times };

static bool has_no_formula(const struct pipeline_shape *shape, const struct action_times *times)
{
	return (shape->chunks > 1 && shape->micro_batches % shape->ranks) ||
	       (shape->schedule == TUTTI_ZERO_BUBBLE && shape->ranks > 1 &&
		times->forward < times->inputs && times->forward < times->weights);
}

/* The times are whole numbers, so sums are exact. */
static void compare_times(const struct pipeline_shape *shape)
{
	struct virtual_rank ranks[RANKS_MAX];
	struct lists lists;

	make(&lists, shape);
	for (int t = 0; t < TIMES; t++) {
		double formula = schedule_step_time(shape, &some_times[t]);
		struct virtual_step step = run(&lists, shape, false, &some_times[t], ranks);
		EXPECT(shape, step.ends);
		EXPECT(shape,
		       formula < 0 ? has_no_formula(shape, &some_times[t]) : formula == step.time);
		for (int r = 0; r < shape->ranks; r++)
			EXPECT(shape, ranks[r].busy == schedule_busy_time(shape, &some_times[t]));
		EXPECT(shape, fabs(step.bubble - (1 - ranks[0].busy / step.time)) < 1e-12);
	}
	for (int r = 0; r < shape->ranks; r++)
		EXPECT(shape, ranks[r].peak == schedule_peak(shape, r) ||
				      (shape->schedule == TUTTI_INTERLEAVED && shape->chunks > 1 &&
				       shape->micro_batches % shape->ranks &&
				       ranks[r].peak < schedule_peak(shape, r)));
	drop(&lists, shape);
}

static void test_formulas_are_what_comes_out(void **state)
{
	int most = whole_or(16, 8, 8);

	for (int ranks = 1; ranks <= most; ranks++)
		for (int count = 1; count <= 3 * ranks + 1; count++)
			if (is_of_interest(ranks, count))
				each_schedule(ranks, count, 4, compare_times);
	for (int ranks = 17; ranks <= 64; ranks += whole_or(15, 23, 23))
		each_schedule(ranks, 2 * ranks, 2, compare_times);
}

/* Bounded buffers make no rank wait longer, also where messages take as long as a forward. */
static void compare_bounds(const struct pipeline_shape *shape)
{
	static const struct action_times with_transfer[] = {
		{1, 1, 1, 0}, {1, 1, 1, 0.5}, {1, 1, 1, 1}, {2, 3, 2, 1}, {3, 2, 4, 2}};
	struct virtual_rank free_ranks[RANKS_MAX], ranks[RANKS_MAX];
	struct lists lists;

	make(&lists, shape);
	for (size_t t = 0; t < sizeof with_transfer / sizeof *with_transfer; t++) {
		double time = run(&lists, shape, false, &with_transfer[t], free_ranks).time;
		struct virtual_step step = run(&lists, shape, true, &with_transfer[t], ranks);
		EXPECT(shape, step.ends && step.time == time);
	}
	drop(&lists, shape);
}

static void test_buffers_are_enough(void **state)
{
	int most = whole_or(16, 8, 8), ranks;

	for (ranks = 1; ranks <= most; ranks++)
		for (int count = 1; count <= 2 * ranks + 1; count++)
			if (is_of_interest(ranks, count))
				each_schedule(ranks, count, 3, compare_bounds);
	if (ranks > 16)
		each_schedule(64, 66, 3, compare_bounds);
}

static int received(const struct pipeline_shape *shape, const struct action_list *list,
		    bool is_forward)
{
	int count = 0;

	for (int i = 0; i < list->count; i++)
		count += action_receives(shape, &list->at[i]) &&
			 (list->at[i].kind == ACTION_FORWARD) == is_forward;
	return count;
}

/* In random orders, with the buffers of the runtime and with one for what is sent: a rendezvous. */
static void end_somehow(const struct pipeline_shape *shape)
{
	struct virtual_rank ranks[RANKS_MAX];
	struct lists lists;

	make(&lists, shape);
	struct virtual_step step = run(&lists, shape, true, &unit, ranks);
	EXPECT(shape, step.ends);
	EXPECT(shape, run(&lists, shape, true, &unit, ranks).time == step.time);
	for (int r = 0; r < shape->ranks; r++) {
		struct schedule_buffers *buffers = &lists.buffers[r];
		buffers->sends = 1;
		/* Not where all that comes in a step has a buffer. */
		buffers->activations -= buffers->activations < received(shape, &lists.of[r], true);
		buffers->gradients -= buffers->gradients < received(shape, &lists.of[r], false);
	}
	EXPECT(shape, run(&lists, shape, true, &unit, ranks).ends);
	drop(&lists, shape);
}

static void test_no_order_of_events_is_a_deadlock(void **state)
{
	int every = whole_or(1, 7, 7);

	for (int ranks = 1; ranks <= 64; ranks += every) {
		const int counts[] = {
			1, 2, ranks - 1, ranks, ranks + 1, 2 * ranks + ranks / 2, 4 * ranks};
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			if (counts[i] > 0 && (ranks <= 16 || (int)i == ranks % 6 + 1))
				each_schedule(ranks, counts[i], 3, end_somehow);
	}
}

/* Forwards alone, with the buffers of steps of other numbers of micro-batches: an evaluation ends,
 * and none of its ranks waits for a buffer. */
static void evaluate(const struct pipeline_shape *shape)
{
	const int steps[] = {1, shape->ranks + 1};
	bool is_even = shape->chunks == 1 || shape->micro_batches % shape->ranks == 0;
	struct virtual_rank ranks[RANKS_MAX];
	struct lists lists;

	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		struct pipeline_shape of_step = *shape;
		of_step.micro_batches = steps[i];
		make(&lists, &of_step);
		for (int r = 0; r < shape->ranks; r++) {
			free(lists.of[r].at);
			lists.of[r] = schedule_evaluation(shape, r);
			assert_non_null(lists.of[r].at);
			EXPECT(shape, lists.of[r].count == shape->chunks * shape->micro_batches);
		}
		double time = run(&lists, shape, false, &unit, ranks).time;
		struct virtual_step step = run(&lists, shape, true, &unit, ranks);
		EXPECT(shape, step.ends && step.time == time);
		EXPECT(shape, !is_even || time == (double)shape->chunks * shape->micro_batches +
							  shape->ranks - 1);
		for (int r = 0; r < shape->ranks; r++)
			lists.buffers[r].sends = 1;
		EXPECT(shape, run(&lists, shape, true, &unit, ranks).ends);
		drop(&lists, shape);
	}
}

static void test_evaluations_end(void **state)
{
	int every = whole_or(1, 7, 7);

	for (int ranks = 1; ranks <= 64; ranks += every) {
		const int counts[] = {1, ranks, ranks + 1, 2 * ranks + ranks / 2};
		for (int i = 0; i < 4; i++)
			if (ranks <= 8 || i == ranks % 4)
				each_schedule(ranks, counts[i], 3, evaluate);
	}
}

static double bubble_of(tutti_schedule schedule, int ranks, int count, int chunks, int *peak)
{
	struct virtual_rank virtual_ranks[RANKS_MAX];
	struct pipeline_shape shape = {schedule, ranks, count, chunks};
	struct action_times times = {1.0 / chunks, 1.0 / chunks, 1.0 / chunks, 0};
	struct lists lists;

	make(&lists, &shape);
	struct virtual_step step = run(&lists, &shape, true, &times, virtual_ranks);
	*peak = virtual_ranks[0].peak;
	drop(&lists, &shape);
	EXPECT(&shape, step.ends);
	return step.bubble;
}

/* As docs/parallel.md says: with one chunk the idle time is a third of 1F1B's, with V a third of a
 * V-th, and rank 0 holds as many micro-batches as with 1F1B. */
static void test_zero_bubble_is_below_a_third(void **state)
{
	int peak, peak_1f1b;

	for (int p = 2; p <= 16; p++)
		for (int m = p; m <= 4 * p; m += p) {
			double b1 = bubble_of(TUTTI_1F1B, p, m, 1, &peak_1f1b);
			assert_true(fabs(b1 - (p - 1.0) / (m + p - 1)) < 1e-9);
			for (int v = 1; v <= 3; v++) {
				double b = bubble_of(TUTTI_ZERO_BUBBLE, p, m, v, &peak);
				double idle = (p - 1.0) / v;
				assert_true(fabs(b - idle / (3 * m + idle)) < 1e-9);
				assert_int_equal(peak, v * peak_1f1b);
				if (v > 1)
					assert_true(b < b1 / 3);
				double bi = bubble_of(TUTTI_INTERLEAVED, p, m, v, &peak);
				assert_true(fabs(bi - (p - 1.0) / (v * m + p - 1)) < 1e-9);
			}
		}
}

/* 1F1B whose warm-up is counted from the wrong end: the last rank wants three forwards before it
 * sends a gradient, and the first one wants that gradient before its second forward. */
static void test_a_deadlock_is_seen(void **state)
{
	struct pipeline_shape shape = {TUTTI_1F1B, 3, 6, 1};
	struct virtual_rank ranks[RANKS_MAX];
	struct lists lists;

	make(&lists, &shape);
	struct action_list first = lists.of[0], last = lists.of[2];
	for (int i = 0; i < first.count; i++) {
		first.at[i].stage = 2;
		last.at[i].stage = 0;
	}
	lists.of[0] = last;
	lists.of[2] = first;
	for (int i = 0; i < 100; i++) {
		struct virtual_step step = run(&lists, &shape, i % 2, &unit, ranks);
		assert_false(step.ends);
		assert_int_equal(ranks[0].done, 1);
		assert_int_equal(ranks[2].done, 1);
	}
	drop(&lists, &shape);
}

/* Receives that are posted in another order than messages are sent need more buffers than there
 * are. */
static void test_receives_in_the_wrong_order_are_seen(void **state)
{
	struct pipeline_shape shape = {TUTTI_1F1B, 3, 6, 1};
	struct virtual_rank ranks[RANKS_MAX];
	struct lists lists;

	make(&lists, &shape);
	for (int i = 0; i < lists.of[2].count; i++)
		lists.of[2].at[i].micro_batch = 5 - lists.of[2].at[i].micro_batch;
	assert_false(run(&lists, &shape, true, &unit, ranks).ends);
	drop(&lists, &shape);
	make(&lists, &shape);
	struct action *a = lists.of[1].at, kept = a[0];
	a[0] = a[2]; /* a backward before its forward */
	a[2] = kept;
	assert_int_equal(a[0].kind, ACTION_BACKWARD);
	assert_false(run(&lists, &shape, true, &unit, ranks).ends);
	assert_int_equal(ranks[1].done, 0);
	drop(&lists, &shape);
}

static void refuse(struct pipeline_shape shape, const char *part)
{
	char why[SCHEDULE_WHY_BYTES];

	assert_false(schedule_fits(&shape, why));
	if (!strstr(why, part))
		fail_msg("'%s' has no '%s'", why, part);
}

static void test_what_cannot_be_is_refused(void **state)
{
	refuse((struct pipeline_shape){(tutti_schedule)4, 2, 2, 1}, "no schedule 4");
	refuse((struct pipeline_shape){TUTTI_1F1B, 2, 0, 1}, "not 2, 0 and 1");
	refuse((struct pipeline_shape){TUTTI_1F1B, 2, 2, -1}, "not 2, 2 and -1");
	refuse((struct pipeline_shape){TUTTI_GPIPE, 2, 2, 2}, "gpipe has one chunk on each rank");
	refuse((struct pipeline_shape){TUTTI_1F1B, 2, 2, 3},
	       "1f1b has one chunk on each rank, not 3");
	refuse((struct pipeline_shape){TUTTI_INTERLEAVED, 2147483647, 2147483647, 2147483647},
	       "are more than");
	refuse((struct pipeline_shape){TUTTI_GPIPE, 1, 2147483647, 1}, "are more than");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_action_is_there_once),
		cmocka_unit_test(test_formulas_are_what_comes_out),
		cmocka_unit_test(test_buffers_are_enough),
		cmocka_unit_test(test_no_order_of_events_is_a_deadlock),
		cmocka_unit_test(test_evaluations_end),
		cmocka_unit_test(test_zero_bubble_is_below_a_third),
		cmocka_unit_test(test_a_deadlock_is_seen),
		cmocka_unit_test(test_receives_in_the_wrong_order_are_seen),
		cmocka_unit_test(test_what_cannot_be_is_refused),
	};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
