/* Micro-batches and hooks: counts the uses of units, and finds out when gradients are final.
 *
 * A forward before the micro-batch's first backward counts. A unit is finished when as many of its
 * backwards have ended. A parameter is final when all units that use it and ran forward are
 * finished. Where gradients were held (tutti_grads_hold) a unit has one use, whatever it runs.
 * Functions here wait for other ranks at the beginning of a step (all_done), for a unit's
 * values where parameters are sharded, and for a bucket that is in flight from the micro-batch
 * before. */
#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <tutti/parallel.h>

#include <math.h>

static const char *hooks_unit_name(const tutti_trainer *trainer, int unit)
{
	return trainer->model.units[unit].name;
}

static tutti_status hooks_check_micro_batch(const tutti_trainer *trainer, tutti_pass pass,
					    double items, const int *all_done)
{
	if (pass < TUTTI_PASS_LAST || pass > TUTTI_PASS_EVAL)
		return fail_invalid("tutti_micro_batch: there is no pass %d.", (int)pass);
	if (!(items >= 0) || isinf(items))
		return fail_invalid(
			"tutti_micro_batch: items is %g; it must be finite and at least 0.", items);
	if (trainer->step.state == STEP_LAST)
		return fail_invalid("tutti_micro_batch: this step's last micro-batch has begun: "
				    "call tutti_step or tutti_grads_finish before another one.");
	if (trainer->owes_update && trainer_is_local(trainer) && pass != TUTTI_PASS_EVAL)
		return fail_invalid(
			"tutti_micro_batch: the last step ended with tutti_grads_finish: call "
			"tutti_params_updated after the update.");
	if (all_done && trainer->step.state == STEP_OPEN && pass != TUTTI_PASS_EVAL)
		return fail_invalid("tutti_micro_batch: all_done is for a step's first "
				    "micro-batch or EVAL; pass NULL elsewhere.");
	return trainer_check_no_unit(trainer, "tutti_micro_batch");
}

/* Sets *all_done if no rank has items. */
static tutti_status hooks_ask_all_done(tutti_trainer *trainer, double items, int *all_done)
{
	double most = items;

	TRY(job_all_reduce(trainer, &most, 1, TUTTI_MAX));
	*all_done = most == 0;
	return TUTTI_OK;
}

static tutti_status hooks_begin_step(tutti_trainer *trainer, double items)
{
	trainer->step.may_finish = false;
	if (trainer->owes_update) /* the caller has updated without tutti_params_updated */
		TRY(step_run_scheduled(trainer));
	TRY(shadow_fetch(trainer));
	for (int b = 0; b < trainer->model.buffer_count; b++) {
		const struct buffer *buffer = &trainer->model.buffers[b];
		TRY(trainer_broadcast(trainer, buffer->data, buffer->count, buffer->dtype, 0));
	}
	if (loss_scale_needs_items(&trainer->scale, &trainer->config)) {
		double all = mesh_counts_items(trainer->mesh) ? items : 0;
		TRY(job_all_reduce(trainer, &all, 1, TUTTI_SUM));
		loss_scale_set_items(&trainer->scale, all);
	}
	grads_zero(trainer);
	trainer->step.items = 0;
	trainer->step.batch_items = items;
	trainer->step.is_uneven = false;
	trainer->step.is_given_up = false;
	trainer->step.micro_batches = 0;
	trainer->step.order = 0;
	trainer->step.state = STEP_OPEN;
	return TUTTI_OK;
}

/* Ends the micro-batch before this one, if it was a training one of this step. */
static tutti_status hooks_end_micro_batch(tutti_trainer *trainer)
{
	if (!trainer->batch.is_open || trainer->batch.pass != TUTTI_PASS_ACCUMULATE)
		return TUTTI_OK;
	trainer->batch.is_open = false;
	TRY(grads_flush(trainer));
	TRY(grads_keep(trainer));
	trainer->step.micro_batches++;
	return TUTTI_OK;
}

static tutti_status hooks_begin_micro_batch(tutti_trainer *trainer, tutti_pass pass, double items)
{
	if (pass == TUTTI_PASS_ACCUMULATE) {
		TRY(params_drop(trainer)); /* their slots count for memory_limit */
		TRY(grads_reserve(trainer, 1));
	}
	TRY(hooks_end_micro_batch(trainer));
	TRY(params_expect(trainer));
	if (pass != TUTTI_PASS_EVAL) {
		if (trainer->step.state == STEP_CLOSED)
			TRY(hooks_begin_step(trainer, items));
		trainer->step.items += items;
		trainer->step.is_uneven =
			trainer->step.is_uneven || items != trainer->step.batch_items;
		grads_expect(trainer);
	}
	if (pass == TUTTI_PASS_LAST)
		trainer->step.state = STEP_LAST;
	for (int u = 0; u < trainer->model.unit_count; u++)
		trainer->units[u] = (struct unit_state){0};
	trainer->batch.pass = pass;
	trainer->batch.is_open = true;
	trainer->batch.backward_begun = trainer->batch.is_held = trainer->batch.was_held = false;
	trainer->batch.adds_up = false;
	trainer->batch.last_callback = NULL;
	return TUTTI_OK;
}

tutti_status tutti_grads_hold(tutti_trainer *trainer, int is_held)
{
	TRY(trainer_check(trainer, "tutti_grads_hold"));
	TRY(trainer_check_no_unit(trainer, "tutti_grads_hold"));
	if (!trainer->batch.is_open || trainer->batch.pass == TUTTI_PASS_EVAL)
		return fail_invalid("tutti_grads_hold: no micro-batch with a backward has begun: "
				    "call tutti_micro_batch first.");
	trainer->batch.is_held = is_held != 0;
	trainer->batch.was_held = trainer->batch.was_held || is_held;
	return TUTTI_OK;
}

tutti_status tutti_micro_batch(tutti_trainer *trainer, tutti_pass pass, double items, int *all_done)
{
	TRY(trainer_check(trainer, "tutti_micro_batch"));
	TRY(hooks_check_micro_batch(trainer, pass, items, all_done));
	if (all_done) {
		TRY(hooks_ask_all_done(trainer, items, all_done));
		if (*all_done)
			return TUTTI_OK;
	}
	return hooks_begin_micro_batch(trainer, pass, items);
}

float tutti_grad_scale(const tutti_trainer *trainer)
{
	return trainer ? loss_scale_now(&trainer->scale) : 1;
}

static tutti_status hooks_check_unit(const tutti_trainer *trainer, const char *function, int unit)
{
	TRY(trainer_check(trainer, function));
	if (unit < 0 || unit >= trainer->model.unit_count)
		return fail_invalid("%s: there is no unit %d among %d.", function, unit,
				    trainer->model.unit_count);
	if (trainer->mesh &&
	    !unit_is_here(&trainer->model.units[unit], &trainer->mesh->axes, trainer->mesh->rank))
		return fail_invalid("%s: unit '%s' is not on this rank: it is of stage %d of 'pp'.",
				    function, hooks_unit_name(trainer, unit),
				    trainer->model.units[unit].stage);
	if (!trainer->batch.is_open)
		return fail_invalid("%s: no micro-batch has begun: call tutti_micro_batch first.",
				    function);
	return TUTTI_OK;
}

static tutti_status hooks_unit_end(tutti_trainer *trainer, const char *function, int unit,
				   enum unit_pass pass)
{
	TRY(hooks_check_unit(trainer, function, unit));
	if (trainer->batch.open_pass != pass || trainer->batch.open_unit != unit)
		return fail_invalid("%s: unit '%s' is not in %s: call tutti_%s_begin for it first.",
				    function, hooks_unit_name(trainer, unit), pass_name(pass),
				    pass_name(pass));
	trainer->batch.open_pass = UNIT_NONE;
	homes_leave_unit(trainer, unit);
	return TUTTI_OK;
}

tutti_status tutti_forward_begin(tutti_trainer *trainer, int unit)
{
	TRY(hooks_check_unit(trainer, "tutti_forward_begin", unit));
	TRY(trainer_check_no_unit(trainer, "tutti_forward_begin"));
	TRY(grads_poll(trainer));
	TRY(params_open(trainer, unit, UNIT_FORWARD));
	homes_enter_unit(trainer, unit);
	if (!trainer->batch.backward_begun &&
	    !(trainer->batch.was_held && trainer->units[unit].uses))
		trainer->units[unit].uses++;
	trainer->batch.units_ran = true;
	trainer->batch.open_unit = unit;
	trainer->batch.open_pass = UNIT_FORWARD;
	return TUTTI_OK;
}

tutti_status tutti_forward_end(tutti_trainer *trainer, int unit)
{
	TRY(hooks_unit_end(trainer, "tutti_forward_end", unit, UNIT_FORWARD));
	return params_close(trainer, unit, false);
}

/* All forwards are counted now: each parameter waits for its units that ran. */
static void hooks_begin_backward(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].pending = 0;
	for (int i = 0; i < trainer->model.use_count; i++) {
		const struct unit_use *use = &trainer->model.uses[i];
		if (trainer->units[use->unit].uses > 0)
			trainer->tensors[use->param].pending++;
	}
	trainer->batch.backward_begun = true;
}

static tutti_status hooks_check_backward(const tutti_trainer *trainer, int unit)
{
	const struct unit_state *state = &trainer->units[unit];

	if (trainer->batch.pass == TUTTI_PASS_EVAL)
		return fail_invalid("tutti_backward_begin: unit '%s' has no backward in a "
				    "micro-batch of TUTTI_PASS_EVAL.",
				    hooks_unit_name(trainer, unit));
	if (state->uses == 0)
		return fail_invalid("tutti_backward_begin: unit '%s' has not run forward in this "
				    "micro-batch: %scall tutti_forward_begin and "
				    "tutti_forward_end for it first.",
				    hooks_unit_name(trainer, unit),
				    trainer->batch.last_callback
					    ? "the pipeline's forward of its stage must "
					    : "");
	if (state->finished >= state->uses && trainer->batch.was_held)
		return fail_invalid("tutti_backward_begin: the gradients of unit '%s' are final: "
				    "its backward has ended %s.",
				    hooks_unit_name(trainer, unit),
				    trainer->batch.last_callback
					    ? "in the pipeline's last callback of its stage, "
					      "which must begin and end it once"
					    : "after tutti_grads_hold with 0");
	if (state->finished >= state->uses)
		return fail_invalid("tutti_backward_begin: unit '%s' ran forward %d times in this "
				    "micro-batch, and backward as often.",
				    hooks_unit_name(trainer, unit), state->uses);
	return TUTTI_OK;
}

tutti_status tutti_backward_begin(tutti_trainer *trainer, int unit)
{
	TRY(hooks_check_unit(trainer, "tutti_backward_begin", unit));
	TRY(trainer_check_no_unit(trainer, "tutti_backward_begin"));
	TRY(hooks_check_backward(trainer, unit));
	if (!trainer->batch.backward_begun && !trainer->batch.is_held)
		hooks_begin_backward(trainer);
	TRY(grads_poll(trainer));
	TRY(params_open(trainer, unit, UNIT_BACKWARD));
	for (const int *span = trainer->layout.unit_spans[unit]; *span >= 0; span++)
		TRY(grad_make(trainer, *span));
	homes_enter_unit(trainer, unit);
	trainer->batch.open_unit = unit;
	trainer->batch.open_pass = UNIT_BACKWARD;
	return TUTTI_OK;
}

/* The unit's last backward has ended: the unit adds to no gradient any more. */
static tutti_status hooks_unit_finished(tutti_trainer *trainer, int unit)
{
	for (int i = trainer->model.use_count - 1; i >= 0; i--) {
		int param = trainer->model.uses[i].param;
		struct tensor *tensor = &trainer->tensors[param];
		if (trainer->model.uses[i].unit != unit || --tensor->pending > 0)
			continue;
		if (param_is_trained(&trainer->model.params[param]) && !tensor->is_ready)
			TRY(grad_ready(trainer, param));
	}
	return TUTTI_OK;
}

tutti_status tutti_backward_end(tutti_trainer *trainer, int unit)
{
	TRY(hooks_unit_end(trainer, "tutti_backward_end", unit, UNIT_BACKWARD));
	if (trainer->batch.is_held)
		grads_push(trainer, unit);
	bool is_over = !trainer->batch.is_held &&
		       ++trainer->units[unit].finished == trainer->units[unit].uses;
	if (is_over)
		TRY(hooks_unit_finished(trainer, unit));
	return params_close(trainer, unit, is_over);
}

tutti_status tutti_grad_ready(tutti_trainer *trainer, int param)
{
	TRY(trainer_need_param(trainer, "tutti_grad_ready", &param));
	const char *name = trainer->model.params[param].name;
	if (!trainer->batch.is_open || trainer->batch.pass == TUTTI_PASS_EVAL)
		return fail_invalid("tutti_grad_ready: parameter '%s' has no gradient now: no "
				    "micro-batch with a backward has begun.",
				    name);
	if (!param_is_trained(&trainer->model.params[param]))
		return fail_invalid(
			"tutti_grad_ready: parameter '%s' is frozen and has no gradient.", name);
	if (trainer->batch.is_held)
		return fail_invalid("tutti_grad_ready: parameter '%s' has no final gradient while "
				    "gradients are held: call tutti_grads_hold with 0 first.",
				    name);
	bool is_ready = trainer->tensors[param].is_ready;
	if (is_ready && trainer->batch.pass == TUTTI_PASS_ACCUMULATE)
		return TUTTI_OK;
	if (is_ready)
		return fail_invalid("tutti_grad_ready: the gradient of parameter '%s' is already "
				    "final in this micro-batch.",
				    name);
	if (trainer->batch.open_pass != UNIT_NONE) /* its stream may add to the gradient */
		homes_leave_unit(trainer, trainer->batch.open_unit);
	return grad_ready(trainer, param);
}
