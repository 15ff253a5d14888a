/* The end of a step.
 *
 * Every rank reports its items and its first missing hook to all others. So all ranks divide by the
 * same number, and update together or fail with the same message. */
#include "train/trainer.h"

#include "train/base/train_error.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/loss_scale.h"
#include "train/state/trainer_collectives.h"
#include "train/strategies/strategies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int first_missing(const tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct param *param = &trainer->model.params[p];
		bool may_miss = param->flags & TUTTI_PARAM_MAY_BE_UNUSED;
		if (param_is_trained(param) && !trainer->tensors[p].is_ready && !may_miss)
			return p;
	}
	return -1;
}

static tutti_status check_step(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step != STEP_LAST)
		return train_fail(TUTTI_ERR_INVALID,
				  "%s: the step's last micro-batch has not begun: call "
				  "tutti_micro_batch with TUTTI_PASS_LAST first.",
				  function);
	if (trainer->open_pass != UNIT_NONE)
		return train_fail(TUTTI_ERR_INVALID, "%s: unit '%s' is still in its %s.", function,
				  trainer->model.units[trainer->open_unit].name,
				  trainer->open_pass == UNIT_FORWARD ? "forward" : "backward");
	return TUTTI_OK;
}

static bool is_local_sgd(const tutti_trainer *trainer)
{
	return trainer->config.strategy == TUTTI_LOCAL_SGD;
}

/* Ends the reductions and exchanges reports. local is this rank's own failure. Gradients are sent
 * even if a hook is missing, because other ranks wait for them. */
static tutti_status exchange(tutti_trainer *trainer, tutti_status local)
{
	struct step_report *own = &trainer->reports[trainer->rank];

	*own = (struct step_report){.items = trainer->items,
				    .order = trainer->order,
				    .missing = first_missing(trainer),
				    .status = (int32_t)local,
				    .batches = trainer->micro_batches + 1,
				    .is_uneven = trainer->is_uneven};
	struct train_failure first = {0};
	failure_note(&first, grads_flush(trainer));
	if (first.status == TUTTI_OK)
		failure_note(&first, params_compare_order(trainer));
	if (first.status != TUTTI_OK)
		trainer_abort(
			trainer); /* other ranks wait for collectives that did not start here */
	/* Before the reports, which a rank that has given up does not send. */
	failure_note(&first, grads_wait(trainer));
	if (first.status == TUTTI_OK && !is_local_sgd(trainer))
		failure_note(&first, trainer_all_gather(trainer, trainer->reports, sizeof *own));
	return failure_return(&first);
}

static tutti_status never_finished(const tutti_trainer *trainer, int rank, int missing,
				   const char *so)
{
	const struct param *param = &trainer->model.params[missing];

	return train_fail(TUTTI_ERR_INVALID,
			  "Rank %d did not finish the gradient of parameter '%s' of unit '%s' in "
			  "%s: end every backward of its units, call tutti_grad_ready, or register "
			  "it as TUTTI_PARAM_MAY_BE_UNUSED.",
			  rank, param->name, trainer->model.units[param->unit].name, so);
}

/* deterministic = 2: the tree over ranks continues the tree over micro-batches only if all ranks
 * have the same number of them. */
static tutti_status check_evenness(const tutti_trainer *trainer, int rank)
{
	const struct step_report *own = &trainer->reports[rank], *first = &trainer->reports[0];
	bool is_power = (own->batches & (own->batches - 1)) == 0;

	if (trainer->config.deterministic != 2 || trainer->size == 1 || is_local_sgd(trainer) ||
	    (is_power && !own->is_uneven && own->batches == first->batches &&
	     own->items == first->items))
		return TUTTI_OK;
	char others[64] = "";
	if (rank > 0)
		snprintf(others, sizeof others, ", rank 0 %g in %d", first->items, first->batches);
	return train_fail(
		TUTTI_ERR_INVALID,
		"deterministic = 2 needs as many micro-batches on every rank, a power of two, all "
		"of the same items; rank %d had %g items in %d%s%s, so no rank updates.",
		rank, own->items, own->batches, own->is_uneven ? " of unequal numbers" : "",
		others);
}

static tutti_status check_report(const tutti_trainer *trainer, int rank)
{
	const struct step_report *report = &trainer->reports[rank];

	if (report->missing >= 0)
		return never_finished(trainer, rank, report->missing,
				      is_local_sgd(trainer) ? "this step, so it does not update"
							    : "this step, so no rank updates");
	if (report->status != TUTTI_OK)
		return train_fail((tutti_status)report->status,
				  "Rank %d could not make its optimizer state, so no rank updates.",
				  rank);
	if (trainer->layout.by_unit && report->order != trainer->reports[0].order)
		return train_fail(
			TUTTI_ERR_MISMATCH,
			"Rank %d ran other units than rank 0 in this step, or in another order, so "
			"no rank updates: with sharded parameters all ranks run the same units.",
			rank);
	return check_evenness(trainer, rank);
}

/* The same result on every rank. */
static tutti_status check_reports(const tutti_trainer *trainer, double *items)
{
	int first = is_local_sgd(trainer) ? trainer->rank : 0;
	int last = is_local_sgd(trainer) ? first + 1 : trainer->size;
	double sum = 0;

	for (int r = first; r < last; r++) {
		TRY(check_report(trainer, r));
		sum += trainer->reports[r].items;
	}
	if (sum <= 0 && !is_local_sgd(trainer))
		return train_fail(
			TUTTI_ERR_INVALID,
			"No rank had any items in this step, so there is no mean gradient: "
			"ask all_done on its first micro-batch.");
	*items = sum;
	return TUTTI_OK;
}

/* Computes the norm, and whether all ranks skip the update. With local SGD a rank without items has
 * no gradient. */
static tutti_status measure(tutti_trainer *trainer, tutti_step_info *info)
{
	double sum;

	TRY(norm_sum_of_squares(trainer, &sum, &trainer->skipped_param));
	double divisor =
		info->items > 0 ? info->items * (double)loss_scale_now(&trainer->scale) : 1;
	info->grad_norm = (float)(sqrt(sum) / divisor);
	/* In f32, the type of updates. */
	info->skipped = !isfinite(info->grad_norm) || !isfinite((float)(1 / divisor));
	return TUTTI_OK;
}

static void count_step(tutti_trainer *trainer)
{
	trainer->steps++;
	trainer->needs_average = is_local_sgd(trainer);
}

/* With local SGD the other ranks' step counts, and all ranks average at the same steps. */
static void count_missed(tutti_trainer *trainer)
{
	trainer->missed = trainer->reports[trainer->rank].missing;
	trainer->missed_status = trainer->reports[trainer->rank].status;
	count_step(trainer);
}

/* Ends the step, whatever happens. On OK sums are there, and info and *factor are set: the gradient
 * is *factor times its sum. Otherwise all ranks return the same error. */
static tutti_status finish(tutti_trainer *trainer, tutti_status local, tutti_step_info *info,
			   float *factor)
{
	struct train_failure own = failure_of(local);
	tutti_status status = exchange(trainer, local);

	trainer->step = STEP_CLOSED;
	trainer->in_batch = false;
	memset(info, 0, sizeof *info);
	info->loss_scale = trainer->scale.factor;
	if (status == TUTTI_OK)
		status = params_drop(trainer);
	if (status == TUTTI_OK) {
		status = check_reports(trainer, &info->items);
		if (status != TUTTI_OK && is_local_sgd(trainer))
			count_missed(trainer);
	}
	if (status != TUTTI_OK && status == local)
		return failure_return(&own); /* its message says more */
	if (status == TUTTI_OK)
		status = measure(trainer, info);
	if (status != TUTTI_OK)
		return status;
	double limit = trainer->config.max_grad_norm;
	double clip = limit > 0 && info->grad_norm > limit ? limit / info->grad_norm : 1;
	*factor = info->items > 0
			  ? (float)(clip / (info->items * (double)loss_scale_now(&trainer->scale)))
			  : 0;
	loss_scale_end_step(&trainer->scale, &trainer->config, info->items, !info->skipped);
	count_step(trainer);
	return TUTTI_OK;
}

/* Stores why the step was skipped. */
static tutti_status explain_skip(const tutti_trainer *trainer)
{
	if (trainer->skipped_param < 0)
		return train_fail(TUTTI_OK,
				  "Step %llu was skipped: the gradients' norm, or the number they "
				  "are divided by, is not a finite f32.",
				  (unsigned long long)trainer->steps);
	return train_fail(TUTTI_OK,
			  "Step %llu was skipped on %s: the gradient of parameter '%s' has "
			  "an infinity or NaN.",
			  (unsigned long long)trainer->steps,
			  is_local_sgd(trainer) ? "this rank" : "all ranks",
			  trainer->model.params[trainer->skipped_param].name);
}

static bool is_time(const tutti_trainer *trainer, int every)
{
	return every > 0 && trainer->steps % (uint64_t)every == 0;
}

/* Ranks average if none of them has missed a hook or failed; otherwise all return that failure. */
static tutti_status average_together(tutti_trainer *trainer)
{
	struct step_report *reports = trainer->reports;

	reports[trainer->rank].missing = trainer->missed;
	reports[trainer->rank].status = trainer->missed_status;
	trainer->missed = -1;
	trainer->missed_status = TUTTI_OK;
	TRY(trainer_all_gather(trainer, reports, sizeof *reports));
	for (int r = 0; r < trainer->size; r++) {
		if (reports[r].missing >= 0)
			return never_finished(
				trainer, r, reports[r].missing,
				"a step since the last average, so ranks do not average");
		if (reports[r].status != TUTTI_OK)
			return train_fail((tutti_status)reports[r].status,
					  "Rank %d could not make its optimizer state in a step "
					  "since the last average, so ranks do not average.",
					  r);
	}
	TRY(local_sgd_average(trainer));
	trainer->needs_average = false;
	return TUTTI_OK;
}

tutti_status step_run_scheduled(tutti_trainer *trainer)
{
	trainer->owes_update = false;
	if (is_local_sgd(trainer) && is_time(trainer, trainer->config.local_sgd_steps))
		TRY(average_together(trainer));
	if (is_time(trainer, trainer->config.check_replicas_every) &&
	    !(is_local_sgd(trainer) && !is_time(trainer, trainer->config.local_sgd_steps)))
		TRY(tutti_check_replicas(trainer));
	return TUTTI_OK;
}

/* An author who calls no units may read parameters at any time. */
static tutti_status wait_for_values(tutti_trainer *trainer)
{
	if (!trainer->units_ran)
		return publish_wait_all(trainer);
	for (int b = 0; b < trainer->layout.span_count; b++)
		if (trainer->buckets[b].span->has_extern)
			TRY(publish_wait(trainer, b));
	return TUTTI_OK;
}

tutti_status tutti_step(tutti_trainer *trainer, const tutti_optimizer *groups, int num_groups,
			tutti_step_info *info)
{
	tutti_step_info own;
	float factor;

	info = info ? info : &own;
	TRY(check_step(trainer, "tutti_step"));
	TRY(optimizer_check(trainer, groups, num_groups));
	struct train_failure first = {0};
	uint64_t before = trainer->steps;
	failure_note(&first, finish(trainer, optimizer_prepare(trainer, groups), info, &factor));
	if (trainer->steps == before)
		return failure_return(&first);
	if (first.status == TUTTI_OK && !info->skipped) {
		trainer->updates++;
		if (info->items > 0) /* with local SGD a rank may have none */
			failure_note(&first, optimizer_update(trainer, groups, factor));
		failure_note(&first, wait_for_values(trainer));
	}
	failure_note(&first, step_run_scheduled(trainer));
	if (first.status != TUTTI_OK)
		return failure_return(&first);
	return info->skipped ? explain_skip(trainer) : TUTTI_OK;
}

tutti_status tutti_grads_finish(tutti_trainer *trainer, tutti_step_info *info)
{
	tutti_step_info own;
	float factor;

	info = info ? info : &own;
	TRY(check_step(trainer, "tutti_grads_finish"));
	struct train_failure first = {0};
	uint64_t before = trainer->steps;
	failure_note(&first, finish(trainer, TUTTI_OK, info, &factor));
	if (trainer->steps == before)
		return failure_return(&first);
	if (first.status == TUTTI_OK)
		optimizer_scale(trainer, factor);
	trainer->owes_update = first.status == TUTTI_OK && !info->skipped;
	if (trainer->owes_update)
		return TUTTI_OK;
	failure_note(&first, step_run_scheduled(trainer));
	return first.status == TUTTI_OK ? explain_skip(trainer) : failure_return(&first);
}
