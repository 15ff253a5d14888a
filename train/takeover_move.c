/* How a trainer that continues gets its parts: each rank copies, or receives, the elements that it
 * is to hold from ranks of the same part of the model that held them, as their own or as a
 * neighbour's shadow (holdings.c). */
#include "train/takeover.h"

#include "train/base/base.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <string.h>

static float *takeover_move_state_of(const struct piece *piece, int which)
{
	return which == STATE_M ? piece->m : piece->v;
}

/* This rank holds elements of the parameter without such state. Then no update has used it yet; a
 * rank that has begun one may have made it, of zeros. */
static bool lacks_state(const tutti_trainer *before, int param, int which)
{
	const struct piece *held[] = {piece_of(before, param), shadow_piece_of(before, param)};

	for (int kind = 0; kind < HELD_KINDS; kind++)
		if (held[kind] && !takeover_move_state_of(held[kind], which))
			return true;
	return false;
}

static bool has_state(const struct takeover *t, int param, int which)
{
	return t->state[STATE_NUMBERS * param + which] == 0;
}

/* Makes the optimizer state that all holders have, and clears what they have not. */
static tutti_status make_state_of(struct takeover *t, struct piece *piece)
{
	for (int which = STATE_M; which <= STATE_V; which++)
		if (has_state(t, piece->param, which))
			TRY(state_make(t->trainer, piece, which));
		else if (takeover_move_state_of(piece, which))
			state_clear(piece, which);
	return TUTTI_OK;
}

static tutti_status takeover_move_make_state(struct takeover *t)
{
	tutti_trainer *trainer = t->trainer;
	const tutti_trainer *before = takeover_holder(t);
	size_t params = (size_t)trainer->model.param_count;
	struct kept_error failed = {0};

	for (int p = 0; p < trainer->model.param_count; p++) {
		double *state = &t->state[STATE_NUMBERS * p];
		state[0] = before ? before->tensors[p].optimizer : -1;
		for (int which = STATE_M; which <= STATE_V; which++)
			state[which] = before && lacks_state(before, p, which);
	}
	if (params)
		TRY(trainer_all_reduce(trainer, t->state, STATE_NUMBERS * params, TUTTI_MAX));
	for (int i = 0; i < trainer->piece_count; i++)
		kept_error_note(&failed, make_state_of(t, &trainer->pieces[i]));
	for (size_t p = 0; p < params; p++)
		trainer->tensors[p].optimizer = (int)t->state[STATE_NUMBERS * p];
	return job_agree(trainer, kept_error_return(&failed));
}

/* The arrays of a piece, one after another. Pieces of the same parameter have the same ones. */
enum { ARRAYS = 4 };

static void *array_of(const tutti_trainer *trainer, const struct piece *piece, int a,
		      size_t element)
{
	float *const values[] = {piece->value, piece->m, piece->v};

	if (a < 3)
		return values[a] ? values[a] + (element - piece->first) : NULL;
	return piece->low
		       ? element_at(piece->low, trainer->config.param_dtype, element - piece->first)
		       : NULL;
}

static bool has_array(const struct takeover *t, int param, int a)
{
	bool is_wide = t->trainer->config.param_dtype == TUTTI_F32;

	if (a == 0)
		return is_wide || param_is_trained(&t->trainer->model.params[param]);
	return a == 3 ? !is_wide : has_state(t, param, a);
}

/* Elements [first, last) of a parameter, on their way to one rank or, if to is -1, to all. */
struct transfer {
	int param, to;
	size_t first, last;
	struct source source;
};

/* Offloaded arrays are in host memory. */
static void copy_array(const struct home *home, void *to, const void *from, size_t bytes)
{
	if (!home->device || (train_device_of(to) < 0 && train_device_of(from) < 0))
		memmove(to, from, bytes);
	else
		values_copy(home, to, from, bytes);
}

/* In the order of the stream: both ranks have filled or cleared the array there. */
static tutti_status pass_array(tutti_trainer *trainer, const struct home *home, void *values,
			       size_t count, tutti_dtype dtype, int peer, bool sends)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = home->stream};

	TRY(sends ? tutti_send(values, count, dtype, peer, trainer->comm, &call)
		  : tutti_recv(values, count, dtype, peer, trainer->comm, &call));
	return tutti_work_wait(&work, 0);
}

static tutti_status move_array(struct takeover *t, const struct transfer *move, int a)
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
	const void *from = sends ? array_of(trainer, piece, a, move->first) : NULL;
	void *to =
		receives ? array_of(trainer, piece_of(trainer, move->param), a, move->first) : NULL;

	if (sends && receives)
		copy_array(home, to, from, count * dtype_bytes(dtype));
	if (move->to < 0)
		return trainer_broadcast_values(trainer, home, to, count, dtype, move->source.rank);
	if (sends == receives)
		return TUTTI_OK;
	return sends ? pass_array(trainer, home, (void *)from, count, dtype, move->to, true)
		     : pass_array(trainer, home, to, count, dtype, move->source.rank, false);
}

/* Moves the elements of range, which all are somewhere. */
static tutti_status move_range(struct takeover *t, int param, struct element_range range, int to)
{
	struct transfer move = {.param = param, .to = to};

	for (size_t i = range.first; i < range.last; i = move.last) {
		holdings_find(&t->holdings, param, i, to < 0 ? t->part_root : to, &move.source);
		move.first = i;
		move.last = smaller(move.source.last, range.last);
		for (int a = 0; a < ARRAYS; a++)
			if (has_array(t, param, a))
				TRY(move_array(t, &move, a));
	}
	return TUTTI_OK;
}

/* All ranks go through all transfers in the same order, so each finds its partner. */
static tutti_status move_param(struct takeover *t, int p)
{
	tutti_trainer *trainer = t->trainer;
	const struct param_span *span = bucket_of(trainer, p)->span;
	struct element_range all = {0, trainer->model.params[p].count};

	if (!span->is_split)
		return move_range(t, p, all, -1);
	for (int r = 0; r < trainer->size; r++) {
		struct element_range part = span_part(span, r % trainer->layout.shard_size);
		TRY(move_range(t, p, param_part(&trainer->layout, &trainer->model, p, part), r));
	}
	return TUTTI_OK;
}

/* Steps begin with rank 0's buffers, and rank 0 may be new. */
static tutti_status move_buffers(struct takeover *t)
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

tutti_status takeover_move(struct takeover *t)
{
	tutti_trainer *trainer = t->trainer;

	if (t->before)
		homes_wait(t->before); /* it may have finished its step just now */
	TRY(params_begin_write(trainer));
	TRY(move_buffers(t));
	TRY(takeover_move_make_state(t));
	for (int p = 0; p < trainer->model.param_count; p++)
		TRY(move_param(t, p));
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
