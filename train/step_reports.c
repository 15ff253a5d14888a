/* The ranks' reports at the end of a step, and the conclusion that all of them draw. */
#include "train/trainer.h"

#include "train/base/base.h"

#include <stdio.h>
#include <string.h>

enum { HOOK_BYTES = 320 };

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

/* Finds the unit that has not ended its backward, and the hook that is missing. */
static void report_find_hook(const tutti_trainer *trainer, struct step_report *report)
{
	const struct tutti_model *model = &trainer->model;
	uint8_t use = 0;

	report->hook = MISSING_FORWARD;
	for (int i = 0; i < model->use_count && report->hook == MISSING_FORWARD; i++) {
		const struct unit_state *unit = &trainer->units[model->uses[i].unit];
		if (model->uses[i].param != report->missing)
			continue;
		if (unit->uses > unit->finished) {
			report->hook = trainer->batch.is_held ? MISSING_RELEASE : MISSING_BACKWARD;
			report->use = use;
		}
		use = (uint8_t)(use < UINT8_MAX ? use + 1 : use);
	}
}

void report_fill(tutti_trainer *trainer, tutti_status local)
{
	struct step_report *report = &trainer->step.reports[trainer->rank];

	*report = (struct step_report){.items = trainer->step.items,
				       .order = trainer->step.order,
				       .missing = first_missing(trainer),
				       .status = (int32_t)local,
				       .batches = trainer->step.micro_batches + 1,
				       .is_uneven = trainer->step.is_uneven,
				       .is_given_up = trainer->step.is_given_up};
	if (report->missing >= 0)
		report_find_hook(trainer, report);
}

/* The unit of a report's use. Ranks that reduce with each other have the same units. */
static const struct unit *report_unit_of(const struct tutti_model *model, int param, int use)
{
	int unit = model->params[param].unit;

	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == param && use-- == 0)
			unit = model->uses[i].unit;
	return &model->units[unit];
}

/* Writes which call is missing, and where. */
static void report_describe_hook(const tutti_trainer *trainer, const struct step_report *report,
				 char text[HOOK_BYTES])
{
	const struct tutti_model *model = &trainer->model;
	const struct unit *unit = report_unit_of(model, report->missing, report->use);
	const char *callback = trainer->batch.last_callback;
	bool is_own = unit == &model->units[model->params[report->missing].unit];
	char name[MODEL_NAME_BYTES + 8] = "that unit";

	if (!is_own)
		snprintf(name, sizeof name, "unit '%s'", unit->name);
	if (report->hook == MISSING_RELEASE)
		snprintf(text, HOOK_BYTES,
			 "gradients are held: call tutti_grads_hold with 0 before the last "
			 "backward of %.80s",
			 name);
	else if (!callback)
		snprintf(text, HOOK_BYTES,
			 "end every backward of its units, call tutti_grad_ready, or register it "
			 "as TUTTI_PARAM_MAY_BE_UNUSED");
	else if (report->hook == MISSING_FORWARD)
		snprintf(text, HOOK_BYTES,
			 "forward of stage %d has begun %.80s in no micro-batch: it must call "
			 "tutti_forward_begin and tutti_forward_end for each unit of its stage",
			 unit->stage, name);
	else
		snprintf(text, HOOK_BYTES,
			 "%s of stage %d, micro-batch %d, has not ended the backward of %.80s: it "
			 "must call tutti_backward_begin and tutti_backward_end for each unit of "
			 "its stage%s",
			 callback, unit->stage, trainer->batch.pipelined - 1, name,
			 strcmp(callback, "backward") == 0 ? "" : ", even if backward has done so");
}

/* Which step of a rank is looked at. */
struct looked_at {
	int rank;
	const char *step, *so; /* "this step" and what follows, for the message */
};

static bool step_reports_has_failed(const tutti_trainer *trainer, int rank)
{
	const struct step_report *report = &trainer->step.reports[rank];

	return report->status != TUTTI_OK && report->missing < 0;
}

/* why: of that rank, if it has failed. */
static tutti_status check_finished(const tutti_trainer *trainer, struct looked_at at,
				   const struct kept_error *why)
{
	const struct step_report *report = &trainer->step.reports[at.rank];

	if (step_reports_has_failed(trainer, at.rank))
		return fail((tutti_status)report->status, "Rank %d could not %s in %s, so %s: %s",
			    job_rank_of(trainer, at.rank),
			    report->is_given_up ? "compute its part" : "make its optimizer state",
			    at.step, at.so, why->message);
	if (report->missing < 0)
		return TUTTI_OK;
	const struct param *param = &trainer->model.params[report->missing];
	char hook[HOOK_BYTES];
	report_describe_hook(trainer, report, hook);
	return fail_invalid("Rank %d did not finish the gradient of parameter '%s' of unit '%s' "
			    "in %s, so %s: %s.",
			    job_rank_of(trainer, at.rank), param->name,
			    trainer->model.units[param->unit].name, at.step, at.so, hook);
}

/* Collective if that rank has failed: it tells the others why. own: this rank's failure. */
static tutti_status check_told(tutti_trainer *trainer, struct looked_at at,
			       const struct kept_error *own)
{
	if (!step_reports_has_failed(trainer, at.rank))
		return check_finished(trainer, at, NULL);
	struct kept_error why = *own;
	TRY(trainer_broadcast(trainer, &why, sizeof why, TUTTI_U8, at.rank));
	return check_finished(trainer, at, &why);
}

tutti_status reports_exchange_missed(tutti_trainer *trainer)
{
	struct step_report *own = &trainer->step.reports[trainer->rank];
	const struct kept_error failed = trainer->local.failed;

	own->missing = trainer->local.missed;
	own->status = failed.status;
	trainer->local.missed = -1;
	trainer->local.failed = (struct kept_error){0};
	TRY(trainer_all_gather(trainer, trainer->step.reports, sizeof *own));
	for (int r = 0; r < trainer->size; r++)
		TRY(check_told(trainer,
			       (struct looked_at){r, "a step since the last average",
						  "ranks do not average"},
			       &failed));
	return TUTTI_OK;
}

/* deterministic = 2: the tree over ranks continues the tree over micro-batches only if all ranks
 * have the same number of them. */
static tutti_status check_evenness(const tutti_trainer *trainer, int rank)
{
	const struct step_report *report = &trainer->step.reports[rank],
				 *first = &trainer->step.reports[0];
	bool is_power = (report->batches & (report->batches - 1)) == 0;

	if (trainer->config.deterministic != 2 || trainer->size == 1 ||
	    (is_power && !report->is_uneven && report->batches == first->batches &&
	     report->items == first->items))
		return TUTTI_OK;
	char others[64] = "";
	if (rank > 0)
		snprintf(others, sizeof others, ", rank %d %g in %d", job_rank_of(trainer, 0),
			 first->items, first->batches);
	return fail_invalid("deterministic = 2 needs as many micro-batches on every rank, a power "
			    "of two, all of the same items; rank %d had %g items in %d%s%s, so no "
			    "rank updates.",
			    job_rank_of(trainer, rank), report->items, report->batches,
			    report->is_uneven ? " of unequal numbers" : "", others);
}

static tutti_status check_report(tutti_trainer *trainer, int rank, const struct kept_error *own)
{
	const struct step_report *report = &trainer->step.reports[rank];

	TRY(check_told(trainer, (struct looked_at){rank, "this step", "no rank updates"}, own));
	if (trainer->layout.by_unit && report->order != trainer->step.reports[0].order)
		return fail(
			TUTTI_ERR_MISMATCH,
			"Rank %d ran other units than rank %d in this step, or in another order, "
			"so no rank updates: with sharded parameters all ranks run the same units.",
			job_rank_of(trainer, rank), job_rank_of(trainer, 0));
	return check_evenness(trainer, rank);
}

tutti_status reports_check(tutti_trainer *trainer, const struct kept_error *own, double *items)
{
	double sum = 0;

	if (trainer_is_local(trainer)) {
		*items = trainer->step.items;
		return check_finished(
			trainer,
			(struct looked_at){trainer->rank, "this step", "it does not update"}, own);
	}
	for (int r = 0; r < trainer->size; r++) {
		TRY(check_report(trainer, r, own));
		sum += trainer->step.reports[r].items;
	}
	*items = sum;
	return TUTTI_OK;
}
