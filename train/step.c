/* The end of a step. Every rank reports to all others how its step went. So all ranks divide by the
 * same number of items, and update together or fail with the same message. */
#include "train/base/base.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reports ---- */

/* The ranks' reports at the end of a step, and the conclusion that all of them draw. */

enum { HOOK_BYTES = 320 };

static int step_first_missing(const tutti_trainer *trainer)
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
static void step_report_find_hook(const tutti_trainer *trainer, struct step_report *report)
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

/* Sets this rank's report of the step. local: why it cannot update, or OK. */
static void step_report_fill(tutti_trainer *trainer, tutti_status local)
{
	struct step_report *report = &trainer->step.reports[trainer->rank];

	*report = (struct step_report){.items = trainer->step.items,
				       .order = trainer->step.order,
				       .missing = step_first_missing(trainer),
				       .status = (int32_t)local,
				       .batches = trainer->step.micro_batches + 1,
				       .is_uneven = trainer->step.is_uneven,
				       .is_given_up = trainer->step.is_given_up};
	if (report->missing >= 0)
		step_report_find_hook(trainer, report);
}

/* The unit of a report's use. Ranks that reduce with each other have the same units. */
static const struct unit *step_report_unit_of(const struct tutti_model *model, int param, int use)
{
	int unit = model->params[param].unit;

	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == param && use-- == 0)
			unit = model->uses[i].unit;
	return &model->units[unit];
}

/* Writes which call is missing, and where. */
static void step_report_describe_hook(const tutti_trainer *trainer,
				      const struct step_report *report, char text[HOOK_BYTES])
{
	const struct tutti_model *model = &trainer->model;
	const struct unit *unit = step_report_unit_of(model, report->missing, report->use);
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

static bool step_report_has_failed(const tutti_trainer *trainer, int rank)
{
	const struct step_report *report = &trainer->step.reports[rank];

	return report->status != TUTTI_OK && report->missing < 0;
}

/* why: of that rank, if it has failed. */
static tutti_status step_check_finished(const tutti_trainer *trainer, struct looked_at at,
					const struct kept_error *why)
{
	const struct step_report *report = &trainer->step.reports[at.rank];

	if (step_report_has_failed(trainer, at.rank))
		return fail((tutti_status)report->status, "Rank %d could not %s in %s, so %s: %s",
			    job_rank_of(trainer, at.rank),
			    report->is_given_up ? "compute its part" : "make its optimizer state",
			    at.step, at.so, why->message);
	if (report->missing < 0)
		return TUTTI_OK;
	const struct param *param = &trainer->model.params[report->missing];
	char hook[HOOK_BYTES];
	step_report_describe_hook(trainer, report, hook);
	return fail_invalid("Rank %d did not finish the gradient of parameter '%s' of unit '%s' "
			    "in %s, so %s: %s.",
			    job_rank_of(trainer, at.rank), param->name,
			    trainer->model.units[param->unit].name, at.step, at.so, hook);
}

/* Collective if that rank has failed: it tells the others why. own: this rank's failure. */
static tutti_status step_check_told(tutti_trainer *trainer, struct looked_at at,
				    const struct kept_error *own)
{
	if (!step_report_has_failed(trainer, at.rank))
		return step_check_finished(trainer, at, NULL);
	struct kept_error why = *own;
	TRY(trainer_broadcast(trainer, &why, sizeof why, TUTTI_U8, at.rank));
	return step_check_finished(trainer, at, &why);
}

/* Local SGD, collective: OK if no rank has failed in a step since the last average. */
static tutti_status step_reports_exchange_missed(tutti_trainer *trainer)
{
	struct step_report *own = &trainer->step.reports[trainer->rank];
	const struct kept_error failed = trainer->local.failed;

	own->missing = trainer->local.missed;
	own->status = failed.status;
	trainer->local.missed = -1;
	trainer->local.failed = (struct kept_error){0};
	TRY(trainer_all_gather(trainer, trainer->step.reports, sizeof *own));
	for (int r = 0; r < trainer->size; r++)
		TRY(step_check_told(trainer,
				    (struct looked_at){r, "a step since the last average",
						       "ranks do not average"},
				    &failed));
	return TUTTI_OK;
}

/* deterministic = 2: the tree over ranks continues the tree over micro-batches only if all ranks
 * have the same number of them. */
static tutti_status step_check_evenness(const tutti_trainer *trainer, int rank)
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

static tutti_status step_check_report(tutti_trainer *trainer, int rank,
				      const struct kept_error *own)
{
	const struct step_report *report = &trainer->step.reports[rank];

	TRY(step_check_told(trainer, (struct looked_at){rank, "this step", "no rank updates"},
			    own));
	if (trainer->layout.by_unit && report->order != trainer->step.reports[0].order)
		return fail(
			TUTTI_ERR_MISMATCH,
			"Rank %d ran other units than rank %d in this step, or in another order, "
			"so no rank updates: with sharded parameters all ranks run the same units.",
			job_rank_of(trainer, rank), job_rank_of(trainer, 0));
	return step_check_evenness(trainer, rank);
}

/* Concludes from all reports, with the same result on every rank, or with local SGD from this
 * rank's: OK, with the items of the step, if all ranks can update. own: the failure that this rank
 * has reported; if it is the first one, the others are told its message. */
static tutti_status step_reports_check(tutti_trainer *trainer, const struct kept_error *own,
				       double *items)
{
	double sum = 0;

	if (trainer_is_local(trainer)) {
		*items = trainer->step.items;
		return step_check_finished(
			trainer,
			(struct looked_at){trainer->rank, "this step", "it does not update"}, own);
	}
	for (int r = 0; r < trainer->size; r++) {
		TRY(step_check_report(trainer, r, own));
		sum += trainer->step.reports[r].items;
	}
	*items = sum;
	return TUTTI_OK;
}

/* ---- a mesh ---- */

/* Ranks that have other parts of the model hear how it went among the ranks that reduce the others'
 * gradients. */

static int step_find_same(const struct step_conclusion *all, int rank)
{
	int first = 0;

	while (all[first].data != all[rank].data)
		first++;
	return first;
}

/* Those of ranks with the same data count once. */
static tutti_status step_add_items(const tutti_trainer *trainer, const struct step_conclusion *all,
				   double *items)
{
	const struct trainer_mesh *mesh = trainer->mesh;

	*items = 0;
	for (int r = 0; r < mesh->other_count; r++) {
		int first = step_find_same(all, r);
		if (first == r)
			*items += all[r].items;
		else if (all[r].items != all[first].items)
			return fail(TUTTI_ERR_MISMATCH,
				    "Rank %d, with those that it reduces with, had %g items in "
				    "this step, and rank %d %g: ranks with parts of one model "
				    "pass the same to tutti_micro_batch.",
				    tutti_parent_rank(mesh->others, r), all[r].items,
				    tutti_parent_rank(mesh->others, first), all[first].items);
	}
	return TUTTI_OK;
}

/* Of the first rank whose failure does not follow from another one's, as error_agree has it; but
 * the message is that of all ranks with other data, and names ranks itself. */
static tutti_status step_mesh_tell(tutti_trainer *trainer, const struct step_conclusion *all,
				   struct kept_error *failure)
{
	int root = -1;

	for (int pass = 0; pass < 2 && root < 0; pass++)
		for (int r = trainer->mesh->other_count - 1; r >= 0; r--)
			if (all[r].status != TUTTI_OK &&
			    (pass == 1 || !status_is_secondary((tutti_status)all[r].status)))
				root = r;
	if (root < 0)
		return TUTTI_OK;
	TRY(others_broadcast(trainer, failure, sizeof *failure, root));
	return kept_error_return(failure);
}

/* After step_reports_check, with its result, which is the same among the ranks of trainer->comm:
 * returns what all ranks of the mesh can conclude. *items: in, of the ranks of comm; out, with
 * those of "ep". MISMATCH: ranks with the same data have other items. */
static tutti_status step_mesh_agree(tutti_trainer *trainer, tutti_status status, double *items)
{
	const struct trainer_mesh *mesh = trainer->mesh;
	struct kept_error failure = kept_error_of(status);

	if (!mesh || !mesh->others)
		return status;
	mesh->conclusions[mesh->other_rank] = (struct step_conclusion){
		.items = *items, .status = (int32_t)status, .data = mesh_data(mesh)};
	tutti_status gathered =
		others_all_gather(trainer, mesh->conclusions, sizeof *mesh->conclusions);
	if (gathered != TUTTI_OK) /* a failure of its own says more */
		return status == TUTTI_OK ? gathered : kept_error_return(&failure);
	TRY(step_mesh_tell(trainer, mesh->conclusions, &failure));
	return step_add_items(trainer, mesh->conclusions, items);
}

static tutti_status step_check_step(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step.state != STEP_LAST)
		return fail_invalid("%s: the step's last micro-batch has not begun: call "
				    "tutti_micro_batch with TUTTI_PASS_LAST first.",
				    function);
	return trainer_check_no_unit(trainer, function);
}

/* ---- the end of a step ---- */

/* Ends the reductions and exchanges reports. local is this rank's own failure. Gradients are sent
 * even if a hook is missing, because other ranks wait for them. */
static tutti_status step_exchange(tutti_trainer *trainer, tutti_status local)
{
	struct kept_error first = {0};

	step_report_fill(trainer, local);
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
static tutti_status step_measure(tutti_trainer *trainer, tutti_step_info *info, float *factor)
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

static void step_count_step(tutti_trainer *trainer)
{
	trainer->steps++;
	trainer->step.may_finish = false;
	trainer->last.group_count = 0;
	trainer->last.is_callers = false;
	trainer->local.needs_average = trainer_is_local(trainer);
}

/* With local SGD the other ranks' step counts, and all ranks average at the same steps. */
static void step_count_missed(tutti_trainer *trainer, const struct kept_error *own)
{
	trainer->local.missed = trainer->step.reports[trainer->rank].missing;
	trainer->local.failed = *own;
	step_count_step(trainer);
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
		status = step_reports_check(trainer, &own, &info->items);
		if (status != TUTTI_OK && trainer_is_local(trainer))
			step_count_missed(trainer, &own);
	}
	status = step_mesh_agree(trainer, status, &info->items);
	if (status == TUTTI_OK && !trainer_is_local(trainer) && info->items <= 0)
		status = fail_invalid("No rank had any items in this step, so there is no mean "
				      "gradient: ask all_done on its first micro-batch.");
	if (status == TUTTI_OK)
		status = step_measure(trainer, info, factor);
	if (status != TUTTI_OK)
		return status;
	loss_scale_end_step(&trainer->scale, &trainer->config, info->items, !info->skipped);
	step_count_step(trainer);
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

static bool step_is_time(const tutti_trainer *trainer, int every)
{
	return every > 0 && trainer->steps % (uint64_t)every == 0;
}

/* ---- local SGD: the mean over ranks of the values that each has trained alone ---- */

static tutti_status step_local_sgd_average_piece(tutti_trainer *trainer, const struct piece *piece)
{
	TRY(trainer_average(trainer, piece->home, piece->value, piece->count, piece->count));
	piece_narrow(trainer, piece);
	return TUTTI_OK;
}

/* Every rank has the same kinds of state, because all ranks pass the same groups. */
static tutti_status step_local_sgd_average_state(tutti_trainer *trainer, const struct piece *piece)
{
	if (piece->m)
		TRY(trainer_average(trainer, piece->home, piece->m, piece->count, piece->count));
	return piece->v
		       ? trainer_average(trainer, piece->home, piece->v, piece->count, piece->count)
		       : TUTTI_OK;
}

static bool step_local_sgd_lies_together(const tutti_trainer *trainer, const struct bucket *bucket)
{
	return !bucket->span->has_extern && trainer->config.param_dtype == TUTTI_F32 &&
	       !trainer_offloads(trainer);
}

/* Contiguous values are averaged in one collective. */
static tutti_status step_local_sgd_average(tutti_trainer *trainer)
{
	for (int b = 0; b < trainer->layout.trained_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		if (step_local_sgd_lies_together(trainer, bucket))
			TRY(trainer_average(trainer, bucket->home, (float *)(void *)bucket->data,
					    bucket->span->count, bucket->span->elements));
		for (int i = 0; i < bucket->piece_count; i++) {
			const struct piece *piece = &trainer->pieces[bucket->first_piece + i];
			if (!step_local_sgd_lies_together(trainer, bucket))
				TRY(step_local_sgd_average_piece(trainer, piece));
			if (trainer->config.local_sgd_state)
				TRY(step_local_sgd_average_state(trainer, piece));
			state_let_go(trainer, piece, 0, piece->count);
		}
	}
	return TUTTI_OK;
}

/* Ranks average if none of them has missed a hook or failed; otherwise all return that failure. */
static tutti_status step_average_together(tutti_trainer *trainer)
{
	TRY(step_reports_exchange_missed(trainer));
	TRY(step_local_sgd_average(trainer));
	trainer->local.needs_average = false;
	return TUTTI_OK;
}

tutti_status step_run_scheduled(tutti_trainer *trainer)
{
	trainer->owes_update = false;
	if (trainer_is_local(trainer) && step_is_time(trainer, trainer->config.local_sgd_steps))
		TRY(step_average_together(trainer));
	if (step_is_time(trainer, trainer->config.check_replicas_every) &&
	    !(trainer_is_local(trainer) && !step_is_time(trainer, trainer->config.local_sgd_steps)))
		TRY(tutti_check_replicas(trainer));
	return TUTTI_OK;
}

/* An author who calls no units may read parameters at any time. */
static tutti_status step_wait_for_values(tutti_trainer *trainer)
{
	if (!trainer->batch.units_ran)
		return publish_wait_all(trainer);
	for (int b = 0; b < trainer->layout.span_count; b++)
		if (trainer->buckets[b].span->has_extern)
			TRY(publish_wait(trainer, b));
	return TUTTI_OK;
}

static void step_keep_step(struct last_step *last, const tutti_optimizer *groups, int num_groups,
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
		step_keep_step(&trainer->last, groups, num_groups, factor);
		if (info->items > 0) /* with local SGD a rank may have none */
			kept_error_note(&first, optimizer_update(trainer, groups, factor));
		kept_error_note(&first, step_wait_for_values(trainer));
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
