/* One step, or its forwards alone: the list of actions in order. A callback that fails ends no
 * rank's list. The messages go on without callbacks and say so, so that nobody waits for one; in
 * the end all ranks of the mesh agree on the failure. */
#include "train/pipeline/pipeline.h"

#include "core/callback.h"
#include "train/strategies/strategies.h"

#include <stdio.h>
#include <string.h>

static const char *pipeline_run_name_of(enum action_kind kind)
{
	if (kind == ACTION_FORWARD || kind == ACTION_EVALUATE)
		return "forward";
	return kind == ACTION_BACKWARD_WEIGHTS ? "backward_weights" : "backward";
}

void pipeline_fail(struct tutti_pipeline *pipeline)
{
	if (!pipeline->has_failed && pipeline->config.trainer)
		trainer_abort(pipeline->config.trainer);
	pipeline->has_failed = true;
}

/* Without this check a unit that a callback leaves open would fail the next callback. */
static tutti_status pipeline_check_units_closed(const tutti_trainer *trainer)
{
	if (!trainer || trainer->batch.open_pass == UNIT_NONE)
		return TUTTI_OK;
	const char *pass = pass_name(trainer->batch.open_pass);
	return fail_invalid("It returned while unit '%s' was in %s: it must call tutti_%s_end for "
			    "each unit that it begins.",
			    trainer->model.units[trainer->batch.open_unit].name, pass, pass);
}

/* Gradients are final with the end of a backward in the stage's last action. */
static tutti_status tell_trainer(const struct tutti_pipeline *pipeline, const struct action *action)
{
	const struct stage_plan *plan = pipeline->plan;
	int chunk = action->stage / plan->shape.ranks;
	bool is_last = action == &plan->list.at[plan->last_of[chunk]];

	if (!pipeline->config.trainer || action->kind == ACTION_EVALUATE)
		return TUTTI_OK;
	grads_hold_part(pipeline->config.trainer, action->kind == ACTION_BACKWARD_INPUTS);
	return tutti_grads_hold(pipeline->config.trainer, !is_last);
}

static tutti_status call_program(const tutti_pipeline_config *c, const struct action *action,
				 const void *in, void *out)
{
	if (action_is_forward(action))
		return c->forward(c->arg, action->stage, action->micro_batch, in, out);
	if (action->kind == ACTION_BACKWARD_WEIGHTS)
		return c->backward_weights(c->arg, action->stage, action->micro_batch);
	return c->backward(c->arg, action->stage, action->micro_batch, in, out);
}

static tutti_status pipeline_run_call(const struct tutti_pipeline *pipeline,
				      const struct action *action, const void *in, void *out)
{
	tutti_status status;

	TRY(tell_trainer(pipeline, action));
	callback_call(pipeline_run_name_of(action->kind), "tutti_pipeline_config", -1,
		      status = call_program(&pipeline->config, action, in, out));
	return status;
}

static void note_failure(struct tutti_pipeline *pipeline, const struct action *action,
			 tutti_status status)
{
	struct kept_error failure = kept_error_of(status);

	if (!failure.message[0])
		snprintf(failure.message, sizeof failure.message, "It returned '%s'.",
			 tutti_status_string(status));
	kept_error_note(&pipeline->failure,
			fail(status, "The %s of stage %d, micro-batch %d, failed: %.400s",
			     pipeline_run_name_of(action->kind), action->stage, action->micro_batch,
			     failure.message));
	pipeline_fail(pipeline);
}

static void call_and_count(struct tutti_pipeline *pipeline, const struct action *action,
			   const void *in, void *out)
{
	double start = seconds_now();

	tutti_set_error(TUTTI_OK, ""); /* so that a message after the call is the callback's */
	tutti_status status = pipeline_run_call(pipeline, action, in, out);
	if (status == TUTTI_OK)
		status = pipeline_check_units_closed(pipeline->config.trainer);
	pipeline->busy_seconds += seconds_now() - start;
	if (status != TUTTI_OK)
		note_failure(pipeline, action, status);
}

static void pipeline_run_count_held(struct tutti_pipeline *pipeline, const struct action *action)
{
	tutti_pipeline_stats *stats = &pipeline->stats;

	if (action->kind == ACTION_EVALUATE)
		return;
	pipeline->held += action->kind == ACTION_FORWARD;
	if (stats->peak_in_flight < pipeline->held)
		stats->peak_in_flight = pipeline->held;
	pipeline->held -= action_releases(&pipeline->plan->shape, action);
}

/* The buffers of the task's messages are free for the next ones. */
static tutti_status pipeline_run_release(struct tutti_pipeline *pipeline,
					 const struct action *action)
{
	const struct stage_plan *plan = pipeline->plan;
	const struct pipeline_shape *shape = &plan->shape;
	int task = action->stage / shape->ranks * shape->micro_batches + action->micro_batch;
	int forward = plan->forward_of[task], backward = plan->backward_of[task];

	if (action_receives(shape, &plan->list.at[forward]))
		inbox_release(pipeline, WAY_ACTIVATIONS, forward);
	if (action->kind != ACTION_EVALUATE && action_receives(shape, &plan->list.at[backward]))
		inbox_release(pipeline, WAY_GRADIENTS, backward);
	TRY(inbox_post(pipeline, WAY_ACTIVATIONS));
	return inbox_post(pipeline, WAY_GRADIENTS);
}

static tutti_status run_action(struct tutti_pipeline *pipeline, int i)
{
	const struct pipeline_shape *shape = &pipeline->plan->shape;
	const struct action *action = &pipeline->plan->list.at[i];
	enum stage_way way = way_of(action);
	bool sends = action_sends(shape, action);
	const void *in = NULL;
	void *out = NULL;

	if (action_receives(shape, action))
		TRY(inbox_take(pipeline, way, i, &in));
	if (sends)
		TRY(outbox_room(pipeline, way, &out));
	if (!pipeline->has_failed)
		call_and_count(pipeline, action, in, out);
	pipeline_run_count_held(pipeline, action);
	if (sends)
		TRY(outbox_send(pipeline, way, action));
	return action_releases(shape, action) ? pipeline_run_release(pipeline, action) : TUTTI_OK;
}

static tutti_status run_list(struct tutti_pipeline *pipeline)
{
	for (int way = 0; way < WAYS; way++) {
		pipeline->inbox[way].posted = pipeline->inbox[way].taken = 0;
		TRY(inbox_post(pipeline, (enum stage_way)way));
	}
	for (int i = 0; i < pipeline->plan->list.count; i++)
		TRY(run_action(pipeline, i));
	TRY(outbox_flush(pipeline, WAY_ACTIVATIONS));
	return outbox_flush(pipeline, WAY_GRADIENTS);
}

/* The same message on all ranks: others get one that begins with the rank. */
static tutti_status pipeline_run_agree(const struct tutti_pipeline *pipeline)
{
	char prefix[32];
	tutti_status status = error_agree(pipeline->whole, kept_error_return(&pipeline->failure));
	struct kept_error agreed = kept_error_of(status);

	if (status == TUTTI_OK || strcmp(agreed.message, pipeline->failure.message) != 0)
		return status;
	snprintf(prefix, sizeof prefix, "On rank %d: ", tutti_rank(pipeline->whole));
	return fail(status, "%s%s", prefix, agreed.message);
}

static tutti_status share_times(struct tutti_pipeline *pipeline, double seconds)
{
	tutti_pipeline_stats *stats = &pipeline->stats;
	double sums[] = {pipeline->busy_seconds, seconds};

	TRY(tutti_all_reduce(sums, sums, 2, TUTTI_F64, TUTTI_SUM, pipeline->whole, NULL));
	stats->busy_seconds = pipeline->busy_seconds;
	stats->step_seconds = seconds;
	stats->bubble = sums[1] > 0 ? 1 - sums[0] / sums[1] : 0;
	return TUTTI_OK;
}

/* A rank without memory fails as one whose callback does. */
static void pipeline_run_begin_step(struct tutti_pipeline *pipeline)
{
	const tutti_pipeline_config *c = &pipeline->config;
	bool splits = c->schedule == TUTTI_ZERO_BUBBLE;
	const char *last = pipeline_run_name_of(splits ? ACTION_BACKWARD_WEIGHTS : ACTION_BACKWARD);
	tutti_status status =
		c->trainer ? grads_add_up(c->trainer, c->micro_batches, last) : TUTTI_OK;

	if (status == TUTTI_OK)
		return;
	kept_error_note(&pipeline->failure, status);
	pipeline_fail(pipeline);
}

tutti_status pipeline_execute(struct tutti_pipeline *pipeline, const struct stage_plan *plan)
{
	pipeline->plan = plan;
	pipeline->held = 0;
	pipeline->has_failed = false;
	pipeline->failure = (struct kept_error){0};
	pipeline->is_running = true;
	if (plan == &pipeline->step)
		pipeline_run_begin_step(pipeline);
	tutti_status status = run_list(pipeline);
	pipeline->is_running = false;
	kept_error_note(&pipeline->failure, status);
	if (status != TUTTI_OK) {
		pipeline_fail(pipeline);
		messages_abandon(pipeline);
	}
	return pipeline_run_agree(pipeline);
}

static tutti_status pipeline_hold_gradients(tutti_trainer *trainer)
{
	if (!trainer)
		return TUTTI_OK;
	TRY(trainer_check_no_unit(trainer, "tutti_pipeline_run"));
	if (!trainer->batch.is_open || trainer->batch.pass == TUTTI_PASS_EVAL)
		return fail_invalid("tutti_pipeline_run: the pipeline's trainer has no open step: "
				    "call tutti_micro_batch with TUTTI_PASS_LAST first.");
	return tutti_grads_hold(trainer, 1);
}

tutti_status tutti_pipeline_run(tutti_pipeline *pipeline)
{
	if (!pipeline)
		return fail_invalid("tutti_pipeline_run: pipeline is NULL.");
	if (pipeline->is_running)
		return fail_invalid("tutti_pipeline_run was called in a callback of the pipeline.");
	TRY(pipeline_hold_gradients(pipeline->config.trainer)); /* before anything is sent */
	double start = seconds_now();
	pipeline->busy_seconds = 0;
	pipeline->stats.peak_in_flight = 0;
	TRY(pipeline_execute(pipeline, &pipeline->step));
	return share_times(pipeline, seconds_now() - start);
}
