/* The end of a step. Every rank reports to all others how its step went (step_reports.c). So all
 * ranks divide by the same number of items, and update together or fail with the same message. */
#include "train/step_end.h"
#include "train/trainer.h"

#include "train/base/base.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static tutti_status step_check_step(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step.state != STEP_LAST)
		return fail_invalid("%s: the step's last micro-batch has not begun: call "
				    "tutti_micro_batch with TUTTI_PASS_LAST first.",
				    function);
	return trainer_check_no_unit(trainer, function);
}

/* Ends the reductions and exchanges reports. local is this rank's own failure. Gradients are sent
 * even if a hook is missing, because other ranks wait for them. */
static tutti_status step_exchange(tutti_trainer *trainer, tutti_status local)
{
	struct kept_error first = {0};

	report_fill(trainer, local);
	kept_error_note(&first, grads_flush(trainer));
	if (first.status == TUTTI_OK)
		kept_error_note(&first, params_compare_order(trainer));
	if (first.status != TUTTI_OK)
		trainer_abort(trainer); /* other ranks wait for calls that were not made here */
	/* The gradients come before the reports: a rank that has failed sends no reports. So a rank
	 * that has all reports knows that every rank has its gradients; and on a mesh, when it has
	 * the conclusions of the others, that all ranks of the mesh have theirs. */
	kept_error_note(&first, grads_wait(trainer));
	if (first.status == TUTTI_OK)
		kept_error_note(&first, grads_sum_groups(trainer));
	if (first.status == TUTTI_OK)
		kept_error_note(&first, shadow_fetch_sums(trainer));
	trainer->step.may_finish = first.status == TUTTI_OK;
	if (first.status == TUTTI_OK && !trainer_is_local(trainer))
		kept_error_note(&first, trainer_all_gather(trainer, trainer->step.reports,
							   sizeof *trainer->step.reports));
	return kept_error_return(&first);
}

/* Computes the norm, the factor, and whether all ranks skip the update. With local SGD a rank
 * without items has no gradient. */
static tutti_status train_step_measure(tutti_trainer *trainer, tutti_step_info *info, float *factor)
{
	double sum, limit = trainer->config.max_grad_norm;

	TRY(norm_sum_of_squares(trainer, &sum, &trainer->skipped_param));
	double divisor =
		info->items > 0 ? info->items * (double)loss_scale_now(&trainer->scale) : 1;
	info->grad_norm = (float)(sqrt(sum) / divisor);
	/* In f32, the type of updates. */
	info->skipped = !isfinite(info->grad_norm) || !isfinite((float)(1 / divisor));
	double clip = limit > 0 && info->grad_norm > limit ? limit / info->grad_norm : 1;
	*factor = info->items > 0 ? (float)(clip / divisor) : 0;
	return TUTTI_OK;
}

static void count_step(tutti_trainer *trainer)
{
	trainer->steps++;
	trainer->step.may_finish = false;
	trainer->last.group_count = 0;
	trainer->last.is_callers = false;
	trainer->local.needs_average = trainer_is_local(trainer);
}

/* With local SGD the other ranks' step counts, and all ranks average at the same steps. */
static void count_missed(tutti_trainer *trainer, const struct kept_error *own)
{
	trainer->local.missed = trainer->step.reports[trainer->rank].missing;
	trainer->local.failed = *own;
	count_step(trainer);
}

/* Ends the step, whatever happens. On OK sums are there, and info and *factor are set: the gradient
 * is *factor times its sum. Otherwise all ranks return the same error. */
static tutti_status step_finish(tutti_trainer *trainer, tutti_status local, tutti_step_info *info,
				float *factor)
{
	struct kept_error own = kept_error_of(local);
	tutti_status status = step_exchange(trainer, local);

	trainer->step.state = STEP_CLOSED;
	trainer->batch.is_open = false;
	memset(info, 0, sizeof *info);
	info->loss_scale = trainer->scale.factor;
	if (status == TUTTI_OK)
		status = params_drop(trainer);
	if (status == TUTTI_OK) {
		status = reports_check(trainer, &own, &info->items);
		if (status != TUTTI_OK && trainer_is_local(trainer))
			count_missed(trainer, &own);
	}
	status = mesh_agree(trainer, status, &info->items);
	if (status == TUTTI_OK && !trainer_is_local(trainer) && info->items <= 0)
		status = fail_invalid("No rank had any items in this step, so there is no mean "
				      "gradient: ask all_done on its first micro-batch.");
	if (status == TUTTI_OK)
		status = train_step_measure(trainer, info, factor);
	if (status != TUTTI_OK)
		return status;
	loss_scale_end_step(&trainer->scale, &trainer->config, info->items, !info->skipped);
	count_step(trainer);
	return TUTTI_OK;
}

/* Stores why the step was skipped. */
static tutti_status step_explain_skip(const tutti_trainer *trainer)
{
	if (trainer->skipped_param < 0)
		return fail(TUTTI_OK,
			    "Step %llu was skipped: the gradients' norm, or the number they "
			    "are divided by, is not a finite f32.",
			    (unsigned long long)trainer->steps);
	return fail(TUTTI_OK,
		    "Step %llu was skipped on %s: the gradient of parameter '%s' has an "
		    "infinity or NaN.",
		    (unsigned long long)trainer->steps,
		    trainer_is_local(trainer) ? "this rank" : "all ranks",
		    trainer_whole(trainer)->params[trainer->skipped_param].name);
}

static bool is_time(const tutti_trainer *trainer, int every)
{
	return every > 0 && trainer->steps % (uint64_t)every == 0;
}

/* Ranks average if none of them has missed a hook or failed; otherwise all return that failure. */
static tutti_status average_together(tutti_trainer *trainer)
{
	TRY(reports_exchange_missed(trainer));
	TRY(local_sgd_average(trainer));
	trainer->local.needs_average = false;
	return TUTTI_OK;
}

tutti_status step_run_scheduled(tutti_trainer *trainer)
{
	trainer->owes_update = false;
	if (trainer_is_local(trainer) && is_time(trainer, trainer->config.local_sgd_steps))
		TRY(average_together(trainer));
	if (is_time(trainer, trainer->config.check_replicas_every) &&
	    !(trainer_is_local(trainer) && !is_time(trainer, trainer->config.local_sgd_steps)))
		TRY(tutti_check_replicas(trainer));
	return TUTTI_OK;
}

/* An author who calls no units may read parameters at any time. */
static tutti_status wait_for_values(tutti_trainer *trainer)
{
	if (!trainer->batch.units_ran)
		return publish_wait_all(trainer);
	for (int b = 0; b < trainer->layout.span_count; b++)
		if (trainer->buckets[b].span->has_extern)
			TRY(publish_wait(trainer, b));
	return TUTTI_OK;
}

static void keep_step(struct last_step *last, const tutti_optimizer *groups, int num_groups,
		      float factor)
{
	memcpy(last->groups, groups, (size_t)num_groups * sizeof *groups);
	last->group_count = num_groups;
	last->factor = factor;
}

tutti_status tutti_step(tutti_trainer *trainer, const tutti_optimizer *groups, int num_groups,
			tutti_step_info *info)
{
	tutti_step_info own;
	float factor;

	info = info ? info : &own;
	TRY(step_check_step(trainer, "tutti_step"));
	TRY(optimizer_check(trainer, groups, num_groups));
	struct kept_error first = {0};
	uint64_t before = trainer->steps;
	kept_error_note(&first, step_finish(trainer, optimizer_prepare(trainer, groups, num_groups),
					    info, &factor));
	if (trainer->steps == before)
		return kept_error_return(&first);
	if (first.status == TUTTI_OK && !info->skipped) {
		trainer->updates++;
		keep_step(&trainer->last, groups, num_groups, factor);
		if (info->items > 0) /* with local SGD a rank may have none */
			kept_error_note(&first, optimizer_update(trainer, groups, factor));
		kept_error_note(&first, wait_for_values(trainer));
	}
	kept_error_note(&first, step_run_scheduled(trainer));
	if (first.status != TUTTI_OK)
		return kept_error_return(&first);
	return info->skipped ? step_explain_skip(trainer) : TUTTI_OK;
}

tutti_status tutti_grads_finish(tutti_trainer *trainer, tutti_step_info *info)
{
	tutti_step_info own;
	float factor;

	info = info ? info : &own;
	TRY(step_check_step(trainer, "tutti_grads_finish"));
	if (trainer->shadow.is_kept)
		return fail_invalid("tutti_grads_finish: a shadow makes the updates of tutti_step "
				    "only: set config.shadow to 0.");
	struct kept_error first = {0};
	uint64_t before = trainer->steps;
	kept_error_note(&first, step_finish(trainer, TUTTI_OK, info, &factor));
	if (trainer->steps == before)
		return kept_error_return(&first);
	trainer->last.is_callers = true;
	if (first.status == TUTTI_OK)
		optimizer_scale(trainer, factor);
	trainer->owes_update = first.status == TUTTI_OK && !info->skipped;
	if (trainer->owes_update)
		return TUTTI_OK;
	kept_error_note(&first, step_run_scheduled(trainer));
	return first.status == TUTTI_OK ? step_explain_skip(trainer) : kept_error_return(&first);
}

tutti_status step_give_up(tutti_trainer *trainer, const struct kept_error *why)
{
	tutti_step_info info;
	float factor;

	assert(trainer->step.state == STEP_LAST && why->status != TUTTI_OK);
	trainer->step.is_given_up = true;
	return step_finish(trainer, kept_error_return(why), &info, &factor);
}
