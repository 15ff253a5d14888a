/* What would break: benchmarks of results that nobody looked at. The calls here go wrong on
 * purpose, once and in one element, and the measurement must say so whichever call and element it
 * was. */
#include "perf/bench.h"
#include "perf/library.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define COUNT      1000
#define ITERATIONS 6
#define WARMUPS    2

/* What the next calls do wrong, by call number; -1: nothing. */
static struct {
	int corrupts_result, corrupts_send, does_nothing;
	int calls;
	const void *seen[64];
} plan;

/* In place of a library: all_reduce. */
tutti_status library_call(const struct operation *o)
{
	if (o->what == CALL_BARRIER)
		return tutti_barrier(o->comm, NULL);
	int number = plan.calls++;

	plan.seen[number % 64] = o->recv;
	if (number == plan.does_nothing)
		return TUTTI_OK;
	if (tutti_all_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->comm, o->call) !=
	    TUTTI_OK)
		return TUTTI_ERR_INTERNAL;
	if (number == plan.corrupts_result)
		((unsigned char *)o->recv)[(o->count / 2) * 4] ^= 1;
	if (number == plan.corrupts_send)
		((unsigned char *)o->send)[(o->count - 1) * 4] ^= 1;
	return TUTTI_OK;
}

static struct options options_with(int check)
{
	return (struct options){
		.max_bytes = COUNT * 4,
		.iterations = ITERATIONS,
		.warmups = WARMUPS,
		.aggregated = 1,
		.blocking = 1,
		.check = check,
		.dirty = 1,
		.average = 1,
		.threads = 1,
	};
}

static uint64_t measure(tutti_comm *comm, const struct options *options, bool in_place)
{
	struct sample sample = {.dtype = TUTTI_F32, .op = TUTTI_SUM, .in_place = in_place};
	struct bench bench;

	plan.calls = 0;
	assert_int_equal(bench_init(&bench, options, collective_named("all_reduce"), comm),
			 TUTTI_OK);
	assert_true(values_init(&bench.values, 1, TUTTI_F32, TUTTI_SUM, true));
	sample.shape =
		collective_shape(collective_named("all_reduce"), COUNT, (struct place){0, 1, 0});
	assert_int_equal(bench_measure(&bench, &sample), TUTTI_OK);
	assert_int_equal(plan.calls, ITERATIONS + WARMUPS);
	bench_finish(&bench);
	return sample.wrong;
}

static void nothing_goes_wrong(void)
{
	plan.corrupts_result = plan.corrupts_send = plan.does_nothing = -1;
}

static void right_results_are_right(void **state)
{
	struct options options = options_with(1);

	nothing_goes_wrong();
	assert_int_equal(measure(*state, &options, false), 0);
	assert_int_equal(measure(*state, &options, true), 0);
}

static void every_iteration_is_verified(void **state)
{
	struct options options = options_with(1);

	nothing_goes_wrong();
	for (int i = 0; i < WARMUPS + ITERATIONS; i++) {
		plan.corrupts_result = i;
		assert_int_equal(measure(*state, &options, false), 1);
		assert_int_equal(measure(*state, &options, true), 1);
	}
}

static void what_was_sent_must_stay(void **state)
{
	struct options options = options_with(1);

	nothing_goes_wrong();
	plan.corrupts_send = WARMUPS + 1;
	assert_int_equal(measure(*state, &options, false), 1);
}

/* Results of the call before do not pass for results of this one. */
static void an_untouched_buffer_is_wrong(void **state)
{
	struct options options = options_with(1);

	nothing_goes_wrong();
	plan.does_nothing = WARMUPS + 3;
	assert_int_equal(measure(*state, &options, false), COUNT);
}

static void unchecked_runs_count_nothing(void **state)
{
	struct options options = options_with(0);

	nothing_goes_wrong();
	plan.corrupts_result = WARMUPS;
	assert_int_equal(measure(*state, &options, false), 0);
}

/* A burst's calls must not find what an earlier one has left in the cache. */
static void calls_of_a_burst_have_their_own_buffers(void **state)
{
	struct options options = options_with(1);

	nothing_goes_wrong();
	measure(*state, &options, false);
	for (int i = WARMUPS; i < WARMUPS + ITERATIONS; i++) {
		for (int k = WARMUPS; k < i; k++)
			assert_ptr_not_equal(plan.seen[i], plan.seen[k]);
	}
}

static void memory_is_said_in_units(void **state)
{
	char text[BENCH_TEXT];

	(void)state;
	assert_string_equal(bench_text(512, text), "512 B");
	assert_string_equal(bench_text(1536, text), "1.5 KiB");
	assert_string_equal(bench_text(60000.0 * (1 << 30), text), "58.6 TiB");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MANY  128
#define SLACK 65536 /* malloc's own, and small things */

static size_t taken(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* All that a sweep holds: buffers, every call's time and a copy to sort them, and the values of so
 * many ranks, which threads of a process share. */
static void what_is_taken_is_counted(void **state)
{
	struct options options = options_with(1);
	struct sample sample = {.dtype = TUTTI_F32, .op = TUTTI_SUM};
	struct bench bench;
	size_t before = taken(), tables = values_bytes(MANY, TUTTI_F32), used;
	double needs;

	options.dtype = TUTTI_F32;
	options.max_bytes = 1 << 20;
	options.percentiles = 1;
	options.iterations = 100000;
	needs = bench_needs(&options, collective_named("all_reduce"), MANY);
	assert_int_equal(bench_init(&bench, &options, collective_named("all_reduce"), *state),
			 TUTTI_OK);
	bench.ranks = MANY;
	assert_int_equal(bench_values(&bench, &sample), TUTTI_OK);
	used = taken() - before + 100000 * sizeof *bench.latencies.ns;
	bench_finish(&bench);
	assert_true(tables > 4000000);
	assert_true(needs > (double)used - SLACK && needs < (double)used + SLACK);
	options.threads = MANY;
	needs -= bench_needs(&options, collective_named("all_reduce"), MANY);
	assert_true(needs > (double)tables * 0.99 && needs < (double)tables);
}
#endif

static int open_world(void **state)
{
	return tutti_init_all((tutti_comm **)state, 1, NULL) != TUTTI_OK;
}

static int close_world(void **state)
{
	tutti_comm_destroy(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_results_are_right),
		cmocka_unit_test(every_iteration_is_verified),
		cmocka_unit_test(what_was_sent_must_stay),
		cmocka_unit_test(an_untouched_buffer_is_wrong),
		cmocka_unit_test(unchecked_runs_count_nothing),
		cmocka_unit_test(calls_of_a_burst_have_their_own_buffers),
		cmocka_unit_test(memory_is_said_in_units),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		cmocka_unit_test(what_is_taken_is_counted),
#endif
	};

	return cmocka_run_group_tests(tests, open_world, close_world);
}
