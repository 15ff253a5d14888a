/* tutti_load: rank 0 finds the checkpoint, all ranks check that it fits the model before anything
 * is changed, and each rank reads what it holds. */
#include "train/base/train_error.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/disk.h"
#include "train/checkpoint/jansson_needed.h"
#include "train/checkpoint/restore.h"
#include "train/checkpoint/saved_items.h"
#include "train/precision/loss_scale.h"
#include "train/state/pieces.h"
#include "train/state/trainer_collectives.h"

#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The checkpoint that rank 0 has found. */
struct found {
	int32_t is_there, passed_over;
	int64_t step;
	char name[CHECKPOINT_NAME_BYTES]; /* below dir */
	char message[512];                /* what is wrong with newer ones */
};

/* A checkpoint that is being loaded. */
struct loading {
	tutti_trainer *trainer;
	struct checkpoint *checkpoint;
	const char *path;
	int32_t *optimizers; /* these numbers are read and checked before anything is changed */
	int64_t counts[COUNTS];
	double scales[SCALES];
};

static tutti_status misfit(const struct loading *in, const char *what, const char *name,
			   const char *why)
{
	return train_fail(TUTTI_ERR_INVALID,
			  "tutti_load: the checkpoint '%s' does not fit this model: %s '%s' %s.",
			  path_shown(in->path), what, name, why);
}

static const struct checkpoint_tensor *tensor_of(const struct loading *in, const char *kind,
						 const char *name)
{
	return checkpoint_find(in->checkpoint, kind, name);
}

static tutti_status check_param(const struct loading *in, const struct param *param)
{
	static const char *const kinds[] = {"param", "m", "v"};

	for (int k = 0; k < 3; k++) {
		const struct checkpoint_tensor *tensor = tensor_of(in, kinds[k], param->name);
		if (!tensor && k == 0)
			return misfit(in, "parameter", param->name, "is not in it");
		if (!tensor)
			continue;
		if (tensor->ndim != param->ndim ||
		    memcmp(tensor->shape, param->shape,
			   (size_t)param->ndim * sizeof *param->shape) != 0)
			return misfit(in, "parameter", param->name, "has another shape there");
		if (!restore_takes((int)tensor->dtype))
			return misfit(in, "parameter", param->name, "is not of floats there");
	}
	return TUTTI_OK;
}

/* Finds parameters that the model does not have. */
static tutti_status check_names(const struct loading *in)
{
	const struct checkpoint_index *index = checkpoint_index_of(in->checkpoint);
	const struct tutti_model *model = &in->trainer->model;
	int params = 0;

	for (size_t i = 0; i < index->tensor_count; i++)
		params += strcmp(index->tensors[i].kind, "param") == 0;
	if (params == model->param_count)
		return TUTTI_OK;
	return train_fail(TUTTI_ERR_INVALID,
			  "tutti_load: the checkpoint '%s' does not fit this model: it has %d "
			  "parameters, the model has %d of them.",
			  path_shown(in->path), params, model->param_count);
}

static tutti_status check_flat(const struct loading *in, const char *what, const char *kind,
			       const char *name, tutti_dtype dtype, size_t count)
{
	const struct checkpoint_tensor *tensor = tensor_of(in, kind, name);

	if (!tensor)
		return misfit(in, what, name, "is not in it");
	if (tensor->dtype != dtype || tensor->count != count)
		return misfit(in, what, name, "has another size or type there");
	return TUTTI_OK;
}

static tutti_status check_state(const struct loading *in, const struct state *state)
{
	int ranks = checkpoint_index_of(in->checkpoint)->world_size;
	char kind[CHECKPOINT_KIND_BYTES];

	if (state->per_rank && ranks != in->trainer->size)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_load: the state '%s' is per rank, and the checkpoint '%s' "
				  "is of %d ranks, not %d: use as many ranks.",
				  state->name, path_shown(in->path), ranks, in->trainer->size);
	saved_state_kind(kind, state, in->trainer->rank);
	return check_flat(in, "state", kind, state->name, TUTTI_U8, state->bytes);
}

static tutti_status check(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++)
		TRY(check_param(in, &model->params[p]));
	TRY(check_names(in));
	for (int b = 0; b < model->buffer_count; b++)
		TRY(check_flat(in, "buffer", "buffer", model->buffers[b].name,
			       model->buffers[b].dtype, model->buffers[b].count));
	for (int s = 0; s < model->state_count; s++)
		TRY(check_state(in, &model->states[s]));
	TRY(check_flat(in, "the trainer's", "trainer", "counts", TUTTI_I64, COUNTS));
	return check_flat(in, "the trainer's", "trainer", "scale", TUTTI_F64, SCALES);
}

static tutti_status read_flat(const struct loading *in, const char *kind, const char *name,
			      void *values)
{
	const struct checkpoint_tensor *tensor = tensor_of(in, kind, name);
	return checkpoint_read(in->checkpoint, tensor, 0, tensor->count, values);
}

static tutti_status check_number(const struct loading *in, bool is_right, const char *kind,
				 const char *name, double value, const char *meaning)
{
	char file[CHECKPOINT_FILE_BYTES];

	if (is_right)
		return TUTTI_OK;
	checkpoint_file_name(file, tensor_of(in, kind, name)->pieces[0].rank,
			     checkpoint_index_of(in->checkpoint)->world_size);
	return train_fail(TUTTI_ERR_INVALID,
			  "tutti_load: the checkpoint '%s' is damaged: '%s' (%s) in %s is %.17g, "
			  "not %s. Remove the folder to load the checkpoint before it.",
			  path_shown(in->path), name, kind, file, value, meaning);
}

static tutti_status read_optimizers(struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	in->optimizers = calloc((size_t)model->param_count + 1, sizeof *in->optimizers);
	if (!in->optimizers)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory to read '%s'.",
				  path_shown(in->path));
	for (int p = 0; p < model->param_count; p++) {
		const char *name = model->params[p].name;
		int32_t *kind = &in->optimizers[p];
		TRY(check_flat(in, "the optimizer of", "optimizer", name, TUTTI_I32, 1));
		TRY(read_flat(in, "optimizer", name, kind));
		TRY(check_number(in, *kind == -1 || *kind == TUTTI_ADAMW || *kind == TUTTI_SGD,
				 "optimizer", name, *kind, "a kind of optimizer, or -1 for none"));
	}
	return TUTTI_OK;
}

static tutti_status read_counts(struct loading *in)
{
	static const char *const meanings[COUNTS] = {"a number of steps", "a number of updates"};

	TRY(read_flat(in, "trainer", "counts", in->counts));
	for (int i = 0; i < COUNTS; i++)
		TRY(check_number(in, in->counts[i] >= 0, "trainer", "counts", (double)in->counts[i],
				 meanings[i]));
	return TUTTI_OK;
}

/* True if x is positive and finite as an f32. */
static bool is_positive(double x)
{
	return x >= (double)FLT_TRUE_MIN && x <= (double)FLT_MAX;
}

static tutti_status read_scale(struct loading *in)
{
	const double *scales = in->scales;

	TRY(read_flat(in, "trainer", "scale", in->scales));
	TRY(check_number(in, is_positive(scales[0]), "trainer", "scale", scales[0],
			 "a finite and positive loss scale"));
	TRY(check_number(in, scales[1] >= 0 && scales[1] <= INT_MAX, "trainer", "scale", scales[1],
			 "a number of good steps"));
	TRY(check_number(in, is_positive(scales[2]), "trainer", "scale", scales[2],
			 "a finite and positive divisor"));
	double both = scales[0] / scales[2];
	return check_number(in, is_positive(both), "trainer", "scale", both,
			    "a finite and positive loss scale over its divisor");
}

static tutti_status check_all(struct loading *in)
{
	TRY(check(in));
	TRY(read_optimizers(in));
	TRY(read_counts(in));
	return read_scale(in);
}

struct load_source {
	struct checkpoint *checkpoint;
	const struct checkpoint_tensor *tensor;
};

static tutti_status read_one(void *from, uint64_t first, uint64_t count, void *values)
{
	const struct load_source *one = from;
	return checkpoint_read(one->checkpoint, one->tensor, first, count, values);
}

/* False if there is no such tensor. */
static bool stored_of(const struct loading *in, struct stored_tensor *stored,
		      struct load_source *one, const char *kind, const char *name)
{
	*one = (struct load_source){in->checkpoint, tensor_of(in, kind, name)};
	if (!one->tensor)
		return false;
	*stored = (struct stored_tensor){read_one, one, one->tensor->dtype};
	return true;
}

static tutti_status load_piece(const struct loading *in, struct piece *piece)
{
	const char *name = in->trainer->model.params[piece->param].name;
	tutti_dtype low = in->trainer->config.param_dtype;
	struct stored_tensor stored;
	struct load_source one;

	stored_of(in, &stored, &one, "param", name);
	TRY(restore_piece(in->trainer, piece, &stored));
	/* Stochastic rounding is not repeated. */
	if (piece->low && in->trainer->config.stochastic_rounding &&
	    stored_of(in, &stored, &one, "low", name) && stored.dtype == low)
		TRY(read_one(&one, piece->first, piece->count, piece->low));
	if (!piece->sum)
		return TUTTI_OK;
	bool has_m = stored_of(in, &stored, &one, "m", name);
	TRY(restore_state(in->trainer, piece, STATE_M, has_m ? &stored : NULL));
	bool has_v = stored_of(in, &stored, &one, "v", name);
	return restore_state(in->trainer, piece, STATE_V, has_v ? &stored : NULL);
}

static void set_numbers(const struct loading *in)
{
	tutti_trainer *trainer = in->trainer;
	struct loss_scale *scale = &trainer->scale;

	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].optimizer = in->optimizers[p];
	trainer->steps = (uint64_t)in->counts[0];
	trainer->owes_update = trainer->needs_average = false;
	trainer->missed = -1;
	trainer->missed_status = TUTTI_OK;
	trainer->updates = (uint64_t)in->counts[1];
	trainer->skipped_param = -1;
	if (trainer->config.loss_scale < 0) { /* a fixed scale comes from the config */
		scale->factor = (float)in->scales[0];
		scale->good_steps = (int)in->scales[1];
	}
	scale->divisor = (float)in->scales[2];
	scale->is_known = in->scales[3] != 0;
}

static tutti_status load_callers(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;
	char kind[CHECKPOINT_KIND_BYTES];

	for (int b = 0; b < model->buffer_count; b++)
		TRY(read_flat(in, "buffer", model->buffers[b].name, model->buffers[b].data));
	for (int s = 0; s < model->state_count; s++) {
		saved_state_kind(kind, &model->states[s], in->trainer->rank);
		TRY(read_flat(in, kind, model->states[s].name, model->states[s].data));
	}
	return TUTTI_OK;
}

static tutti_status load_all(const struct loading *in)
{
	for (int i = 0; i < in->trainer->piece_count; i++)
		TRY(load_piece(in, &in->trainer->pieces[i]));
	set_numbers(in);
	return load_callers(in);
}

static tutti_status find(struct found *found, const char *dir)
{
	struct checkpoint_found here;

	TRY(checkpoint_dir_find(&here, dir));
	found->is_there = here.path != NULL;
	found->passed_over = here.passed_over;
	found->step = here.step;
	if (here.path)
		snprintf(found->name, sizeof found->name, "%s", strrchr(here.path, '/') + 1);
	memcpy(found->message, here.message, sizeof found->message);
	free(here.path);
	return TUTTI_OK;
}

static tutti_status load_open(struct loading *in)
{
	tutti_trainer *trainer = in->trainer;

	TRY(trainer_agree(trainer, check_all(in)));
	TRY(restore_begin(trainer, "tutti_load"));
	TRY(trainer_agree(trainer, load_all(in)));
	return restore_end(trainer);
}

static tutti_status load(tutti_trainer *trainer, const char *dir, const struct found *found)
{
	char *path = disk_join(dir, found->name);
	struct loading in = {.trainer = trainer, .path = path};
	tutti_status status = path ? checkpoint_open(&in.checkpoint, path) : TUTTI_ERR_MEMORY;

	status = trainer_agree(trainer, status);
	if (status == TUTTI_OK)
		status = load_open(&in);
	checkpoint_close(in.checkpoint);
	free(in.optimizers);
	free(path);
	return status;
}

tutti_status tutti_load(tutti_trainer *trainer, const char *dir, int64_t *step)
{
	struct found found = {.step = -1};

	TRY(trainer_check_closed(trainer, "tutti_load"));
	TRY(jansson_needed());
	if (!dir || !step)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_load needs a folder and a place for the step, not NULL.");
	TRY(tutti_save_wait(trainer));
	TRY(trainer_agree(trainer, trainer->rank == 0 ? find(&found, dir) : TUTTI_OK));
	TRY(trainer_broadcast(trainer, &found, sizeof found, TUTTI_U8, 0));
	if (found.is_there)
		TRY(load(trainer, dir, &found));
	*step = found.step;
	if (found.passed_over > 0) /* tutti_comm_error(NULL) has the reason */
		train_fail(TUTTI_OK, "%d newer checkpoints were passed over. %s", found.passed_over,
			   found.message);
	return TUTTI_OK;
}
