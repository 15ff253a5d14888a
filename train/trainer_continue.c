/* A trainer that goes on where another one was: on a communicator of survivors, or of these and new
 * ranks. Whoever had done most steps tells the others. */
#include "train/base/train_error.h"
#include "train/precision/loss_scale.h"
#include "train/state/pieces.h"
#include "train/state/trainer_collectives.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

/* What a rank says of its earlier trainer. steps -1: it has none. */
struct claim {
	int64_t steps, updates;
	int64_t is_split; /* it has a part of the state only */
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

/* The one with most steps; of several the lowest. */
static int best_of(const struct claim *claims, int size)
{
	int best = 0;

	for (int r = 1; r < size; r++)
		if (claims[r].steps > claims[best].steps)
			best = r;
	return best;
}

static tutti_status carry(tutti_trainer *trainer, float *to, const float *from, size_t count,
			  int root)
{
	if (trainer->rank == root && from)
		memmove(to, from, count * sizeof *to);
	else if (trainer->rank == root)
		memset(to, 0, count * sizeof *to); /* state that it never had */
	return trainer_broadcast(trainer, to, count, TUTTI_F32, root);
}

static tutti_status carry_values(tutti_trainer *trainer, const struct piece *to,
				 const struct piece *from, int root)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (to->value)
		TRY(carry(trainer, to->value, from->value, to->count, root));
	if (to->low && trainer->rank == root)
		memcpy(to->low, from->low, to->count * dtype_bytes(dtype));
	return to->low ? trainer_broadcast(trainer, to->low, to->count, dtype, root) : TUTTI_OK;
}

/* What a piece of the root's has. */
struct facts {
	int32_t optimizer, has_m, has_v;
};

/* Makes room for the optimizer state that the root has; what cannot be made is *lacks. */
static tutti_status carry_facts(tutti_trainer *trainer, const tutti_trainer *before,
				struct piece *to, int root, tutti_status *lacks)
{
	struct facts facts = {0};

	if (trainer->rank == root) {
		const struct piece *from = piece_of(before, to->param);
		facts = (struct facts){before->tensors[to->param].optimizer, from->m != NULL,
				       from->v != NULL};
	}
	TRY(trainer_broadcast(trainer, &facts, sizeof facts, TUTTI_U8, root));
	trainer->tensors[to->param].optimizer = facts.optimizer;
	if (facts.has_m && *lacks == TUTTI_OK)
		*lacks = state_make(trainer, to, STATE_M);
	if (facts.has_v && *lacks == TUTTI_OK)
		*lacks = state_make(trainer, to, STATE_V);
	return TUTTI_OK;
}

static tutti_status carry_piece(tutti_trainer *trainer, const tutti_trainer *before,
				struct piece *to, int root)
{
	const struct piece none = {0};
	const struct piece *from = trainer->rank == root ? piece_of(before, to->param) : &none;

	TRY(carry_values(trainer, to, from, root));
	if (to->m)
		TRY(carry(trainer, to->m, from->m, to->count, root));
	return to->v ? carry(trainer, to->v, from->v, to->count, root) : TUTTI_OK;
}

static tutti_status carry_pieces(tutti_trainer *trainer, const tutti_trainer *before, int root)
{
	tutti_status lacks = TUTTI_OK;

	for (int i = 0; i < trainer->piece_count; i++)
		TRY(carry_facts(trainer, before, &trainer->pieces[i], root, &lacks));
	TRY(trainer_agree(trainer, lacks));
	for (int i = 0; i < trainer->piece_count; i++) {
		struct piece *piece = &trainer->pieces[i];
		TRY(carry_piece(trainer, before, piece, root));
		state_let_go(trainer, piece, 0, piece->count);
	}
	return TUTTI_OK;
}

/* A fixed loss scale is the config's. */
static tutti_status carry_scale(tutti_trainer *trainer, const tutti_trainer *before, int root)
{
	struct loss_scale *to = &trainer->scale;
	float told[4] = {0};

	if (trainer->rank == root) {
		const struct loss_scale *from = &before->scale;
		told[0] = from->factor;
		told[1] = from->divisor;
		told[2] = (float)from->good_steps;
		told[3] = from->is_known;
	}
	TRY(trainer_broadcast(trainer, told, 4, TUTTI_F32, root));
	if (trainer->config.loss_scale < 0) {
		to->factor = told[0];
		to->good_steps = (int)told[2];
	}
	to->divisor = told[1];
	to->is_known = told[3] > 0;
	return TUTTI_OK;
}

static tutti_status carry_all(tutti_trainer *trainer, const tutti_trainer *before,
			      struct claim *claims, int64_t *steps)
{
	struct claim *own = &claims[trainer->rank];

	*own = (struct claim){.steps = -1};
	if (before)
		*own = (struct claim){(int64_t)before->steps, (int64_t)before->updates,
				      before->layout.shard_size > 1};
	TRY(trainer_all_gather(trainer, claims, sizeof *claims));
	int root = best_of(claims, trainer->size);
	*steps = claims[root].steps > 0 ? claims[root].steps : 0;
	if (claims[root].steps < 0)
		return TUTTI_OK;
	if (trainer->layout.shard_size > 1 || claims[root].is_split)
		return train_fail(
			TUTTI_ERR_UNSUPPORTED,
			"tutti_trainer_continue: with sharded state what a dead rank had is "
			"nowhere else: load a checkpoint.");
	TRY(carry_pieces(trainer, before, root));
	TRY(carry_scale(trainer, before, root));
	trainer->steps = (uint64_t)claims[root].steps;
	trainer->updates = (uint64_t)claims[root].updates;
	return TUTTI_OK;
}

static tutti_status prepare(const tutti_trainer *trainer, const tutti_trainer *before,
			    struct claim **claims)
{
	if (trainer->step != STEP_CLOSED || trainer->open_pass != UNIT_NONE)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_trainer_continue: the trainer that goes on is in the "
				  "middle of a step.");
	if (before && !is_same_model(trainer, before))
		return train_fail(
			TUTTI_ERR_INVALID,
			"tutti_trainer_continue: the two trainers have different models.");
	*claims = calloc((size_t)trainer->size, sizeof **claims);
	return *claims ? TUTTI_OK
		       : train_fail(TUTTI_ERR_MEMORY, "There is no memory for a trainer's tables.");
}

tutti_status tutti_trainer_continue(tutti_trainer *trainer, const tutti_trainer *before,
				    int64_t *steps)
{
	struct claim *claims = NULL;
	int64_t done = 0;

	TRY(trainer_check(trainer, "tutti_trainer_continue"));
	if (!steps || before == trainer)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_trainer_continue needs a place for the steps, and another "
				  "trainer than the one that goes on.");
	tutti_status status = trainer_agree(trainer, prepare(trainer, before, &claims));
	if (status == TUTTI_OK)
		status = carry_all(trainer, before, claims, &done);
	free(claims);
	if (status == TUTTI_OK)
		*steps = done;
	return status;
}
