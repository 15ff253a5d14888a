/* The end of a step.
 *
 * Every rank tells every other how many items it had and whether a hook is missing, so that all of
 * them divide by the same number, update together or fail with the same sentence. */
#include "train/bucket.h"
#include "train/explain.h"
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

static int first_missing(const tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct tensor *tensor = &trainer->tensors[p];
		bool may_miss = trainer->model.params[p].flags & TUTTI_PARAM_MAY_BE_UNUSED;
		if (tensor->grad && !tensor->is_ready && !may_miss)
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

/* The communicating part; local is this rank's own trouble. What one rank waits for, all ranks
 * send, even where a hook is missing. */
static tutti_status exchange(tutti_trainer *trainer, tutti_status local)
{
	struct ballot *own = &trainer->ballots[trainer->rank];

	*own = (struct ballot){trainer->items, first_missing(trainer), (int32_t)local};
	tutti_status flushed = buckets_flush(trainer);
	tutti_status counted = flushed;
	if (flushed == TUTTI_OK)
		counted = trainer_all_gather(trainer, trainer->ballots, sizeof *own);
	struct kept_error why = train_keep_error();
	tutti_status reduced = buckets_wait(trainer);
	return counted != TUTTI_OK ? tutti_set_error(counted, why.sentence) : reduced;
}

/* What the ballots say, the same on every rank. */
static tutti_status verdict(const tutti_trainer *trainer, double *items)
{
	double sum = 0;

	for (int r = 0; r < trainer->size; r++) {
		const struct ballot *ballot = &trainer->ballots[r];
		if (ballot->missing >= 0) {
			const struct param *param = &trainer->model.params[ballot->missing];
			return train_fail(
				TUTTI_ERR_INVALID,
				"Rank %d never finished the gradient of parameter '%s' of "
				"unit '%s' in this step, so no rank updates: end every "
				"backward of its units, call tutti_grad_ready, or register "
				"it as TUTTI_PARAM_MAY_BE_UNUSED.",
				r, param->name, trainer->model.units[param->unit].name);
		}
		if (ballot->status != TUTTI_OK)
			return train_fail((tutti_status)ballot->status,
					  "Rank %d has no memory for the optimizer's state, so no "
					  "rank updates.",
					  r);
		sum += ballot->items;
	}
	if (sum <= 0)
		return train_fail(
			TUTTI_ERR_INVALID,
			"No rank had any items in this step, so there is no mean gradient: "
			"ask all_done on its first micro-batch.");
	*items = sum;
	return TUTTI_OK;
}

/* Ends the step whatever happens: sums are there and info is filled, or all ranks have the same
 * error. */
static tutti_status finish(tutti_trainer *trainer, tutti_status local, tutti_step_info *info)
{
	tutti_status status = exchange(trainer, local);

	trainer->step = STEP_CLOSED;
	trainer->in_batch = false;
	memset(info, 0, sizeof *info);
	info->loss_scale = 1.0f;
	if (status == TUTTI_OK)
		status = verdict(trainer, &info->items);
	if (status != TUTTI_OK)
		return status;
	double norm = sqrt(optimizer_sum_of_squares(trainer)) / info->items;
	info->grad_norm = (float)norm;
	info->skipped = !isfinite(norm);
	trainer->steps++;
	return TUTTI_OK;
}

/* What sums are multiplied by: the one division by the items, and clipping. */
static float sum_scale(const tutti_trainer *trainer, const tutti_step_info *info)
{
	double limit = trainer->config.max_grad_norm;
	double clip = limit > 0 && info->grad_norm > limit ? limit / info->grad_norm : 1;

	return (float)(clip / info->items);
}

static tutti_status check_every(tutti_trainer *trainer)
{
	int every = trainer->config.check_replicas_every;

	if (every == 0 || trainer->steps % (uint64_t)every != 0)
		return TUTTI_OK;
	return tutti_check_replicas(trainer);
}

tutti_status tutti_step(tutti_trainer *trainer, const tutti_optimizer *groups, int num_groups,
			tutti_step_info *info)
{
	tutti_step_info own;

	info = info ? info : &own;
	TRY(check_step(trainer, "tutti_step"));
	TRY(optimizer_check(trainer, groups, num_groups));
	TRY(finish(trainer, optimizer_prepare(trainer, groups), info));
	if (!info->skipped) {
		trainer->updates++;
		optimizer_update(trainer, groups, sum_scale(trainer, info));
	}
	return check_every(trainer);
}

tutti_status tutti_grads_finish(tutti_trainer *trainer, tutti_step_info *info)
{
	tutti_step_info own;

	info = info ? info : &own;
	TRY(check_step(trainer, "tutti_grads_finish"));
	TRY(finish(trainer, TUTTI_OK, info));
	optimizer_scale(trainer, sum_scale(trainer, info));
	return TUTTI_OK;
}
