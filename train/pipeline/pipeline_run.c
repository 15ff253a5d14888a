/* One step, or its forwards alone: the list of actions in order. A callback that fails ends no
 * rank's list. The messages go on without callbacks and say so, so that nobody waits for one; in
 * the end all ranks of the mesh agree on the failure. */
#include "core/callback.h"
#include "core/clock.h"
#include "train/pipeline/pipeline.h"
#include "train/state/trainer_state.h"
#include "train/strategies/strategies.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No more callbacks in this step. With a trainer its gathers and reductions end, on ranks with
 * other data, too. */
static void pipeline_fail(struct tutti_pipeline *pipeline);

/* ---- messages between stages ---- */

/* Each is the elements and a word: which stage and micro-batch it is for, and whether the step has
 * failed. A word that is not the expected one is our mistake: both ranks follow lists of one
 * schedule. Calls in flight have no deadline of their own, since receives are posted long before
 * their messages can come; a wait has the communicator's. */

static const char *const way_names[] = {"activation", "gradient"};

/* Posts the receives that have a buffer. */
static tutti_status pipeline_run_inbox_post(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct inbox *inbox = &pipeline->inbox[way];
	const struct stage_plan *plan = pipeline->plan;

	while (inbox->posted < plan->needed[way] && inbox->free_count > 0 &&
	       inbox->posted < inbox->taken + RECEIVES_AHEAD) {
		int buffer = inbox->free[inbox->free_count - 1];
		struct stage_buffer *to = &inbox->buffers[buffer];
		tutti_call call = {.work = &to->work,
				   .tag = (int)way,
				   .timeout_ms = INT_MAX,
				   .label = way_names[way]};
		TRY(tutti_recv(to->data, message_bytes(pipeline), TUTTI_U8, inbox->peer,
			       pipeline->line, &call));
		inbox->free_count--;
		plan->buffer_of[way][plan->needed_by[way][inbox->posted++]] = buffer;
	}
	return TUTTI_OK;
}

static uint64_t pipeline_run_message_word_of(const struct tutti_pipeline *pipeline, int stage,
					     int micro_batch)
{
	uint64_t count = (uint64_t)pipeline->plan->shape.micro_batches;

	return ((uint64_t)stage * count + (uint64_t)micro_batch) << 1;
}

/* Waits for the message that action needs. */
static tutti_status pipeline_run_inbox_wait(const struct tutti_pipeline *pipeline,
					    const struct inbox *inbox, struct stage_buffer *buffer,
					    const struct action *action)
{
	tutti_status status = tutti_work_wait(&buffer->work, pipeline->timeout_ms);
	bool is_activation = inbox->way == WAY_ACTIVATIONS;

	if (status != TUTTI_IN_PROGRESS)
		return status;
	return fail(TUTTI_ERR_TIMEOUT,
		    "A pipeline's %s of micro-batch %d did not arrive from rank %d within "
		    "%d ms: is that rank still in the %s of stage %d, or in an earlier "
		    "callback?",
		    way_names[inbox->way], action->micro_batch,
		    tutti_parent_rank(pipeline->line, inbox->peer), pipeline->timeout_ms,
		    is_activation ? "forward" : "backward",
		    action->stage + (is_activation ? -1 : 1));
}

static tutti_status pipeline_run_outbox_wait(const struct tutti_pipeline *pipeline,
					     const struct outbox *outbox,
					     struct stage_buffer *buffer)
{
	tutti_status status = tutti_work_wait(&buffer->work, pipeline->timeout_ms);

	if (status != TUTTI_IN_PROGRESS)
		return status;
	return fail(TUTTI_ERR_TIMEOUT,
		    "A pipeline's %s to rank %d was not received within %d ms: is that rank "
		    "still in a callback?",
		    way_names[outbox->way], tutti_parent_rank(pipeline->line, outbox->peer),
		    pipeline->timeout_ms);
}

/* Waits for the action's message, which must be the next one. */
static tutti_status pipeline_run_inbox_take(struct tutti_pipeline *pipeline, enum stage_way way,
					    int action, const void **data)
{
	struct inbox *inbox = &pipeline->inbox[way];
	const struct stage_plan *plan = pipeline->plan;
	const struct action *of = &plan->list.at[action];
	uint64_t word;

	TRY(pipeline_run_inbox_post(pipeline, way));
	assert(inbox->taken < inbox->posted && plan->needed_by[way][inbox->taken] == action);
	struct stage_buffer *buffer = &inbox->buffers[plan->buffer_of[way][action]];
	TRY(pipeline_run_inbox_wait(pipeline, inbox, buffer, of));
	inbox->taken++;
	memcpy(&word, buffer->data + pipeline->bytes, sizeof word);
	assert((word | 1) ==
	       (pipeline_run_message_word_of(pipeline, of->stage, of->micro_batch) | 1));
	if (word & 1)
		pipeline_fail(pipeline);
	*data = buffer->data;
	return TUTTI_OK;
}

/* The message of an earlier action is not needed any more. */
static void pipeline_run_inbox_release(struct tutti_pipeline *pipeline, enum stage_way way,
				       int action)
{
	struct inbox *inbox = &pipeline->inbox[way];
	int buffer = pipeline->plan->buffer_of[way][action];

#ifdef TUTTI_POISON
	memset(inbox->buffers[buffer].data, 0xdb, message_bytes(pipeline));
#endif
	inbox->free[inbox->free_count++] = buffer;
}

static tutti_status pipeline_run_outbox_room(struct tutti_pipeline *pipeline, enum stage_way way,
					     void **data)
{
	struct outbox *outbox = &pipeline->outbox[way];
	struct stage_buffer *buffer = &outbox->buffers[outbox->sent % outbox->buffer_count];

	TRY(pipeline_run_outbox_wait(pipeline, outbox, buffer));
	*data = buffer->data;
	return TUTTI_OK;
}

/* The buffer for the next message, once its last one has gone. */
static tutti_status pipeline_run_outbox_send(struct tutti_pipeline *pipeline, enum stage_way way,
					     const struct action *action)
{
	struct outbox *outbox = &pipeline->outbox[way];
	struct stage_buffer *buffer = &outbox->buffers[outbox->sent % outbox->buffer_count];
	uint64_t word = pipeline_run_message_word_of(
				pipeline, action->stage + (way == WAY_ACTIVATIONS ? 1 : -1),
				action->micro_batch) |
			pipeline->has_failed;
	tutti_call call = {.work = &buffer->work,
			   .tag = (int)way,
			   .timeout_ms = INT_MAX,
			   .label = way_names[way]};

	memcpy(buffer->data + pipeline->bytes, &word, sizeof word);
	TRY(tutti_send(buffer->data, message_bytes(pipeline), TUTTI_U8, outbox->peer,
		       pipeline->line, &call));
	outbox->sent++;
	if (outbox->peer != pipeline->rank)
		pipeline->stats.sent_bytes += pipeline->bytes;
	return TUTTI_OK;
}

/* Waits until all that was sent has gone. */
static tutti_status pipeline_run_outbox_flush(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct outbox *outbox = &pipeline->outbox[way];

	for (int i = 0; i < outbox->buffer_count; i++)
		TRY(pipeline_run_outbox_wait(pipeline, outbox, &outbox->buffers[i]));
	return TUTTI_OK;
}

/* After a failure of the communicator: ends the messages in flight. All buffers are free again, so
 * that another step fails at its first message. */
static void pipeline_run_messages_abandon(struct tutti_pipeline *pipeline)
{
	tutti_comm_abort(pipeline->line);
	for (int way = 0; way < WAYS; way++) {
		struct inbox *inbox = &pipeline->inbox[way];
		inbox->free_count = 0;
		for (struct stage_buffer *b = inbox->buffers; b->data; b++) {
			tutti_work_wait(&b->work, 0);
			inbox->free[inbox->free_count++] = (int)(b - inbox->buffers);
		}
		for (struct stage_buffer *b = pipeline->outbox[way].buffers; b->data; b++)
			tutti_work_wait(&b->work, 0);
	}
}

/* ---- a step ---- */

static const char *pipeline_run_name_of(enum action_kind kind)
{
	if (kind == ACTION_FORWARD || kind == ACTION_EVALUATE)
		return "forward";
	return kind == ACTION_BACKWARD_WEIGHTS ? "backward_weights" : "backward";
}

static void pipeline_fail(struct tutti_pipeline *pipeline)
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
static tutti_status pipeline_run_tell_trainer(const struct tutti_pipeline *pipeline,
					      const struct action *action)
{
	const struct stage_plan *plan = pipeline->plan;
	int chunk = action->stage / plan->shape.ranks;
	bool is_last = action == &plan->list.at[plan->last_of[chunk]];

	if (!pipeline->config.trainer || action->kind == ACTION_EVALUATE)
		return TUTTI_OK;
	grads_hold_part(pipeline->config.trainer, action->kind == ACTION_BACKWARD_INPUTS);
	return tutti_grads_hold(pipeline->config.trainer, !is_last);
}

static tutti_status pipeline_run_call_program(const tutti_pipeline_config *c,
					      const struct action *action, const void *in,
					      void *out)
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

	TRY(pipeline_run_tell_trainer(pipeline, action));
	callback_call(pipeline_run_name_of(action->kind), "tutti_pipeline_config", -1,
		      status = pipeline_run_call_program(&pipeline->config, action, in, out));
	return status;
}

static void pipeline_run_note_failure(struct tutti_pipeline *pipeline, const struct action *action,
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

static void pipeline_run_call_and_count(struct tutti_pipeline *pipeline,
					const struct action *action, const void *in, void *out)
{
	double start = clock_now_seconds();

	tutti_set_error(TUTTI_OK, ""); /* so that a message after the call is the callback's */
	tutti_status status = pipeline_run_call(pipeline, action, in, out);
	if (status == TUTTI_OK)
		status = pipeline_check_units_closed(pipeline->config.trainer);
	pipeline->busy_seconds += clock_now_seconds() - start;
	if (status != TUTTI_OK)
		pipeline_run_note_failure(pipeline, action, status);
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
		pipeline_run_inbox_release(pipeline, WAY_ACTIVATIONS, forward);
	if (action->kind != ACTION_EVALUATE && action_receives(shape, &plan->list.at[backward]))
		pipeline_run_inbox_release(pipeline, WAY_GRADIENTS, backward);
	TRY(pipeline_run_inbox_post(pipeline, WAY_ACTIVATIONS));
	return pipeline_run_inbox_post(pipeline, WAY_GRADIENTS);
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
		TRY(pipeline_run_inbox_take(pipeline, way, i, &in));
	if (sends)
		TRY(pipeline_run_outbox_room(pipeline, way, &out));
	if (!pipeline->has_failed)
		pipeline_run_call_and_count(pipeline, action, in, out);
	pipeline_run_count_held(pipeline, action);
	if (sends)
		TRY(pipeline_run_outbox_send(pipeline, way, action));
	return action_releases(shape, action) ? pipeline_run_release(pipeline, action) : TUTTI_OK;
}

static tutti_status run_list(struct tutti_pipeline *pipeline)
{
	for (int way = 0; way < WAYS; way++) {
		pipeline->inbox[way].posted = pipeline->inbox[way].taken = 0;
		TRY(pipeline_run_inbox_post(pipeline, (enum stage_way)way));
	}
	for (int i = 0; i < pipeline->plan->list.count; i++)
		TRY(run_action(pipeline, i));
	TRY(pipeline_run_outbox_flush(pipeline, WAY_ACTIVATIONS));
	return pipeline_run_outbox_flush(pipeline, WAY_GRADIENTS);
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

static tutti_status pipeline_run_share_times(struct tutti_pipeline *pipeline, double seconds)
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

/* Carries out the plan, and agrees with all ranks of the mesh on how it went. */
static tutti_status pipeline_execute(struct tutti_pipeline *pipeline, const struct stage_plan *plan)
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
		pipeline_run_messages_abandon(pipeline);
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
	double start = clock_now_seconds();
	pipeline->busy_seconds = 0;
	pipeline->stats.peak_in_flight = 0;
	TRY(pipeline_execute(pipeline, &pipeline->step));
	return pipeline_run_share_times(pipeline, clock_now_seconds() - start);
}

/* ---- evaluation ---- */

/* tutti_pipeline_forward: an evaluation. The same callbacks, messages and buffers as in a step; an
 * activation is released when the forward that needs it has returned. Ranks first compare how many
 * micro-batches they were asked for, because a message for another number would be none. */

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

static void pipeline_run_write_number(FILE *file, const void *of)
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
			     pipeline_run_write_number, &micro_batches);
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
