/* tutti_pipeline_forward: an evaluation. The same callbacks, messages and buffers as in a step; an
 * activation is released when the forward that needs it has returned. Ranks first compare how many
 * micro-batches they were asked for, because a message for another number would be none. */
#include "train/pipeline/pipeline.h"

#include "train/state/trainer_state.h"

static tutti_status pipeline_forward_check_trainer(const tutti_trainer *trainer)
{
	if (!trainer || (trainer->batch.is_open && trainer->batch.pass == TUTTI_PASS_EVAL))
		return TUTTI_OK;
	return fail_invalid("tutti_pipeline_forward: the pipeline's trainer is in no evaluation: "
			    "call tutti_micro_batch with TUTTI_PASS_EVAL first.");
}

/* The plan of the last evaluation is good for the next one. */
static tutti_status pipeline_forward_prepare(struct tutti_pipeline *pipeline, int micro_batches)
{
	struct pipeline_shape shape = pipeline->step.shape;
	char why[SCHEDULE_WHY_BYTES];

	shape.micro_batches = micro_batches;
	TRY(pipeline_forward_check_trainer(pipeline->config.trainer));
	if (!schedule_fits(&shape, why))
		return fail_invalid("tutti_pipeline_forward: %s.", why);
	if (pipeline->evaluation.list.at &&
	    pipeline->evaluation.shape.micro_batches == micro_batches)
		return TUTTI_OK;
	stage_plan_finish(&pipeline->evaluation);
	tutti_status status = stage_plan_make(&pipeline->evaluation, &shape,
					      schedule_evaluation(&shape, pipeline->rank));
	if (status != TUTTI_OK)
		stage_plan_finish(&pipeline->evaluation);
	return status;
}

static void write_number(FILE *file, const void *of)
{
	fprintf(file, "%d micro-batches\n", *(const int *)of);
}

/* own: this rank's status. One small all_reduce where all is well. */
static tutti_status pipeline_forward_compare(const struct tutti_pipeline *pipeline,
					     tutti_status own, int micro_batches)
{
	struct kept_error failure = kept_error_of(own);
	int64_t most[] = {own != TUTTI_OK, micro_batches, -(int64_t)micro_batches};

	TRY(tutti_all_reduce(most, most, 3, TUTTI_I64, TUTTI_MAX, pipeline->whole, NULL));
	if (most[0])
		return error_agree(pipeline->whole, kept_error_return(&failure));
	if (most[1] == -most[2])
		return TUTTI_OK;
	return texts_compare(pipeline->whole, "evaluations",
			     "pass the same number to tutti_pipeline_forward on every rank",
			     write_number, &micro_batches);
}

tutti_status tutti_pipeline_forward(tutti_pipeline *pipeline, int micro_batches)
{
	if (!pipeline)
		return fail_invalid("tutti_pipeline_forward: pipeline is NULL.");
	if (pipeline->is_running)
		return fail_invalid(
			"tutti_pipeline_forward was called in a callback of the pipeline.");
	TRY(pipeline_forward_compare(pipeline, pipeline_forward_prepare(pipeline, micro_batches),
				     micro_batches));
	return pipeline_execute(pipeline, &pipeline->evaluation);
}
