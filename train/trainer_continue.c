/* tutti_trainer_continue: a trainer on a new communicator takes over the values of earlier
 * trainers. The rank whose earlier trainer has most steps broadcasts its values. */
#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

/* The earlier trainer of a rank. steps is -1 if there is none. */
struct earlier_trainer {
	int64_t steps, updates;
	int64_t is_split; /* it has only a part of the state */
};

static bool is_same_model(const tutti_trainer *a, const tutti_trainer *b)
{
	if (a->model.param_count != b->model.param_count ||
	    a->config.param_dtype != b->config.param_dtype)
		return false;
	for (int p = 0; p < a->model.param_count; p++)
		if (a->model.params[p].count != b->model.params[p].count ||
		    param_is_trained(&a->model.params[p]) != param_is_trained(&b->model.params[p]))
			return false;
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

static tutti_status copy(tutti_trainer *trainer, float *to, const float *from, size_t count,
			 int root)
{
	if (trainer->rank == root && from)
		memmove(to, from, count * sizeof *to);
	else if (trainer->rank == root)
		memset(to, 0, count * sizeof *to); /* the root has no such state */
	return trainer_broadcast(trainer, to, count, TUTTI_F32, root);
}

/* The optimizer state that a piece has on the root. */
struct piece_state {
	int32_t optimizer, has_m, has_v;
};

/* Makes the optimizer state that the root has. Keeps in *failed why there is no room: calls on the
 * communicator follow, and with them this thread's last error goes. */
static tutti_status make_state(tutti_trainer *trainer, const tutti_trainer *before,
			       struct piece *to, int root, struct train_failure *failed)
{
	struct piece_state state = {0};

	if (trainer->rank == root) {
		const struct piece *from = piece_of(before, to->param);
		state = (struct piece_state){before->tensors[to->param].optimizer, from->m != NULL,
					     from->v != NULL};
	}
	TRY(trainer_broadcast(trainer, &state, sizeof state, TUTTI_U8, root));
	trainer->tensors[to->param].optimizer = state.optimizer;
	if (state.has_m && failed->status == TUTTI_OK)
		failure_note(failed, state_make(trainer, to, STATE_M));
	if (state.has_v && failed->status == TUTTI_OK)
		failure_note(failed, state_make(trainer, to, STATE_V));
	return TUTTI_OK;
}

static tutti_status copy_piece(tutti_trainer *trainer, const tutti_trainer *before,
			       struct piece *to, int root)
{
	const struct piece none = {0};
	const struct piece *from = trainer->rank == root ? piece_of(before, to->param) : &none;
	float *places[] = {to->value, to->m, to->v}, *values[] = {from->value, from->m, from->v};
	tutti_dtype dtype = trainer->config.param_dtype;

	for (int i = 0; i < 3; i++)
		if (places[i])
			TRY(copy(trainer, places[i], values[i], to->count, root));
	if (to->low && trainer->rank == root)
		memcpy(to->low, from->low, to->count * dtype_bytes(dtype));
	return to->low ? trainer_broadcast(trainer, to->low, to->count, dtype, root) : TUTTI_OK;
}

static tutti_status copy_pieces(tutti_trainer *trainer, const tutti_trainer *before, int root)
{
	struct train_failure failed = {0};

	for (int i = 0; i < trainer->piece_count; i++)
		TRY(make_state(trainer, before, &trainer->pieces[i], root, &failed));
	TRY(trainer_agree(trainer, failure_return(&failed)));
	for (int i = 0; i < trainer->piece_count; i++) {
		struct piece *piece = &trainer->pieces[i];
		TRY(copy_piece(trainer, before, piece, root));
		state_let_go(trainer, piece, 0, piece->count);
	}
	return TUTTI_OK;
}

static tutti_status copy_scale(tutti_trainer *trainer, const tutti_trainer *before, int root)
{
	struct loss_scale scale = trainer->rank == root ? before->scale : trainer->scale;

	TRY(trainer_broadcast(trainer, &scale, sizeof scale, TUTTI_U8, root));
	loss_scale_resume(&trainer->scale, &trainer->config, &scale);
	return TUTTI_OK;
}

static tutti_status copy_all(tutti_trainer *trainer, const tutti_trainer *before,
			     struct earlier_trainer *earlier, int64_t *steps)
{
	struct earlier_trainer *own = &earlier[trainer->rank];

	*own = (struct earlier_trainer){.steps = -1};
	if (before)
		*own = (struct earlier_trainer){(int64_t)before->steps, (int64_t)before->updates,
						before->layout.shard_size > 1};
	TRY(trainer_all_gather(trainer, earlier, sizeof *earlier));
	int root = best_of(earlier, trainer->size);
	*steps = earlier[root].steps > 0 ? earlier[root].steps : 0;
	if (earlier[root].steps < 0)
		return TUTTI_OK;
	if (trainer->layout.shard_size > 1 || earlier[root].is_split)
		return train_fail(TUTTI_ERR_UNSUPPORTED,
				  "tutti_trainer_continue: no other rank has the sharded state of "
				  "a dead rank: load a checkpoint.");
	TRY(copy_pieces(trainer, before, root));
	TRY(copy_scale(trainer, before, root));
	trainer->steps = (uint64_t)earlier[root].steps;
	trainer->updates = (uint64_t)earlier[root].updates;
	return TUTTI_OK;
}

static tutti_status prepare(const tutti_trainer *trainer, const tutti_trainer *before,
			    struct earlier_trainer **earlier)
{
	TRY(trainer_check_closed(trainer, "tutti_trainer_continue"));
	if (before && !is_same_model(trainer, before))
		return train_invalid(
			"tutti_trainer_continue: the two trainers have different models.");
	*earlier = calloc((size_t)trainer->size, sizeof **earlier);
	return *earlier ? TUTTI_OK : train_no_memory("a trainer's tables");
}

tutti_status tutti_trainer_continue(tutti_trainer *trainer, const tutti_trainer *before,
				    int64_t *steps)
{
	struct earlier_trainer *earlier = NULL;
	int64_t done = 0;

	TRY(trainer_check(trainer, "tutti_trainer_continue"));
	if (!steps || before == trainer)
		return train_invalid("tutti_trainer_continue needs a place for the steps, and an "
				     "earlier trainer that is not the new one.");
	tutti_status status = trainer_agree(trainer, prepare(trainer, before, &earlier));
	if (status == TUTTI_OK)
		status = copy_all(trainer, before, earlier, &done);
	free(earlier);
	if (status == TUTTI_OK)
		*steps = done;
	return status;
}
