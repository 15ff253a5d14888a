/* no_tsan: test_pipeline_trainer runs the same code */
/* What would break: a callback that does not do its part with the trainer's units, and an error
 * that names another one, or none: the program's author would look in the wrong place. The
 * error messages are compared, and a step after such an error is good. */
#include "tests/train/pipeline/toy_pipeline.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

enum { MICRO_BATCHES = 4, COUNT = 3 };

enum place { FORWARD, BACKWARD, WEIGHTS };

/* A callback that leaves something out for one unit, in one micro-batch or in all. */
struct fault {
	enum place place;
	int unit, micro_batch; /* -1: every one */
	enum { DOES_ALL, SKIPS, LEAVES_OPEN, DOES_TWICE } how;
};

struct run {
	const char *axes;
	int chunks;
	tutti_schedule schedule;
	int rank; /* that has the faults */
	struct fault faults[2];
	bool only_weights; /* ZERO_BUBBLE: backward begins no units */
	bool is_of_step;   /* tutti_step fails; else the run */
	const char *says;
};

/* A rank's own. */
struct own {
	const struct run *run;
	struct toy_pipeline p;
	bool has_fault;
};

static const struct fault *fault_of(const struct own *own, enum place place, int unit, int m)
{
	for (int i = 0; i < 2 && own->has_fault; i++) {
		const struct fault *f = &own->run->faults[i];
		if (f->how != DOES_ALL && f->place == place && f->unit == unit &&
		    (f->micro_batch < 0 || f->micro_batch == m))
			return f;
	}
	return NULL;
}

/* The first failure. */
static tutti_status each_unit(const struct own *own, enum place place, int stage, int m)
{
	bool is_forward = place == FORWARD;
	tutti_trainer *t = own->p.toy.trainer;
	tutti_status status = TUTTI_OK;

	for (int i = 0; i < MESH_UNITS && status == TUTTI_OK; i++) {
		int u = is_forward ? i : MESH_UNITS - 1 - i;
		const struct fault *fault = fault_of(own, place, u, m);
		if (!toy_pipeline_has(&own->p, stage, u) || (fault && fault->how == SKIPS))
			continue;
		int times = fault && fault->how == DOES_TWICE ? 2 : 1;
		for (int n = 0; n < times && status == TUTTI_OK; n++) {
			status =
				is_forward ? tutti_forward_begin(t, u) : tutti_backward_begin(t, u);
			if (status == TUTTI_OK && fault && fault->how == LEAVES_OPEN)
				return status;
			if (status == TUTTI_OK)
				status = is_forward ? tutti_forward_end(t, u)
						    : tutti_backward_end(t, u);
		}
	}
	return status;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	if (out)
		memset(out, 0, COUNT * sizeof(float));
	return each_unit(arg, FORWARD, stage, m);
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	const struct own *own = arg;

	if (in_grad)
		memset(in_grad, 0, COUNT * sizeof(float));
	return own->run->only_weights ? TUTTI_OK : each_unit(own, BACKWARD, stage, m);
}

static tutti_status weights(void *arg, int stage, int m)
{
	return each_unit(arg, WEIGHTS, stage, m);
}

static void make(struct own *own, const struct run *run, tutti_comm *comm)
{
	*own = (struct own){.run = run};
	toy_pipeline_create(&own->p, comm, run->axes, &(tutti_train_config){.seed = 7},
			    &(tutti_pipeline_config){.schedule = run->schedule,
						     .micro_batches = MICRO_BATCHES,
						     .chunks = run->chunks,
						     .count = COUNT,
						     .arg = own,
						     .forward = forward,
						     .backward = backward,
						     .backward_weights = weights});
}

static void begin(const struct own *own, tutti_pass pass)
{
	CHECK(tutti_micro_batch(own->p.toy.trainer, pass, 12, NULL) == TUTTI_OK);
}

static void good_step(const struct own *own)
{
	begin(own, TUTTI_PASS_LAST);
	CHECK(tutti_pipeline_run(own->p.pipeline) == TUTTI_OK);
	CHECK(tutti_step(own->p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
}

static void fail_step(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	struct own own;

	make(&own, run, comm);
	good_step(&own);
	own.has_fault = run->rank == tutti_rank(comm);
	begin(&own, TUTTI_PASS_LAST);
	if (run->is_of_step) {
		CHECK(tutti_pipeline_run(own.p.pipeline) == TUTTI_OK);
		CHECK_ERROR(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_INVALID,
			    run->says);
		own.has_fault = false;
		good_step(&own);
	} else {
		CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, run->says);
	}
	toy_pipeline_destroy(&own.p);
}

/* The stage's last callback has to end its units, whatever the callbacks before have done. */
static const struct run unfinished[] = {
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_ZERO_BUBBLE,
	 .rank = 1,
	 .faults = {{WEIGHTS, 2, -1, SKIPS}},
	 .says = "Rank 1 did not finish the gradient of parameter 'param.5' of unit "
		 "'unit.2' in this step, so no rank updates: backward_weights of stage 1, "
		 "micro-batch 3, has not ended the backward of that unit: it must call "
		 "tutti_backward_begin and tutti_backward_end for each unit of its stage, "
		 "even if backward has done so."},
	/* It does nothing at all. The first parameter of the stage is tied. */
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_ZERO_BUBBLE,
	 .rank = 1,
	 .faults = {{WEIGHTS, 3, -1, SKIPS}, {WEIGHTS, 2, -1, SKIPS}},
	 .says = "'param.0' of unit 'unit.0' in this step, so no rank updates: "
		 "backward_weights of stage 1, micro-batch 3, has not ended the backward "
		 "of unit 'unit.3': it must call"},
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_ZERO_BUBBLE,
	 .rank = 0,
	 .faults = {{WEIGHTS, 1, 3, SKIPS}},
	 .only_weights = true,
	 .says = "Rank 0 did not finish the gradient of parameter 'param.2' of unit "
		 "'unit.1' in this step, so no rank updates: backward_weights of stage 0, "
		 "micro-batch 3, has not ended the backward of that unit"},
	{.axes = "pp=2",
	 .chunks = 2,
	 .schedule = TUTTI_ZERO_BUBBLE,
	 .rank = 1,
	 .faults = {{WEIGHTS, 3, 3, SKIPS}},
	 .says = "backward_weights of stage 3, micro-batch 3, has not ended"},
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_GPIPE,
	 .rank = 0,
	 .faults = {{BACKWARD, 1, 3, SKIPS}},
	 .says = ", so no rank updates: backward of stage 0, micro-batch 3, has not ended "
		 "the backward of that unit: it must call tutti_backward_begin and "
		 "tutti_backward_end for each unit of its stage."},
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_1F1B,
	 .rank = 1,
	 .faults = {{BACKWARD, 2, 3, SKIPS}},
	 .says = "backward of stage 1, micro-batch 3, has not ended"},
	{.axes = "pp=2,dp=2",
	 .chunks = 2,
	 .schedule = TUTTI_INTERLEAVED,
	 .rank = 3,
	 .faults = {{BACKWARD, 1, 3, SKIPS}},
	 .says = "Rank 3 did not finish the gradient of parameter 'param.2' of unit "
		 "'unit.1' in this step, so no rank updates: backward of stage 1, "
		 "micro-batch 3, has not ended"},
	/* The tied parameter is of unit 0, and the unit that uses it is at fault. */
	{.axes = "pp=1",
	 .chunks = 1,
	 .schedule = TUTTI_1F1B,
	 .rank = 0,
	 .faults = {{BACKWARD, 3, 3, SKIPS}},
	 .says = "'param.0' of unit 'unit.0' in this step, so no rank updates: backward "
		 "of stage 0, micro-batch 3, has not ended the backward of unit 'unit.3'"},
	{.axes = "pp=2",
	 .chunks = 1,
	 .schedule = TUTTI_ZERO_BUBBLE,
	 .rank = 1,
	 .faults = {{FORWARD, 2, -1, SKIPS}, {WEIGHTS, 2, -1, SKIPS}},
	 .only_weights = true,
	 .says = "so no rank updates: forward of stage 1 has begun that unit in no "
		 "micro-batch: it must call tutti_forward_begin and tutti_forward_end for "
		 "each unit of its stage."},
};

static void test_gradients_that_are_not_finished(void **state)
{
	for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; i++) {
		struct run run = unfinished[i];
		run.is_of_step = true;
		print_message("%s\n", run.says);
		int ranks = strstr(run.axes, "dp=2") ? 4 : strstr(run.axes, "pp=2") ? 2 : 1;
		assert_int_equal(ranks_as_threads(ranks, fail_step, &run), 0);
	}
}

/* The callback that is to blame fails, and not the next one. */
static void test_units_that_stay_open(void **state)
{
	static const struct run runs[] = {
		{.faults = {{FORWARD, 2, 1, LEAVES_OPEN}},
		 .says = "n rank 1: The forward of stage 1, micro-batch 1, failed: It returned "
			 "while unit 'unit.2' was in forward: it must call tutti_forward_end for "
			 "each unit that it begins."},
		{.faults = {{BACKWARD, 3, 3, LEAVES_OPEN}},
		 .says = "n rank 1: The backward of stage 1, micro-batch 3, failed: It returned "
			 "while unit 'unit.3' was in backward: it must call tutti_backward_end"},
		{.faults = {{WEIGHTS, 2, 3, LEAVES_OPEN}},
		 .says = "n rank 1: The backward_weights of stage 1, micro-batch 3, failed: It "
			 "returned while unit 'unit.2' was in backward"},
		{.faults = {{FORWARD, 2, -1, SKIPS}},
		 .says = "n rank 1: The backward of stage 1, micro-batch 0, failed: "
			 "tutti_backward_begin: unit 'unit.2' has not run forward in this "
			 "micro-batch: the pipeline's forward of its stage must call "
			 "tutti_forward_begin and tutti_forward_end for it first."},
		{.faults = {{WEIGHTS, 2, 3, DOES_TWICE}},
		 .says = "n rank 1: The backward_weights of stage 1, micro-batch 3, failed: "
			 "tutti_backward_begin: the gradients of unit 'unit.2' are final: its "
			 "backward has ended in the pipeline's last callback of its stage"},
	};

	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		struct run run = runs[i];
		run.axes = "pp=2";
		run.chunks = 1;
		run.schedule = TUTTI_ZERO_BUBBLE;
		run.rank = 1;
		print_message("%s\n", run.says);
		assert_int_equal(ranks_as_threads(2, fail_step, &run), 0);
	}
}

static void evaluate(tutti_comm *comm, void *arg)
{
	struct own own;

	make(&own, arg, comm);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID,
		    "tutti_pipeline_run: the pipeline's trainer has no open step: call "
		    "tutti_micro_batch with TUTTI_PASS_LAST first.");
	begin(&own, TUTTI_PASS_EVAL);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, "has no open step");
	own.has_fault = tutti_rank(comm) == 1;
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, 2), TUTTI_ERR_INVALID,
		    "n rank 1: The forward of stage 1, micro-batch 1, failed: It returned while "
		    "unit 'unit.3' was in forward");
	toy_pipeline_destroy(&own.p);
}

static void test_evaluation(void **state)
{
	struct run run = {.axes = "pp=2",
			  .chunks = 1,
			  .schedule = TUTTI_1F1B,
			  .faults = {{FORWARD, 3, 1, LEAVES_OPEN}}};

	assert_int_equal(ranks_as_threads(2, evaluate, &run), 0);
}

/* A loop of the program's own, which holds gradients to the end. */
static void hold(tutti_comm *comm, void *arg)
{
	struct own own;

	make(&own, arg, comm);
	begin(&own, TUTTI_PASS_LAST);
	CHECK(tutti_grads_hold(own.p.toy.trainer, 1) == TUTTI_OK);
	CHECK(each_unit(&own, FORWARD, 0, 0) == TUTTI_OK);
	CHECK(each_unit(&own, BACKWARD, 0, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_INVALID,
		    "so no rank updates: gradients are held: call tutti_grads_hold with 0 before "
		    "the last backward of that unit.");
	begin(&own, TUTTI_PASS_LAST);
	CHECK(tutti_grads_hold(own.p.toy.trainer, 1) == TUTTI_OK);
	CHECK(each_unit(&own, FORWARD, 0, 0) == TUTTI_OK);
	CHECK(tutti_grads_hold(own.p.toy.trainer, 0) == TUTTI_OK);
	CHECK(each_unit(&own, BACKWARD, 0, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_backward_begin(own.p.toy.trainer, 1), TUTTI_ERR_INVALID,
		    "the gradients of unit 'unit.1' are final: its backward has ended after "
		    "tutti_grads_hold with 0.");
	CHECK_ERROR(tutti_backward_end(own.p.toy.trainer, 1), TUTTI_ERR_INVALID,
		    "unit 'unit.1' is not in backward: call tutti_backward_begin for it first.");
	CHECK(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	toy_pipeline_destroy(&own.p);
}

static void test_held(void **state)
{
	struct run run = {.axes = "pp=1", .chunks = 1, .schedule = TUTTI_GPIPE};

	assert_int_equal(ranks_as_threads(1, hold, &run), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gradients_that_are_not_finished),
		cmocka_unit_test(test_units_that_stay_open),
		cmocka_unit_test(test_evaluation),
		cmocka_unit_test(test_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
