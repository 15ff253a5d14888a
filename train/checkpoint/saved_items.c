/* The list of ranges that a rank saves. */
#include "train/checkpoint/saved_items.h"

#include "train/base/base.h"
#include "train/precision/precision.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void saved_state_kind(char kind[CHECKPOINT_KIND_BYTES], const struct state *state, int rank)
{
	if (state->per_rank)
		snprintf(kind, CHECKPOINT_KIND_BYTES, "state.%d", rank);
	else
		strcpy(kind, "state");
}

/* Appends an empty range. */
static struct checkpoint_range *saved_items_add(struct saved_items *items, const char *kind,
						const char *name, tutti_dtype dtype,
						const void *values)
{
	assert(items->count < items->room);
	struct checkpoint_range *range = &items->ranges[items->count];
	*range = (struct checkpoint_range){.tensor = {.dtype = dtype}};
	strcpy(range->tensor.kind, kind);
	strcpy(range->tensor.name, name);
	items->values[items->count++] = values;
	return range;
}

/* Appends a whole tensor of one dimension. */
static void add_whole(struct saved_items *items, const char *kind, const char *name,
		      tutti_dtype dtype, size_t count, const void *values)
{
	struct checkpoint_range *range = saved_items_add(items, kind, name, dtype, values);

	range->tensor.ndim = 1;
	range->tensor.shape[0] = (int64_t)count;
	range->count = count;
}

/* The elements of the piece that this rank saves. Of optimizer state that differs between ranks
 * rank 0's is saved, because counts and loss scale are rank 0's too. */
static struct element_range saved_items_share_of(const tutti_trainer *trainer,
						 const struct piece *piece, const void *values)
{
	bool is_state = values == piece->m || values == piece->v;

	if (is_state && trainer_is_local(trainer) && !trainer->config.local_sgd_state)
		return (struct element_range){0, trainer->rank == 0 ? piece->count : 0};
	return (struct element_range){piece->save_first, piece->save_first + piece->save_count};
}

/* The order in which a parameter is saved. A split into more pieces than rows has the same order as
 * one into as many pieces as rows: its last pieces have no elements. */
static struct tensor_order saved_order_of(const struct param *param)
{
	struct tensor_order order = param->part.order;

	if (order.parts > 1 && order.parts > param->shape[order.dim])
		order.parts = (int)param->shape[order.dim];
	return order;
}

/* Appends this rank's share of the values, which begin with the piece's first element. */
static void add_share(struct saved_items *items, const tutti_trainer *trainer,
		      const struct piece *piece, const char *kind, tutti_dtype dtype,
		      const void *values)
{
	const struct param *param = &trainer->model.params[piece->param];

	if (!values || !param->part.is_counted)
		return;
	struct element_range share = saved_items_share_of(trainer, piece, values);
	items->pieces[items->count] = piece;
	struct checkpoint_range *range =
		saved_items_add(items, kind, param->name, dtype,
				(const char *)values + share.first * dtype_bytes(dtype));
	range->tensor.ndim = param->ndim;
	memcpy(range->tensor.shape, param->shape, sizeof param->shape);
	range->tensor.order = saved_order_of(param);
	range->first = param->part.first + piece->first + share.first;
	range->count = share.last - share.first;
}

static void saved_items_add_pieces(struct saved_items *items, const tutti_trainer *trainer)
{
	tutti_dtype low = trainer->config.param_dtype;

	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		if (piece->value)
			add_share(items, trainer, piece, "param", TUTTI_F32, piece->value);
		else
			add_share(items, trainer, piece, "param", low, piece->low);
		if (piece->value && trainer->config.stochastic_rounding)
			add_share(items, trainer, piece, "low", low, piece->low);
		add_share(items, trainer, piece, "m", TUTTI_F32, piece->m);
		add_share(items, trainer, piece, "v", TUTTI_F32, piece->v);
	}
}

/* Saves the shape alone of a parameter without elements, of which no rank has a piece. */
static void saved_items_add_shape(struct saved_items *items, const tutti_trainer *trainer,
				  const struct param *param)
{
	tutti_dtype dtype = param_is_trained(param) ? TUTTI_F32 : trainer->config.param_dtype;
	struct checkpoint_range *range = saved_items_add(items, "param", param->name, dtype, NULL);

	range->tensor.ndim = param->ndim;
	memcpy(range->tensor.shape, param->shape, sizeof param->shape);
}

/* Appends what only one rank saves of each parameter. */
static void saved_items_add_params(struct saved_items *items, const tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;

	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		if (trainer->rank > 0 || !param->part.is_counted || param->part.piece > 0)
			continue;
		if (param->part.whole == 0)
			saved_items_add_shape(items, trainer, param);
		add_whole(items, "optimizer", param->name, TUTTI_I32, 1,
			  &trainer->tensors[p].optimizer);
	}
}

/* Appends what is the same on all ranks, and rank 0's own. */
static void add_common(struct saved_items *items, const tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;

	for (int b = 0; b < model->buffer_count; b++)
		add_whole(items, "buffer", model->buffers[b].name, model->buffers[b].dtype,
			  model->buffers[b].count, model->buffers[b].data);
	add_whole(items, "trainer", "counts", TUTTI_I64, COUNTS, items->counts);
	add_whole(items, "trainer", "scale", TUTTI_F64, SCALES, items->scales);
}

static void add_states(struct saved_items *items, const tutti_trainer *trainer)
{
	char kind[CHECKPOINT_KIND_BYTES];

	for (int s = 0; s < trainer->model.state_count; s++) {
		const struct state *state = &trainer->model.states[s];
		if (!state->per_rank && trainer->job.rank > 0)
			continue;
		saved_state_kind(kind, state, trainer->job.rank);
		add_whole(items, kind, state->name, TUTTI_U8, state->bytes, state->data);
	}
}

void saved_items_free(struct saved_items *items)
{
	free(items->ranges);
	free(items->values);
	free(items->pieces);
}

tutti_status saved_items_list(struct saved_items *items, const tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;
	const struct loss_scale *scale = &trainer->scale;

	*items = (struct saved_items){
		.room = 4 * (size_t)trainer->piece_count + 2 * (size_t)model->param_count +
			(size_t)model->buffer_count + (size_t)model->state_count + 2,
		.counts = {(int64_t)trainer->steps, (int64_t)trainer->updates},
		.scales = {(double)scale->factor, scale->good_steps, (double)scale->divisor,
			   scale->is_known}};
	items->ranges = calloc(items->room, sizeof *items->ranges);
	items->values = calloc(items->room, sizeof *items->values);
	items->pieces = calloc(items->room, sizeof *items->pieces);
	if (!items->ranges || !items->values || !items->pieces) {
		saved_items_free(items);
		return fail_no_memory("the list of what is saved");
	}
	saved_items_add_pieces(items, trainer);
	saved_items_add_params(items, trainer);
	if (trainer->job.rank == 0)
		add_common(items, trainer);
	add_states(items, trainer);
	return TUTTI_OK;
}
