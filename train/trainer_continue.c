/* tutti_trainer_continue: a trainer on a new communicator takes over where earlier trainers have
 * come to. All go on from the step of the rank that has finished most. A rank that has not finished
 * that step does so from what it has (struct last_step). Then parts move to the ranks that are to
 * hold them (takeover_move.c). What no rank holds any more comes from the newest checkpoint. */
#include "train/takeover.h"

#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/optimizer/optimizer.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_same_model(const struct tutti_model *a, const struct tutti_model *b)
{
	if (a->param_count != b->param_count || a->buffer_count != b->buffer_count)
		return false;
	for (int i = 0; i < a->buffer_count; i++)
		if (a->buffers[i].count != b->buffers[i].count ||
		    a->buffers[i].dtype != b->buffers[i].dtype)
			return false;
	for (int p = 0; p < a->param_count; p++)
		if (a->params[p].count != b->params[p].count ||
		    param_is_trained(&a->params[p]) != param_is_trained(&b->params[p]))
			return false;
	return true;
}

/* The rank's part of the mesh: the same elements of the same tensors. */
static bool is_same_part(const struct tutti_model *a, const struct tutti_model *b)
{
	if (a->param_count != b->param_count)
		return false;
	for (int p = 0; p < a->param_count; p++) {
		const struct mesh_part *mine = &a->params[p].part, *theirs = &b->params[p].part;
		if (a->params[p].count != b->params[p].count || mine->index != theirs->index ||
		    mine->first != theirs->first ||
		    memcmp(&mine->order, &theirs->order, sizeof mine->order) != 0)
			return false;
	}
	return true;
}

/* The rank with most steps; of several, the lowest. */
static int best_of(const struct earlier_trainer *earlier, int size)
{
	int best = 0;

	for (int r = 1; r < size; r++)
		if (earlier[r].steps > earlier[best].steps)
			best = r;
	return best;
}

/* The same among the ranks of comm whose earlier trainers had this part; -1: there is none. */
static int best_of_part(const struct takeover *t)
{
	int best = -1;
	int64_t steps = -1;

	for (int r = 0; r < t->trainer->size; r++) {
		const struct earlier_trainer *of = &t->earlier[job_rank_of(t->trainer, r)];
		if (of->has_part && of->steps > steps) {
			best = r;
			steps = of->steps;
		}
	}
	return best;
}

static tutti_status compare_steps(struct takeover *t)
{
	struct earlier_trainer *own = &t->earlier[t->trainer->job.rank];
	const tutti_trainer *before = t->before;

	*own = (struct earlier_trainer){.steps = -1};
	if (before)
		*own = (struct earlier_trainer){(int64_t)before->steps,
						is_same_part(&t->trainer->model, &before->model),
						before->checkpoint_dir != NULL};
	TRY(job_all_gather(t->trainer, t->earlier, sizeof *t->earlier));
	t->root = best_of(t->earlier, t->trainer->job.size);
	t->steps = t->earlier[t->root].steps;
	t->part_root = best_of_part(t);
	return TUTTI_OK;
}

const tutti_trainer *takeover_holder(const struct takeover *t)
{
	bool has_it = t->before && t->earlier[t->trainer->job.rank].has_part;

	return has_it && (int64_t)t->before->steps == t->steps ? t->before : NULL;
}

/* The root's numbers of its last step, and the groups into the caller's memory. */
static tutti_status share_numbers(struct takeover *t, tutti_optimizer **groups)
{
	tutti_trainer *trainer = t->trainer;
	bool is_root = trainer->job.rank == t->root;

	if (is_root)
		t->numbers = (struct step_numbers){
			t->before->updates, t->before->scale, t->before->last.factor,
			t->before->last.group_count, t->before->last.is_callers};
	TRY(job_broadcast(trainer, &t->numbers, sizeof t->numbers, TUTTI_U8, t->root));
	size_t bytes = (size_t)t->numbers.group_count * sizeof **groups;
	*groups = malloc(bytes + 1);
	TRY(job_agree(trainer, *groups ? TUTTI_OK : fail_no_memory("optimizer groups")));
	if (is_root && bytes > 0)
		memcpy(*groups, t->before->last.groups, bytes);
	return bytes ? job_broadcast(trainer, *groups, bytes, TUTTI_U8, t->root) : TUTTI_OK;
}

/* This rank has all gradients of the step that the root has finished. */
static bool may_finish(const struct takeover *t)
{
	return t->before && t->before->step.may_finish && !t->numbers.is_callers &&
	       (int64_t)t->before->steps + 1 == t->steps;
}

/* Keeps groups: the root may die before all have finished, and others then need them from here. */
static void finish_step(struct takeover *t, tutti_optimizer *groups)
{
	tutti_trainer *before = t->before;
	int32_t count = t->numbers.group_count;

	before->steps++;
	before->updates = t->numbers.updates;
	before->scale = t->numbers.scale;
	before->step.may_finish = false;
	free(before->last.groups);
	before->last = (struct last_step){.groups = groups,
					  .group_count = count,
					  .group_room = count,
					  .factor = t->numbers.factor};
	if (count > 0)
		optimizer_update_alone(before, groups, t->numbers.factor);
}

/* Brings all ranks to the root's step that can come to it. */
static tutti_status trainer_continue_catch_up(struct takeover *t)
{
	tutti_optimizer *groups = NULL;
	tutti_status status = share_numbers(t, &groups);

	if (status == TUTTI_OK && may_finish(t))
		finish_step(t, groups);
	else
		free(groups);
	return status;
}

/* A rank's folder of checkpoints is for those that have none, too. */
static tutti_status share_dir(struct takeover *t)
{
	tutti_trainer *trainer = t->trainer;
	char dir[DISK_PATH_BYTES] = "";
	int root = 0;

	while (root < trainer->job.size && !t->earlier[root].has_dir)
		root++;
	if (root == trainer->job.size)
		return TUTTI_OK;
	const char *own = t->before ? t->before->checkpoint_dir : NULL;
	if (trainer->job.rank == root)
		snprintf(dir, sizeof dir, "%s", own);
	TRY(job_broadcast(trainer, dir, sizeof dir, TUTTI_U8, root));
	return job_agree(trainer, checkpoint_keep_dir(trainer, own ? own : dir));
}

enum { LOST_BYTES = 320 };

/* Elements that no rank has at the step that all continue from, on any part of the mesh: all ranks
 * hear of the first ones. *is_lost: there are some; lost says which. */
static tutti_status find_lost(struct takeover *t, bool *is_lost, char lost[LOST_BYTES])
{
	tutti_trainer *trainer = t->trainer;
	size_t element = 0;
	int param = 0;
	bool misses = holdings_miss(&t->holdings, &trainer->model, &param, &element);
	double first = misses ? trainer->job.rank : trainer->job.size;

	TRY(job_all_reduce(trainer, &first, 1, TUTTI_MIN));
	*is_lost = first < trainer->job.size;
	if (!*is_lost)
		return TUTTI_OK;
	memset(lost, 0, LOST_BYTES);
	if (misses)
		snprintf(lost, LOST_BYTES,
			 "no rank has element %zu of parameter '%s'%s at step %" PRId64
			 ": the ranks that had it died, or left",
			 element, trainer->model.params[param].name,
			 trainer->mesh ? " on its part of the mesh" : "", t->steps);
	return job_broadcast(trainer, lost, LOST_BYTES, TUTTI_U8, (int)first);
}

/* Some elements were on no other rank than those that died. */
static tutti_status load_newest(struct takeover *t, const char *lost)
{
	tutti_trainer *trainer = t->trainer;
	char dir[DISK_PATH_BYTES];
	int64_t step = -1;

	if (!trainer->checkpoint_dir)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_trainer_continue: %s, and none has saved or loaded a "
			    "checkpoint: start again, or load one.",
			    lost);
	snprintf(dir, sizeof dir, "%s", trainer->checkpoint_dir);
	TRY(tutti_load(trainer, dir, &step));
	if (step < 0)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_trainer_continue: %s, and no checkpoint is in '%s' yet: "
			    "start again.",
			    lost, path_shown(dir));
	t->steps = (int64_t)trainer->steps;
	TRY(shadow_fetch(trainer));
	return fail(TUTTI_OK,
		    "tutti_trainer_continue: %s; continued from the checkpoint of step "
		    "%" PRId64 " in '%s'.",
		    lost, step, path_shown(dir));
}

static tutti_status trainer_continue_take_over(struct takeover *t)
{
	char lost[LOST_BYTES];
	bool is_lost;

	TRY(compare_steps(t));
	if (t->steps < 0)
		return TUTTI_OK;
	TRY(share_dir(t));
	TRY(trainer_continue_catch_up(t));
	TRY(holdings_gather(&t->holdings, t->trainer, takeover_holder(t)));
	TRY(find_lost(t, &is_lost, lost));
	if (is_lost)
		return load_newest(t, lost);
	TRY(takeover_move(t));
	/* All have all. */
	return job_agree(t->trainer, trainer_check(t->trainer, "tutti_trainer_continue"));
}

static tutti_status trainer_continue_prepare(struct takeover *t)
{
	const tutti_trainer *trainer = t->trainer;

	TRY(trainer_check_closed(trainer, "tutti_trainer_continue"));
	if (t->before && trainer->config.on_device != t->before->config.on_device)
		return fail_invalid("tutti_trainer_continue: one of the two trainers is on a GPU, "
				    "and one is not.");
	if (t->before && (trainer->config.param_dtype != t->before->config.param_dtype ||
			  !is_same_model(trainer_whole(trainer), trainer_whole(t->before))))
		return fail_invalid(
			"tutti_trainer_continue: the two trainers have different models.");
	t->earlier = calloc((size_t)trainer->job.size, sizeof *t->earlier);
	t->state = calloc(STATE_NUMBERS * (size_t)trainer->model.param_count + 1, sizeof *t->state);
	if (!t->earlier || !t->state)
		return fail_no_memory("a trainer's tables");
	return holdings_make(&t->holdings, trainer);
}

/* before is the caller's to destroy, and const to it; but it may have a step to finish. */
tutti_status tutti_trainer_continue(tutti_trainer *trainer, const tutti_trainer *before,
				    int64_t *steps)
{
	struct takeover t = {.trainer = trainer, .before = (tutti_trainer *)before};

	TRY(trainer_check(trainer, "tutti_trainer_continue"));
	if (!steps || before == trainer)
		return fail_invalid("tutti_trainer_continue needs a place for the steps, and an "
				    "earlier trainer that is not the new one.");
	tutti_status status = job_agree(trainer, trainer_continue_prepare(&t));
	if (status == TUTTI_OK)
		status = trainer_continue_take_over(&t);
	free(t.earlier);
	free(t.state);
	holdings_free(&t.holdings);
	if (status == TUTTI_OK)
		*steps = t.steps > 0 ? t.steps : 0;
	return status;
}
