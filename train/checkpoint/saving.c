/* tutti_save and tutti_save_wait. Values are copied to the staging of each rank's file. When all
 * files are written, rank 0 commits the checkpoint. Each function has the same result on all ranks.
 */
#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/safetensors.h"
#include "train/precision/precision.h"
#include "train/state/trainer_state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list of ranges that a rank saves ---- */

struct saved_items {
	struct checkpoint_range *ranges;
	const void **values;         /* of each range */
	const struct piece **pieces; /* the range's piece, or NULL */
	size_t count, room;
	int64_t counts[COUNTS]; /* steps, updates */
	double scales[SCALES];  /* factor, good steps, divisor, is_known */
};

void saved_state_kind(char kind[CHECKPOINT_KIND_BYTES], const struct state *state, int rank)
{
	if (state->per_rank)
		snprintf(kind, CHECKPOINT_KIND_BYTES, "state.%d", rank);
	else
		strcpy(kind, "state");
}

/* Appends an empty range. */
static struct checkpoint_range *saving_saved_items_add(struct saved_items *items, const char *kind,
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
static void saving_add_whole(struct saved_items *items, const char *kind, const char *name,
			     tutti_dtype dtype, size_t count, const void *values)
{
	struct checkpoint_range *range = saving_saved_items_add(items, kind, name, dtype, values);

	range->tensor.ndim = 1;
	range->tensor.shape[0] = (int64_t)count;
	range->count = count;
}

/* The elements of the piece that this rank saves. Of optimizer state that differs between ranks
 * rank 0's is saved, because counts and loss scale are rank 0's too. */
static struct element_range saving_saved_share_of(const tutti_trainer *trainer,
						  const struct piece *piece, const void *values)
{
	bool is_state = values == piece->m || values == piece->v;

	if (is_state && trainer_is_local(trainer) && !trainer->config.local_sgd_state)
		return (struct element_range){0, trainer->rank == 0 ? piece->count : 0};
	return (struct element_range){piece->save_first, piece->save_first + piece->save_count};
}

/* The order in which a parameter is saved. A split into more pieces than rows has the same order as
 * one into as many pieces as rows: its last pieces have no elements. */
static struct tensor_order saving_saved_order_of(const struct param *param)
{
	struct tensor_order order = param->part.order;

	if (order.parts > 1 && order.parts > param->shape[order.dim])
		order.parts = (int)param->shape[order.dim];
	return order;
}

/* Appends this rank's share of the values, which begin with the piece's first element. */
static void saving_add_share(struct saved_items *items, const tutti_trainer *trainer,
			     const struct piece *piece, const char *kind, tutti_dtype dtype,
			     const void *values)
{
	const struct param *param = &trainer->model.params[piece->param];

	if (!values || !param->part.is_counted)
		return;
	struct element_range share = saving_saved_share_of(trainer, piece, values);
	items->pieces[items->count] = piece;
	struct checkpoint_range *range =
		saving_saved_items_add(items, kind, param->name, dtype,
				       (const char *)values + share.first * dtype_bytes(dtype));
	range->tensor.ndim = param->ndim;
	memcpy(range->tensor.shape, param->shape, sizeof param->shape);
	range->tensor.order = saving_saved_order_of(param);
	range->first = param->part.first + piece->first + share.first;
	range->count = share.last - share.first;
}

static void saving_saved_items_add_pieces(struct saved_items *items, const tutti_trainer *trainer)
{
	tutti_dtype low = trainer->config.param_dtype;

	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		if (piece->value)
			saving_add_share(items, trainer, piece, "param", TUTTI_F32, piece->value);
		else
			saving_add_share(items, trainer, piece, "param", low, piece->low);
		if (piece->value && trainer->config.stochastic_rounding)
			saving_add_share(items, trainer, piece, "low", low, piece->low);
		saving_add_share(items, trainer, piece, "m", TUTTI_F32, piece->m);
		saving_add_share(items, trainer, piece, "v", TUTTI_F32, piece->v);
	}
}

/* Saves the shape alone of a parameter without elements, of which no rank has a piece. */
static void saving_saved_items_add_shape(struct saved_items *items, const tutti_trainer *trainer,
					 const struct param *param)
{
	tutti_dtype dtype = param_is_trained(param) ? TUTTI_F32 : trainer->config.param_dtype;
	struct checkpoint_range *range =
		saving_saved_items_add(items, "param", param->name, dtype, NULL);

	range->tensor.ndim = param->ndim;
	memcpy(range->tensor.shape, param->shape, sizeof param->shape);
}

/* Appends what only one rank saves of each parameter. */
static void saving_saved_items_add_params(struct saved_items *items, const tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;

	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		if (trainer->rank > 0 || !param->part.is_counted || param->part.piece > 0)
			continue;
		if (param->part.whole == 0)
			saving_saved_items_add_shape(items, trainer, param);
		saving_add_whole(items, "optimizer", param->name, TUTTI_I32, 1,
				 &trainer->tensors[p].optimizer);
	}
}

/* Appends what is the same on all ranks, and rank 0's own. */
static void saving_add_common(struct saved_items *items, const tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;

	for (int b = 0; b < model->buffer_count; b++)
		saving_add_whole(items, "buffer", model->buffers[b].name, model->buffers[b].dtype,
				 model->buffers[b].count, model->buffers[b].data);
	saving_add_whole(items, "trainer", "counts", TUTTI_I64, COUNTS, items->counts);
	saving_add_whole(items, "trainer", "scale", TUTTI_F64, SCALES, items->scales);
}

static void saving_add_states(struct saved_items *items, const tutti_trainer *trainer)
{
	char kind[CHECKPOINT_KIND_BYTES];

	for (int s = 0; s < trainer->model.state_count; s++) {
		const struct state *state = &trainer->model.states[s];
		if (!state->per_rank && trainer->job.rank > 0)
			continue;
		saved_state_kind(kind, state, trainer->job.rank);
		saving_add_whole(items, kind, state->name, TUTTI_U8, state->bytes, state->data);
	}
}

static void saving_saved_items_free(struct saved_items *items)
{
	free(items->ranges);
	free(items->values);
	free(items->pieces);
}

/* The values stay where they are: the trainer's, the caller's and those of items. MEMORY leaves
 * nothing to free. */
static tutti_status saving_saved_items_list(struct saved_items *items, const tutti_trainer *trainer)
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
		saving_saved_items_free(items);
		return fail_no_memory("the list of what is saved");
	}
	saving_saved_items_add_pieces(items, trainer);
	saving_saved_items_add_params(items, trainer);
	if (trainer->job.rank == 0)
		saving_add_common(items, trainer);
	saving_add_states(items, trainer);
	return TUTTI_OK;
}

struct saving {
	struct checkpoint_dir dir; /* rank 0's */
	struct checkpoint_writer *save;
};

void checkpoint_abandon(tutti_trainer *trainer)
{
	struct saving *saving = trainer->saving;

	if (!saving)
		return;
	if (checkpoint_writer_destroy(saving->save)) /* else a file system that does not answer */
		checkpoint_dir_finish(&saving->dir);
	free(saving);
	trainer->saving = NULL;
}

tutti_status checkpoint_keep_dir(tutti_trainer *trainer, const char *dir)
{
	char *copy = strdup(dir);

	if (!copy)
		return fail_no_memory("a folder's name");
	free(trainer->checkpoint_dir);
	trainer->checkpoint_dir = copy;
	return TUTTI_OK;
}

/* ---- saving ---- */

/* The temporary directory that rank 0 has made, and for which step. */
struct folder {
	int64_t step;
	char temporary[CHECKPOINT_NAME_BYTES];
};

static tutti_status saving_make_folder(tutti_trainer *trainer, const char *dir, int64_t step,
				       struct folder *folder)
{
	tutti_status status = trainer->job.rank > 0
				      ? TUTTI_OK
				      : checkpoint_dir_make(&trainer->saving->dir, dir, step);

	TRY(job_agree(trainer, status));
	*folder = (struct folder){.step = step};
	strcpy(folder->temporary, trainer->saving->dir.temporary);
	TRY(job_broadcast(trainer, folder, sizeof *folder, TUTTI_U8, 0));
	if (folder->step != step)
		status = fail(TUTTI_ERR_MISMATCH,
			      "tutti_save: rank %d saves step %" PRId64
			      ", but rank 0 saves step %" PRId64 ".",
			      trainer->job.rank, step, folder->step);
	return job_agree(trainer, status);
}

/* Hands values over in portions, so that pages of mapped state can be let go, and those of a device
 * fit in host memory. */
static tutti_status saving_stage_range(tutti_trainer *trainer, const struct saved_items *items,
				       size_t i)
{
	const struct checkpoint_range *range = &items->ranges[i];
	const struct piece *piece = items->pieces[i];
	size_t width = dtype_bytes(range->tensor.dtype), count = (size_t)range->count;
	size_t held = piece ? trainer->model.params[piece->param].part.first : 0;
	const char *values = items->values[i];

	for (size_t done = 0, n; done < count; done += n) {
		n = smaller(count - done, VALUES_VIEW_BYTES / width);
		const void *portion = values + done * width;
		if (piece && !(piece->is_offloaded && items->values[i] != piece->low))
			portion = values_view(piece->home, portion, n * width);
		TRY(checkpoint_writer_values(trainer->saving->save, i, portion, n * width));
		if (piece)
			state_let_go(trainer, piece,
				     (size_t)range->first - held - piece->first + done, n);
	}
	return TUTTI_OK;
}

static tutti_status saving_stage(tutti_trainer *trainer, const char *dir,
				 const struct folder *folder)
{
	struct saved_items items;
	struct checkpoint_part part = {.dir = dir,
				       .temporary = folder->temporary,
				       .step = folder->step,
				       .rank = trainer->job.rank,
				       .world_size = trainer->job.size};

	TRY(saving_saved_items_list(&items, trainer));
	tutti_status status =
		checkpoint_writer_create(&trainer->saving->save, &part, items.ranges, items.count);
	for (size_t i = 0; status == TUTTI_OK && i < items.count; i++)
		status = saving_stage_range(trainer, &items, i);
	saving_saved_items_free(&items);
	return status == TUTTI_OK ? trainer_check(trainer, "tutti_save") : status;
}

static tutti_status saving_begin(tutti_trainer *trainer, const char *dir, int64_t step)
{
	struct folder folder;

	trainer->saving = calloc(1, sizeof *trainer->saving);
	TRY(job_agree(trainer, trainer->saving ? checkpoint_keep_dir(trainer, dir)
					       : fail_no_memory("saving a checkpoint")));
	TRY(saving_make_folder(trainer, dir, step, &folder));
	return job_agree(trainer, saving_stage(trainer, dir, &folder));
}

tutti_status tutti_save(tutti_trainer *trainer, const char *dir, int64_t step)
{
	TRY(trainer_check_closed(trainer, "tutti_save"));
	TRY(jansson_needed());
	if (!dir || step < 0)
		return fail_invalid("tutti_save needs a folder, and a step that is not negative.");
	TRY(trainer_check_averaged(trainer, "tutti_save"));
	TRY(tutti_save_wait(trainer));
	tutti_status status = saving_begin(trainer, dir, step);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		checkpoint_abandon(trainer);
		return kept_error_return(&why);
	}
	return TUTTI_OK;
}

/* Room for the texts of all ranks, on rank 0. */
static tutti_status saving_make_room(const tutti_trainer *trainer, char **texts,
				     const size_t *sizes)
{
	size_t sum = 0;

	for (int r = 0; r < trainer->job.size; r++)
		sum += sizes[r];
	if (trainer->job.rank == 0)
		*texts = malloc(sum);
	return trainer->job.rank > 0 || *texts
		       ? TUTTI_OK
		       : fail_no_memory("the indexes of %d ranks", trainer->job.size);
}

static tutti_status saving_commit(tutti_trainer *trainer, const char *text, size_t *sizes)
{
	char *all = NULL;
	tutti_status status = job_all_gather(trainer, sizes, sizeof *sizes);

	if (status == TUTTI_OK)
		status = job_agree(trainer, saving_make_room(trainer, &all, sizes));
	if (status == TUTTI_OK)
		status =
			tutti_gatherv(text, all, sizes, NULL, TUTTI_U8, 0, trainer->job.comm, NULL);
	if (status == TUTTI_OK)
		status = job_agree(trainer,
				   trainer->job.rank > 0
					   ? TUTTI_OK
					   : checkpoint_dir_commit(&trainer->saving->dir, all,
								   sizes, trainer->job.size));
	free(all);
	return status;
}

static tutti_status saving_finish(tutti_trainer *trainer)
{
	char *text = NULL;
	size_t *sizes = calloc((size_t)trainer->job.size, sizeof *sizes);
	tutti_status status = sizes ? checkpoint_writer_finish(trainer->saving->save, &text,
							       &sizes[trainer->job.rank])
				    : fail_no_memory("saving a checkpoint");

	status = job_agree(trainer, status);
	if (status == TUTTI_OK)
		status = saving_commit(trainer, text, sizes);
	free(text);
	free(sizes);
	return status;
}

tutti_status tutti_save_wait(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_save_wait"));
	if (!trainer->saving)
		return TUTTI_OK;
	tutti_status status = saving_finish(trainer);
	struct kept_error why = kept_error_of(status);
	checkpoint_abandon(trainer);
	return kept_error_return(&why);
}
