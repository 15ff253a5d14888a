/* What would break: benchmarks on GPUs whose results nobody looked at, or whose graphs are launched
 * once and believed afterwards. The calls here are copies by the driver, and go wrong on purpose.
 */
#include "perf/bench.h"
#include "perf/library.h"

#include "tests/cuda/gpu.h"

#include <stdint.h>
#include <stdlib.h>

#include "tests/unit.h"

#define COUNT      1000
#define ITERATIONS 6
#define WARMUPS    2

/* What the next calls do wrong, by call number; -1: nothing. */
static struct {
	int corrupts_result, corrupts_send, does_nothing, is_refused;
	int calls;
} plan;

static CUdeviceptr byte_of(const void *buffer, size_t at)
{
	return (CUdeviceptr)(uintptr_t)buffer + at;
}

/* What an all_reduce of one rank does, in the stream. */
/* In place of a library: all_reduce. */
tutti_status library_call(const struct operation *o)
{
	if (o->what == CALL_BARRIER)
		return tutti_barrier(o->comm, NULL);
	int number = plan.calls++;
	CUstream stream = o->call->stream;

	assert_non_null(stream);
	if (number == plan.is_refused)
		return tutti_set_error(TUTTI_ERR_UNSUPPORTED, "not in a graph");
	if (number == plan.does_nothing)
		return TUTTI_OK;
	if (o->send != o->recv)
		gpu_copy_in(stream, o->recv, o->send, o->count * 4);
	if (number == plan.corrupts_result)
		GPU(memset_d8_async, byte_of(o->recv, (o->count / 2) * 4), 0xee, 1, stream);
	if (number == plan.corrupts_send)
		GPU(memset_d8_async, byte_of(o->send, (o->count - 1) * 4), 0xee, 1, stream);
	return TUTTI_OK;
}

static struct options options_with(int graphs)
{
	return (struct options){
		.max_bytes = COUNT * 4,
		.iterations = ITERATIONS,
		.warmups = WARMUPS,
		.aggregated = 1,
		.check = 1,
		.dirty = 1,
		.average = 1,
		.threads = 1,
		.gpus = 1,
		.graphs = graphs,
	};
}

static tutti_status try(tutti_comm *comm, const struct options *options, struct sample *sample)
{
	struct bench bench;

	plan.calls = 0;
	assert_int_equal(bench_init(&bench, options, collective_named("all_reduce"), comm),
			 TUTTI_OK);
	assert_true(values_init(&bench.values, 1, TUTTI_F32, TUTTI_SUM, true));
	sample->dtype = TUTTI_F32;
	sample->op = TUTTI_SUM;
	sample->shape =
		collective_shape(collective_named("all_reduce"), COUNT, (struct place){0, 1, 0});
	tutti_status status = bench_measure(&bench, sample);
	bench_finish(&bench);
	return status;
}

static uint64_t measure(tutti_comm *comm, const struct options *options, bool in_place)
{
	struct sample sample = {.in_place = in_place};

	assert_int_equal(try(comm, options, &sample), TUTTI_OK);
	assert_int_equal(plan.calls, ITERATIONS + WARMUPS);
	return sample.wrong;
}

static void nothing_goes_wrong(void)
{
	plan.corrupts_result = plan.corrupts_send = plan.does_nothing = plan.is_refused = -1;
}

static void right_results_are_right(void **state)
{
	nothing_goes_wrong();
	for (int graphs = 0; graphs < 3; graphs++) {
		struct options options = options_with(graphs);

		assert_int_equal(measure(*state, &options, false), 0);
		assert_int_equal(measure(*state, &options, true), 0);
	}
}

static void every_iteration_is_verified(void **state)
{
	struct options options = options_with(0);

	nothing_goes_wrong();
	for (int i = 0; i < WARMUPS + ITERATIONS; i++) {
		plan.corrupts_result = i;
		assert_int_equal(measure(*state, &options, false), 1);
		assert_int_equal(measure(*state, &options, true), 1);
	}
}

/* The first launch, which is not timed, too. */
static void every_launch_is_verified(void **state)
{
	struct options options = options_with(3);

	nothing_goes_wrong();
	plan.corrupts_result = WARMUPS + 1;
	assert_int_equal(measure(*state, &options, false), 4);
	nothing_goes_wrong();
	plan.does_nothing = WARMUPS + 1;
	assert_int_equal(measure(*state, &options, false), 4 * COUNT);
}

static void what_was_sent_must_stay(void **state)
{
	struct options options = options_with(0);

	nothing_goes_wrong();
	plan.corrupts_send = WARMUPS + 1;
	assert_int_equal(measure(*state, &options, false), 1);
}

/* The stream is not left in capture: the next measurement is well. */
static void a_refused_capture_is_passed_up(void **state)
{
	struct options options = options_with(2), plain = options_with(0);
	struct sample sample = {0};

	nothing_goes_wrong();
	plan.is_refused = WARMUPS + 2;
	assert_int_equal(try(*state, &options, &sample), TUTTI_ERR_UNSUPPORTED);
	assert_string_equal(tutti_comm_error(NULL), "not in a graph");
	nothing_goes_wrong();
	assert_int_equal(measure(*state, &plain, false), 0);
}

static void single_calls_have_times(void **state)
{
	struct options options = options_with(0);
	struct sample sample = {0};

	nothing_goes_wrong();
	options.percentiles = 1;
	assert_int_equal(try(*state, &options, &sample), TUTTI_OK);
	assert_true(sample.percentiles.min <= sample.percentiles.p50);
	assert_true(sample.percentiles.p50 <= sample.percentiles.max);
	assert_true(sample.percentiles.max > 0);
}

static int alone(void **state)
{
	tutti_comm *comm;
	const char *why;

	if (unsetenv("WORLD_SIZE") || !gpu_open() || gpu_rank_count(&why) < 1)
		return 1;
	gpu_use(0);
	if (tutti_init_all(&comm, 1, NULL) != TUTTI_OK)
		return 1;
	*state = comm;
	return 0;
}

static int end(void **state)
{
	tutti_comm_destroy(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_results_are_right),
		cmocka_unit_test(every_iteration_is_verified),
		cmocka_unit_test(every_launch_is_verified),
		cmocka_unit_test(what_was_sent_must_stay),
		cmocka_unit_test(a_refused_capture_is_passed_up),
		cmocka_unit_test(single_calls_have_times),
	};

	return cmocka_run_group_tests(tests, alone, end);
}
