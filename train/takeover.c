/* tutti_trainer_continue: a trainer on a new communicator takes over where earlier trainers have
 * come to. All go on from the step of the rank that has finished most. A rank that has not
 * finished that step does so from what it has (struct last_step). Then parts move to the ranks
 * that are to hold them. What no rank holds any more comes from the newest checkpoint. */
#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/optimizer/optimizer.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- holdings ---- */

/* Which rank holds which elements of each parameter, at the step from which all continue: parts of
 * earlier trainers and their shadows, whatever their strategies and numbers of ranks were. */

enum { HELD_OWN, HELD_SHADOW, HELD_KINDS };

/* Elements [first, last) of a parameter. */
struct holding {
	uint64_t first, last;
};

struct holdings {
	struct holding *all; /* by rank, parameter and kind */
	int ranks, params;
};

/* Where elements come from: rank has those from the one asked for to last, as its own or as its
 * shadow. */
struct source {
	int rank, kind;
	size_t last;
};

static struct holding *takeover_holdings_at(const struct holdings *holdings, int rank, int param,
					    int kind)
{
	size_t row = (size_t)rank * (size_t)holdings->params + (size_t)param;

	return &holdings->all[row * HELD_KINDS + (size_t)kind];
}

/* Local: room for all ranks. MEMORY. */
static tutti_status takeover_holdings_make(struct holdings *holdings, const tutti_trainer *trainer)
{
	size_t rows = (size_t)trainer->size * (size_t)(trainer->model.param_count + 1);

	*holdings = (struct holdings){calloc(rows * HELD_KINDS, sizeof *holdings->all),
				      trainer->size, trainer->model.param_count};
	return holdings->all ? TUTTI_OK : fail_no_memory("what ranks hold");
}

static void takeover_holdings_free(struct holdings *holdings)
{
	free(holdings->all);
}

/* Collective. before: this rank's earlier trainer, or NULL if it holds nothing of that step. */
static tutti_status takeover_holdings_gather(struct holdings *holdings, tutti_trainer *trainer,
					     const tutti_trainer *before)
{
	size_t bytes = (size_t)holdings->params * HELD_KINDS * sizeof *holdings->all;

	for (int p = 0; before && p < holdings->params; p++) {
		const struct piece *own = piece_of(before, p), *shadow = shadow_piece_of(before, p);
		if (own)
			*takeover_holdings_at(holdings, trainer->rank, p, HELD_OWN) =
				(struct holding){own->first, own->first + own->count};
		if (shadow && before->shadow.is_current)
			*takeover_holdings_at(holdings, trainer->rank, p, HELD_SHADOW) =
				(struct holding){shadow->first, shadow->first + shadow->count};
	}
	return bytes ? trainer_all_gather(trainer, holdings->all, bytes) : TUTTI_OK;
}

static bool takeover_holdings_has(const struct holdings *holdings, int rank, int param,
				  size_t element, struct source *source)
{
	for (int kind = 0; kind < HELD_KINDS; kind++) {
		const struct holding *held = takeover_holdings_at(holdings, rank, param, kind);
		if (held->first > element || held->last <= element)
			continue;
		*source = (struct source){rank, kind, (size_t)held->last};
		return true;
	}
	return false;
}

/* A rank that holds this element: preferred, if that does; else the lowest. False: none does. */
static bool takeover_holdings_find(const struct holdings *holdings, int param, size_t element,
				   int preferred, struct source *source)
{
	if (takeover_holdings_has(holdings, preferred, param, element, source))
		return true;
	for (int r = 0; r < holdings->ranks; r++)
		if (takeover_holdings_has(holdings, r, param, element, source))
			return true;
	return false;
}

/* The first element that no rank holds, in the order of parameters. False: there is none. */
static bool takeover_holdings_miss(const struct holdings *holdings, const struct tutti_model *model,
				   int *param, size_t *element)
{
	struct source source;

	for (int p = 0; p < model->param_count; p++)
		for (size_t i = 0; i < model->params[p].count; i = source.last)
			if (!takeover_holdings_find(holdings, p, i, 0, &source)) {
				*param = p;
				*element = i;
				return true;
			}
	return false;
}

/* ---- how parts move ---- */

/* The earlier trainer of a rank. steps is -1 if there is none. */
struct earlier_trainer {
	int64_t steps;
	int32_t has_part; /* it has the same part of the model as the new one */
	int32_t has_dir;  /* of checkpoints */
};

/* Numbers that all ranks have after a step; the optimizer groups follow. */
struct step_numbers {
	uint64_t updates;
	struct loss_scale scale;
	float factor;
	int32_t group_count, is_callers;
};

/* On a mesh the step, its numbers and checkpoints are all ranks' alike; parts move among those that
 * have the same part of the model: the ranks of the trainer's comm. */
struct takeover {
	tutti_trainer *trainer, *before; /* before: NULL on a new rank */
	struct earlier_trainer *earlier; /* one a rank of the job */
	struct holdings holdings;
	double *state;               /* by parameter: its optimizer, and whether m, v lack */
	int root;                    /* the job's rank with most steps */
	int part_root;               /* of comm: the rank with most steps of this part; or -1 */
	int64_t steps;               /* that root has finished, or -1 */
	struct step_numbers numbers; /* of that step */
};

enum { STATE_NUMBERS = 3 };

/* This rank's earlier trainer, if it has this part at the step that all continue from. */
static const tutti_trainer *takeover_holder(const struct takeover *t);

/* Each rank copies, or receives, the elements that it is to hold from ranks of the same part of the
 * model that held them, as their own or as a neighbour's shadow. */

static float *takeover_state_of(const struct piece *piece, int which)
{
	return which == STATE_M ? piece->m : piece->v;
}

/* This rank holds elements of the parameter without such state. Then no update has used it yet; a
 * rank that has begun one may have made it, of zeros. */
static bool takeover_lacks_state(const tutti_trainer *before, int param, int which)
{
	const struct piece *held[] = {piece_of(before, param), shadow_piece_of(before, param)};

	for (int kind = 0; kind < HELD_KINDS; kind++)
		if (held[kind] && !takeover_state_of(held[kind], which))
			return true;
	return false;
}

static bool takeover_has_state(const struct takeover *t, int param, int which)
{
	return t->state[STATE_NUMBERS * param + which] == 0;
}

/* Makes the optimizer state that all holders have, and clears what they have not. */
static tutti_status takeover_make_state_of(struct takeover *t, struct piece *piece)
{
	for (int which = STATE_M; which <= STATE_V; which++)
		if (takeover_has_state(t, piece->param, which))
			TRY(state_make(t->trainer, piece, which));
		else if (takeover_state_of(piece, which))
			state_clear(piece, which);
	return TUTTI_OK;
}

static tutti_status takeover_make_state(struct takeover *t)
{
	tutti_trainer *trainer = t->trainer;
	const tutti_trainer *before = takeover_holder(t);
	size_t params = (size_t)trainer->model.param_count;
	struct kept_error failed = {0};

	for (int p = 0; p < trainer->model.param_count; p++) {
		double *state = &t->state[STATE_NUMBERS * p];
		state[0] = before ? before->tensors[p].optimizer : -1;
		for (int which = STATE_M; which <= STATE_V; which++)
			state[which] = before && takeover_lacks_state(before, p, which);
	}
	if (params)
		TRY(trainer_all_reduce(trainer, t->state, STATE_NUMBERS * params, TUTTI_MAX));
	for (int i = 0; i < trainer->piece_count; i++)
		kept_error_note(&failed, takeover_make_state_of(t, &trainer->pieces[i]));
	for (size_t p = 0; p < params; p++)
		trainer->tensors[p].optimizer = (int)t->state[STATE_NUMBERS * p];
	return job_agree(trainer, kept_error_return(&failed));
}

/* The arrays of a piece, one after another. Pieces of the same parameter have the same ones. */
enum { ARRAYS = 4 };

static void *takeover_array_of(const tutti_trainer *trainer, const struct piece *piece, int a,
			       size_t element)
{
	float *const values[] = {piece->value, piece->m, piece->v};

	if (a < 3)
		return values[a] ? values[a] + (element - piece->first) : NULL;
	return piece->low
		       ? element_at(piece->low, trainer->config.param_dtype, element - piece->first)
		       : NULL;
}

static bool takeover_has_array(const struct takeover *t, int param, int a)
{
	bool is_wide = t->trainer->config.param_dtype == TUTTI_F32;

	if (a == 0)
		return is_wide || param_is_trained(&t->trainer->model.params[param]);
	return a == 3 ? !is_wide : takeover_has_state(t, param, a);
}

/* Elements [first, last) of a parameter, on their way to one rank or, if to is -1, to all. */
struct transfer {
	int param, to;
	size_t first, last;
	struct source source;
};

/* Offloaded arrays are in host memory. */
static void takeover_copy_array(const struct home *home, void *to, const void *from, size_t bytes)
{
	if (!home->device || (train_device_of(to) < 0 && train_device_of(from) < 0))
		memmove(to, from, bytes);
	else
		values_copy(home, to, from, bytes);
}

/* In the order of the stream: both ranks have filled or cleared the array there. */
static tutti_status takeover_pass_array(tutti_trainer *trainer, const struct home *home,
					void *values, size_t count, tutti_dtype dtype, int peer,
					bool sends)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = home->stream};

	TRY(sends ? tutti_send(values, count, dtype, peer, trainer->comm, &call)
		  : tutti_recv(values, count, dtype, peer, trainer->comm, &call));
	return tutti_work_wait(&work, 0);
}

static tutti_status takeover_move_array(struct takeover *t, const struct transfer *move, int a)
{
	tutti_trainer *trainer = t->trainer;
	tutti_dtype dtype = a == 3 ? trainer->config.param_dtype : TUTTI_F32;
	struct home *home = bucket_of(trainer, move->param)->home;
	size_t count = move->last - move->first;
	bool sends = trainer->rank == move->source.rank;
	bool receives = move->to < 0 || trainer->rank == move->to;
	const struct piece *piece = !sends ? NULL
				    : move->source.kind == HELD_SHADOW
					    ? shadow_piece_of(t->before, move->param)
					    : piece_of(t->before, move->param);
	const void *from = sends ? takeover_array_of(trainer, piece, a, move->first) : NULL;
	void *to = receives ? takeover_array_of(trainer, piece_of(trainer, move->param), a,
						move->first)
			    : NULL;

	if (sends && receives)
		takeover_copy_array(home, to, from, count * dtype_bytes(dtype));
	if (move->to < 0)
		return trainer_broadcast_values(trainer, home, to, count, dtype, move->source.rank);
	if (sends == receives)
		return TUTTI_OK;
	return sends ? takeover_pass_array(trainer, home, (void *)from, count, dtype, move->to,
					   true)
		     : takeover_pass_array(trainer, home, to, count, dtype, move->source.rank,
					   false);
}

/* Moves the elements of range, which all are somewhere. */
static tutti_status takeover_move_range(struct takeover *t, int param, struct element_range range,
					int to)
{
	struct transfer move = {.param = param, .to = to};

	for (size_t i = range.first; i < range.last; i = move.last) {
		takeover_holdings_find(&t->holdings, param, i, to < 0 ? t->part_root : to,
				       &move.source);
		move.first = i;
		move.last = smaller(move.source.last, range.last);
		for (int a = 0; a < ARRAYS; a++)
			if (takeover_has_array(t, param, a))
				TRY(takeover_move_array(t, &move, a));
	}
	return TUTTI_OK;
}

/* All ranks go through all transfers in the same order, so each finds its partner. */
static tutti_status takeover_move_param(struct takeover *t, int p)
{
	tutti_trainer *trainer = t->trainer;
	const struct param_span *span = bucket_of(trainer, p)->span;
	struct element_range all = {0, trainer->model.params[p].count};

	if (!span->is_split)
		return takeover_move_range(t, p, all, -1);
	for (int r = 0; r < trainer->size; r++) {
		struct element_range part = span_part(span, r % trainer->layout.shard_size);
		TRY(takeover_move_range(t, p,
					param_part(&trainer->layout, &trainer->model, p, part), r));
	}
	return TUTTI_OK;
}

/* Steps begin with rank 0's buffers, and rank 0 may be new. */
static tutti_status takeover_move_buffers(struct takeover *t)
{
	for (int i = 0; i < t->trainer->model.buffer_count; i++) {
		const struct buffer *to = &t->trainer->model.buffers[i];
		if (t->trainer->rank == t->part_root && to->count > 0)
			memmove(to->data, t->before->model.buffers[i].data,
				to->count * dtype_bytes(to->dtype));
		TRY(trainer_broadcast(t->trainer, to->data, to->count, to->dtype, t->part_root));
	}
	return TUTTI_OK;
}

/* Collective: each rank gets what it is to hold, all of which some rank of comm has. */
static tutti_status takeover_move(struct takeover *t)
{
	tutti_trainer *trainer = t->trainer;

	if (t->before)
		homes_wait(t->before); /* it may have finished its step just now */
	TRY(params_begin_write(trainer));
	TRY(takeover_move_buffers(t));
	TRY(takeover_make_state(t));
	for (int p = 0; p < trainer->model.param_count; p++)
		TRY(takeover_move_param(t, p));
	for (int i = 0; i < trainer->piece_count; i++)
		state_let_go(trainer, &trainer->pieces[i], 0, trainer->pieces[i].count);
	if (trainer_offloads(trainer) && trainer->config.param_dtype == TUTTI_F32)
		pieces_narrow(trainer); /* other types were moved, too */
	loss_scale_resume(&trainer->scale, &trainer->config, &t->numbers.scale);
	trainer->steps = (uint64_t)t->steps;
	trainer->updates = t->numbers.updates;
	TRY(params_publish(trainer));
	TRY(shadow_fetch(trainer));
	homes_wait(trainer); /* before's memory may go now, and it may be another stream's */
	return TUTTI_OK;
}

static bool takeover_is_same_model(const struct tutti_model *a, const struct tutti_model *b)
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
static bool takeover_is_same_part(const struct tutti_model *a, const struct tutti_model *b)
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
static int takeover_best_of(const struct earlier_trainer *earlier, int size)
{
	int best = 0;

	for (int r = 1; r < size; r++)
		if (earlier[r].steps > earlier[best].steps)
			best = r;
	return best;
}

/* The same among the ranks of comm whose earlier trainers had this part; -1: there is none. */
static int takeover_best_of_part(const struct takeover *t)
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

static tutti_status takeover_compare_steps(struct takeover *t)
{
	struct earlier_trainer *own = &t->earlier[t->trainer->job.rank];
	const tutti_trainer *before = t->before;

	*own = (struct earlier_trainer){.steps = -1};
	if (before)
		*own = (struct earlier_trainer){
			(int64_t)before->steps,
			takeover_is_same_part(&t->trainer->model, &before->model),
			before->checkpoint_dir != NULL};
	TRY(job_all_gather(t->trainer, t->earlier, sizeof *t->earlier));
	t->root = takeover_best_of(t->earlier, t->trainer->job.size);
	t->steps = t->earlier[t->root].steps;
	t->part_root = takeover_best_of_part(t);
	return TUTTI_OK;
}

static const tutti_trainer *takeover_holder(const struct takeover *t)
{
	bool has_it = t->before && t->earlier[t->trainer->job.rank].has_part;

	return has_it && (int64_t)t->before->steps == t->steps ? t->before : NULL;
}

/* The root's numbers of its last step, and the groups into the caller's memory. */
static tutti_status takeover_share_numbers(struct takeover *t, tutti_optimizer **groups)
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
static bool takeover_may_finish(const struct takeover *t)
{
	return t->before && t->before->step.may_finish && !t->numbers.is_callers &&
	       (int64_t)t->before->steps + 1 == t->steps;
}

/* Keeps groups: the root may die before all have finished, and others then need them from here. */
static void takeover_finish_step(struct takeover *t, tutti_optimizer *groups)
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
static tutti_status takeover_catch_up(struct takeover *t)
{
	tutti_optimizer *groups = NULL;
	tutti_status status = takeover_share_numbers(t, &groups);

	if (status == TUTTI_OK && takeover_may_finish(t))
		takeover_finish_step(t, groups);
	else
		free(groups);
	return status;
}

/* A rank's folder of checkpoints is for those that have none, too. */
static tutti_status takeover_share_dir(struct takeover *t)
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
static tutti_status takeover_find_lost(struct takeover *t, bool *is_lost, char lost[LOST_BYTES])
{
	tutti_trainer *trainer = t->trainer;
	size_t element = 0;
	int param = 0;
	bool misses = takeover_holdings_miss(&t->holdings, &trainer->model, &param, &element);
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
static tutti_status takeover_load_newest(struct takeover *t, const char *lost)
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

static tutti_status takeover_take_over(struct takeover *t)
{
	char lost[LOST_BYTES];
	bool is_lost;

	TRY(takeover_compare_steps(t));
	if (t->steps < 0)
		return TUTTI_OK;
	TRY(takeover_share_dir(t));
	TRY(takeover_catch_up(t));
	TRY(takeover_holdings_gather(&t->holdings, t->trainer, takeover_holder(t)));
	TRY(takeover_find_lost(t, &is_lost, lost));
	if (is_lost)
		return takeover_load_newest(t, lost);
	TRY(takeover_move(t));
	/* All have all. */
	return job_agree(t->trainer, trainer_check(t->trainer, "tutti_trainer_continue"));
}

static tutti_status takeover_prepare(struct takeover *t)
{
	const tutti_trainer *trainer = t->trainer;

	TRY(trainer_check_closed(trainer, "tutti_trainer_continue"));
	if (t->before && trainer->config.on_device != t->before->config.on_device)
		return fail_invalid("tutti_trainer_continue: one of the two trainers is on a GPU, "
				    "and one is not.");
	if (t->before &&
	    (trainer->config.param_dtype != t->before->config.param_dtype ||
	     !takeover_is_same_model(trainer_whole(trainer), trainer_whole(t->before))))
		return fail_invalid(
			"tutti_trainer_continue: the two trainers have different models.");
	t->earlier = calloc((size_t)trainer->job.size, sizeof *t->earlier);
	t->state = calloc(STATE_NUMBERS * (size_t)trainer->model.param_count + 1, sizeof *t->state);
	if (!t->earlier || !t->state)
		return fail_no_memory("a trainer's tables");
	return takeover_holdings_make(&t->holdings, trainer);
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
	tutti_status status = job_agree(trainer, takeover_prepare(&t));
	if (status == TUTTI_OK)
		status = takeover_take_over(&t);
	free(t.earlier);
	free(t.state);
	takeover_holdings_free(&t.holdings);
	if (status == TUTTI_OK)
		*steps = t.steps > 0 ? t.steps : 0;
	return status;
}
