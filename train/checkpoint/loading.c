/* tutti_load: rank 0 finds the checkpoint, all ranks check that it fits the model before anything
 * is changed, and each rank reads what it holds. tutti_import_safetensors: the same of one file. */
#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/safetensors.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- values from files into pieces: params_begin_write comes before, params_publish after ---- */

/* A tensor in a file, of any type of floats up to 64 bits. */
struct stored_tensor {
	/* Reads elements [first, first + count) of its order, in dtype. */
	tutti_status (*read)(void *file, const void *tensor, uint64_t first, uint64_t count,
			     void *values);
	void *file;
	const void *tensor; /* NULL: the file does not have it */
	tutti_dtype dtype;
	struct tensor_order order;
};

enum { CHUNK = 8192 };

/* INVALID: "function: 'path' does not fit this model: what 'name' why." */
static tutti_status loading_restore_misfit(const char *function, const char *path, const char *what,
					   const char *name, const char *why)
{
	return fail_invalid("%s: '%s' does not fit this model: %s '%s' %s.", function,
			    path_shown(path), what, name, why);
}

static bool loading_is_float(int dtype)
{
	return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 ||
	       dtype == TUTTI_BF16;
}

/* Why values of this shape and type, a tutti_dtype or -1, are not those of the parameter, as
 * loading_restore_misfit says it, or NULL. */
static const char *loading_restore_difference(const struct param *param, int ndim,
					      const int64_t *shape, int dtype)
{
	if (ndim != param->ndim || memcmp(shape, param->shape, (size_t)ndim * sizeof *shape) != 0)
		return "has another shape there";
	return loading_is_float(dtype) ? NULL : "is not of F32, F64, F16 or BF16 there";
}

/* Reads elements that follow each other in stored, as f32. */
static tutti_status loading_read_run(const struct stored_tensor *stored, uint64_t first,
				     size_t count, float *values)
{
	double raw[CHUNK];

	assert(count <= CHUNK && loading_is_float((int)stored->dtype));
	if (stored->dtype == TUTTI_F32)
		return stored->read(stored->file, stored->tensor, first, count, values);
	TRY(stored->read(stored->file, stored->tensor, first, count, raw));
	if (stored->dtype != TUTTI_F64) {
		kernel_convert(values, TUTTI_F32, raw, stored->dtype, count);
		return TUTTI_OK;
	}
	for (size_t i = 0; i < count; i++)
		values[i] = (float)raw[i];
	return TUTTI_OK;
}

/* Reads elements [first, first + count) of the piece, as f32, at most CHUNK of them. */
static tutti_status loading_read_floats(const tutti_trainer *trainer, const struct piece *piece,
					const struct stored_tensor *stored, size_t first,
					size_t count, float *values)
{
	const struct param *param = &trainer->model.params[piece->param];

	for (size_t done = 0, run; done < count; done += run) {
		size_t own = param->part.first + piece->first + first + done;
		size_t place = order_map(param->part.order, stored->order, param->ndim,
					 param->shape, own, &run);
		run = smaller(run, count - done);
		TRY(loading_read_run(stored, place, run, values + done));
	}
	return TUTTI_OK;
}

/* Beside the kinds of state: the rounded values alone. Numbers of their type do not change on the
 * way through f32. */
enum { RESTORE_LOW = STATES };

/* which: STATE_MASTER: the values and what is rounded from them. */
static void loading_restore_set(tutti_trainer *trainer, const struct piece *piece, int which,
				size_t first, size_t count, const float *values)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (which == STATE_MASTER) {
		piece_write(trainer, piece, first, count, values);
	} else if (which == RESTORE_LOW) {
		values_write(piece->home, element_at(piece->low, dtype, first), dtype, values,
			     count);
	} else {
		piece_set(piece, (which == STATE_M ? piece->m : piece->v) + first, count, values);
		state_let_go(trainer, piece, first, count);
	}
}

/* Zeros, if the file does not have them. */
static tutti_status loading_restore_piece(tutti_trainer *trainer, const struct piece *piece,
					  int which, const struct stored_tensor *stored)
{
	float values[CHUNK] = {0};

	for (size_t done = 0, n; done < piece->count; done += n) {
		n = smaller(CHUNK, piece->count - done);
		if (stored->tensor)
			TRY(loading_read_floats(trainer, piece, stored, done, n, values));
		loading_restore_set(trainer, piece, which, done, n, values);
	}
	return TUTTI_OK;
}

/* Sets STATE_M or STATE_V of the piece, if it or the file has that. */
static tutti_status loading_restore_state(tutti_trainer *trainer, struct piece *piece, int which,
					  const struct stored_tensor *stored)
{
	if (stored->tensor)
		TRY(state_make(trainer, piece, which));
	return (which == STATE_M ? piece->m : piece->v)
		       ? loading_restore_piece(trainer, piece, which, stored)
		       : TUTTI_OK;
}

/* ---- checks: does the checkpoint fit the model, and are its numbers possible? ---- */

/* A checkpoint that is being loaded. */
struct loading {
	tutti_trainer *trainer;
	struct checkpoint *checkpoint;
	const char *path;
	int32_t *optimizers; /* these numbers are read and checked before anything is changed */
	int64_t counts[COUNTS];
	double scales[SCALES];
};

static tutti_status loading_load_check_misfit(const struct loading *in, const char *what,
					      const char *name, const char *why)
{
	return loading_restore_misfit("tutti_load", in->path, what, name, why);
}

/* NULL: the checkpoint does not have it. */
static const struct checkpoint_tensor *loading_load_find(const struct loading *in, const char *kind,
							 const char *name)
{
	return checkpoint_index_find(checkpoint_index_of(in->checkpoint), kind, name);
}

static tutti_status loading_load_check_param(const struct loading *in, const struct param *param)
{
	static const char *const kinds[] = {"param", "m", "v"};

	for (int k = 0; k < 3; k++) {
		const struct checkpoint_tensor *tensor =
			loading_load_find(in, kinds[k], param->name);
		if (!tensor && k == 0)
			return loading_load_check_misfit(in, "parameter", param->name,
							 "is not in it");
		if (!tensor)
			continue;
		const char *why = loading_restore_difference(param, tensor->ndim, tensor->shape,
							     (int)tensor->dtype);
		if (why)
			return loading_load_check_misfit(in, "parameter", param->name, why);
	}
	return TUTTI_OK;
}

/* Finds parameters that the model does not have. */
static tutti_status loading_load_check_names(const struct loading *in)
{
	const struct checkpoint_index *index = checkpoint_index_of(in->checkpoint);
	int params = 0;

	for (size_t i = 0; i < index->tensor_count; i++)
		params += strcmp(index->tensors[i].kind, "param") == 0;
	if (params == trainer_whole(in->trainer)->param_count)
		return TUTTI_OK;
	return fail_invalid("tutti_load: '%s' does not fit this model: it has %d "
			    "parameters, the model has %d of them.",
			    path_shown(in->path), params, trainer_whole(in->trainer)->param_count);
}

static tutti_status loading_check_flat(const struct loading *in, const char *what, const char *kind,
				       const char *name, tutti_dtype dtype, size_t count)
{
	const struct checkpoint_tensor *tensor = loading_load_find(in, kind, name);

	if (!tensor)
		return loading_load_check_misfit(in, what, name, "is not in it");
	if (tensor->dtype != dtype || tensor->count != count)
		return loading_load_check_misfit(in, what, name, "has another size or type there");
	return TUTTI_OK;
}

static tutti_status loading_load_check_state(const struct loading *in, const struct state *state)
{
	int ranks = checkpoint_index_of(in->checkpoint)->world_size;
	char kind[CHECKPOINT_KIND_BYTES];

	if (state->per_rank && ranks != in->trainer->job.size)
		return fail_invalid("tutti_load: the state '%s' is per rank, and the checkpoint "
				    "'%s' is of %d ranks, not %d: use as many ranks.",
				    state->name, path_shown(in->path), ranks,
				    in->trainer->job.size);
	saved_state_kind(kind, state, in->trainer->job.rank);
	return loading_check_flat(in, "state", kind, state->name, TUTTI_U8, state->bytes);
}

static tutti_status checkpoint_load_check(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++)
		TRY(loading_load_check_param(in, &model->params[p]));
	TRY(loading_load_check_names(in));
	for (int b = 0; b < model->buffer_count; b++)
		TRY(loading_check_flat(in, "buffer", "buffer", model->buffers[b].name,
				       model->buffers[b].dtype, model->buffers[b].count));
	for (int s = 0; s < model->state_count; s++)
		TRY(loading_load_check_state(in, &model->states[s]));
	TRY(loading_check_flat(in, "the trainer's", "trainer", "counts", TUTTI_I64, COUNTS));
	return loading_check_flat(in, "the trainer's", "trainer", "scale", TUTTI_F64, SCALES);
}

/* Reads all values of a tensor that is there. */
static tutti_status loading_load_whole(const struct loading *in, const char *kind, const char *name,
				       void *values)
{
	const struct checkpoint_tensor *tensor = loading_load_find(in, kind, name);
	return checkpoint_read(in->checkpoint, tensor, 0, tensor->count, values);
}

static tutti_status loading_load_check_number(const struct loading *in, bool is_right,
					      const char *kind, const char *name, double value,
					      const char *meaning)
{
	char file[CHECKPOINT_FILE_BYTES];

	if (is_right)
		return TUTTI_OK;
	checkpoint_file_name(file, loading_load_find(in, kind, name)->pieces[0].rank,
			     checkpoint_index_of(in->checkpoint)->world_size);
	return fail_invalid("tutti_load: the checkpoint '%s' is damaged: '%s' (%s) in %s is "
			    "%.17g, not %s. Remove the folder to load the checkpoint before it.",
			    path_shown(in->path), name, kind, file, value, meaning);
}

static tutti_status loading_read_optimizers(struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	in->optimizers = calloc((size_t)model->param_count + 1, sizeof *in->optimizers);
	if (!in->optimizers)
		return fail_no_memory("reading '%s'", path_shown(in->path));
	for (int p = 0; p < model->param_count; p++) {
		const char *name = model->params[p].name;
		int32_t *kind = &in->optimizers[p];
		TRY(loading_check_flat(in, "the optimizer of", "optimizer", name, TUTTI_I32, 1));
		TRY(loading_load_whole(in, "optimizer", name, kind));
		TRY(loading_load_check_number(
			in, *kind == -1 || *kind == TUTTI_ADAMW || *kind == TUTTI_SGD, "optimizer",
			name, *kind, "a kind of optimizer, or -1 for none"));
	}
	return TUTTI_OK;
}

static tutti_status loading_read_counts(struct loading *in)
{
	static const char *const meanings[COUNTS] = {"a number of steps", "a number of updates"};

	TRY(loading_load_whole(in, "trainer", "counts", in->counts));
	for (int i = 0; i < COUNTS; i++)
		TRY(loading_load_check_number(in, in->counts[i] >= 0, "trainer", "counts",
					      (double)in->counts[i], meanings[i]));
	return TUTTI_OK;
}

/* True if x is positive and finite as an f32. */
static bool loading_is_positive(double x)
{
	return x >= (double)FLT_TRUE_MIN && x <= (double)FLT_MAX;
}

static tutti_status loading_read_scale(struct loading *in)
{
	const double *scales = in->scales;

	TRY(loading_load_whole(in, "trainer", "scale", in->scales));
	TRY(loading_load_check_number(in, loading_is_positive(scales[0]), "trainer", "scale",
				      scales[0], "a finite and positive loss scale"));
	TRY(loading_load_check_number(in, scales[1] >= 0 && scales[1] <= INT_MAX, "trainer",
				      "scale", scales[1], "a number of good steps"));
	TRY(loading_load_check_number(in, loading_is_positive(scales[2]), "trainer", "scale",
				      scales[2], "a finite and positive divisor"));
	double both = scales[0] / scales[2];
	return loading_load_check_number(in, loading_is_positive(both), "trainer", "scale", both,
					 "a finite and positive loss scale over its divisor");
}

/* Checks that the checkpoint fits the model, and reads its numbers. Does not change the trainer. */
static tutti_status loading_load_check(struct loading *in)
{
	TRY(checkpoint_load_check(in));
	TRY(loading_read_optimizers(in));
	TRY(loading_read_counts(in));
	return loading_read_scale(in);
}

static tutti_status loading_read_tensor(void *checkpoint, const void *tensor, uint64_t first,
					uint64_t count, void *values)
{
	return checkpoint_read(checkpoint, tensor, first, count, values);
}

static struct stored_tensor loading_stored(const struct loading *in, const char *kind,
					   const char *name)
{
	const struct checkpoint_tensor *tensor = loading_load_find(in, kind, name);

	return (struct stored_tensor){loading_read_tensor, in->checkpoint, tensor,
				      tensor ? tensor->dtype : TUTTI_F32,
				      tensor ? tensor->order : (struct tensor_order){0, 0}};
}

static tutti_status loading_load_piece(const struct loading *in, struct piece *piece)
{
	const tutti_train_config *config = &in->trainer->config;
	const char *name = in->trainer->model.params[piece->param].name;
	struct stored_tensor param = loading_stored(in, "param", name),
			     low = loading_stored(in, "low", name);
	struct stored_tensor m = loading_stored(in, "m", name), v = loading_stored(in, "v", name);

	TRY(loading_restore_piece(in->trainer, piece, STATE_MASTER, &param));
	/* Stochastic rounding is not repeated. */
	if (piece->low && config->stochastic_rounding && low.tensor &&
	    low.dtype == config->param_dtype)
		TRY(loading_restore_piece(in->trainer, piece, RESTORE_LOW, &low));
	if (!piece->sum)
		return TUTTI_OK;
	TRY(loading_restore_state(in->trainer, piece, STATE_M, &m));
	return loading_restore_state(in->trainer, piece, STATE_V, &v);
}

static void loading_set_numbers(const struct loading *in)
{
	tutti_trainer *trainer = in->trainer;
	const struct loss_scale scale = {.factor = (float)in->scales[0],
					 .divisor = (float)in->scales[2],
					 .good_steps = (int)in->scales[1],
					 .is_known = in->scales[3] != 0};

	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].optimizer = in->optimizers[p];
	trainer->steps = (uint64_t)in->counts[0];
	trainer->owes_update = trainer->local.needs_average = trainer->step.may_finish = false;
	trainer->local.missed = -1;
	trainer->local.failed = (struct kept_error){0};
	trainer->updates = (uint64_t)in->counts[1];
	trainer->skipped_param = -1;
	loss_scale_resume(&trainer->scale, &trainer->config, &scale);
}

static tutti_status loading_load_callers(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;
	char kind[CHECKPOINT_KIND_BYTES];

	for (int b = 0; b < model->buffer_count; b++)
		TRY(loading_load_whole(in, "buffer", model->buffers[b].name,
				       model->buffers[b].data));
	for (int s = 0; s < model->state_count; s++) {
		saved_state_kind(kind, &model->states[s], in->trainer->job.rank);
		TRY(loading_load_whole(in, kind, model->states[s].name, model->states[s].data));
	}
	return TUTTI_OK;
}

static tutti_status loading_load_all(const struct loading *in)
{
	for (int i = 0; i < in->trainer->piece_count; i++)
		TRY(loading_load_piece(in, &in->trainer->pieces[i]));
	loading_set_numbers(in);
	return loading_load_callers(in);
}

static tutti_status loading_load_open(struct loading *in)
{
	tutti_trainer *trainer = in->trainer;

	TRY(job_agree(trainer, loading_load_check(in)));
	TRY(params_begin_write(trainer));
	TRY(job_agree(trainer, loading_load_all(in)));
	return params_publish(trainer);
}

static tutti_status loading_load(tutti_trainer *trainer, const char *path)
{
	struct loading in = {.trainer = trainer, .path = path};
	tutti_status status = job_agree(trainer, checkpoint_open(&in.checkpoint, path));

	if (status == TUTTI_OK)
		status = loading_load_open(&in);
	checkpoint_close(in.checkpoint);
	free(in.optimizers);
	return status;
}

/* Rank 0 may know the folder by another name than this rank. */
static tutti_status loading_load_found(tutti_trainer *trainer, const char *dir,
				       const struct checkpoint_found *found)
{
	char path[DISK_PATH_BYTES];

	if (!found->path[0])
		return TUTTI_OK;
	tutti_status status =
		disk_path(path, "%s%s", dir, found->is_dir ? "" : strrchr(found->path, '/'));
	if (status == TUTTI_OK)
		status = checkpoint_keep_dir(trainer, dir);
	TRY(job_agree(trainer, status));
	return loading_load(trainer, path);
}

tutti_status tutti_load(tutti_trainer *trainer, const char *dir, int64_t *step)
{
	struct checkpoint_found found;

	TRY(trainer_check_closed(trainer, "tutti_load"));
	TRY(jansson_needed());
	if (!dir || !step)
		return fail_invalid(
			"tutti_load needs a folder and a place for the step, not NULL.");
	TRY(tutti_save_wait(trainer));
	TRY(job_agree(trainer,
		      trainer->job.rank > 0 ? TUTTI_OK : checkpoint_dir_find(&found, dir)));
	TRY(job_broadcast(trainer, &found, sizeof found, TUTTI_U8, 0));
	TRY(loading_load_found(trainer, dir, &found));
	*step = found.step;
	if (found.passed_over > 0) /* tutti_comm_error(NULL) has the reason */
		fail(TUTTI_OK, "%d newer checkpoints are damaged and were passed over. %s",
		     found.passed_over, found.message);
	return TUTTI_OK;
}

/* ---- import ---- */

/* tutti_import_safetensors: parameters, and the buffers that are there, from one file of any
 * origin. Each rank reads what it holds. Other tensors of the file are ignored. */

struct importing {
	tutti_trainer *trainer;
	const char *path;
	struct safetensors file;
	int fd;
};

static tutti_status loading_importing_misfit(const struct importing *in, const char *what,
					     const char *name, const char *why)
{
	return loading_restore_misfit("tutti_import_safetensors", in->path, what, name, why);
}

static tutti_status loading_importing_check(const struct importing *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		const struct safetensor *tensor = safetensors_find(&in->file, param->name);
		const char *why =
			tensor ? loading_restore_difference(param, tensor->ndim, tensor->shape,
							    tensor->type->dtype)
			       : "is not in it";
		if (why)
			return loading_importing_misfit(in, "parameter", param->name, why);
	}
	return TUTTI_OK;
}

static tutti_status loading_importing_read_tensor(void *file, const void *from, uint64_t first,
						  uint64_t count, void *values)
{
	const struct importing *in = file;
	const struct safetensor *tensor = from;
	uint64_t width = tensor->type->bits / 8;

	return disk_read(in->fd, in->path, values, (size_t)(count * width),
			 in->file.data_at + tensor->begin + first * width);
}

static tutti_status loading_import_buffer(struct importing *in, const struct buffer *buffer)
{
	const struct safetensor *tensor = safetensors_find(&in->file, buffer->name);

	if (!tensor)
		return TUTTI_OK;
	if (tensor->type->dtype != (int)buffer->dtype ||
	    tensor->end - tensor->begin != buffer->count * dtype_bytes(buffer->dtype))
		return loading_importing_misfit(in, "buffer", buffer->name,
						"has another size or type there");
	return loading_importing_read_tensor(in, tensor, 0, buffer->count, buffer->data);
}

static tutti_status loading_import_all(struct importing *in)
{
	tutti_trainer *trainer = in->trainer;

	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const char *name = trainer->model.params[piece->param].name;
		const struct safetensor *tensor = safetensors_find(&in->file, name);
		struct stored_tensor stored = {loading_importing_read_tensor,
					       in,
					       tensor,
					       (tutti_dtype)tensor->type->dtype,
					       {0, 0}};
		TRY(loading_restore_piece(trainer, piece, STATE_MASTER, &stored));
	}
	for (int b = 0; b < trainer->model.buffer_count; b++)
		TRY(loading_import_buffer(in, &trainer->model.buffers[b]));
	return TUTTI_OK;
}

static tutti_status loading_importing_open_file(struct importing *in)
{
	uint64_t bytes = 0;

	TRY(disk_open(&in->fd, &bytes, in->path));
	TRY(safetensors_read(&in->file, in->fd, bytes, in->path));
	return loading_importing_check(in);
}

static tutti_status loading_importing_import(struct importing *in)
{
	TRY(job_agree(in->trainer, loading_importing_open_file(in)));
	TRY(params_begin_write(in->trainer));
	TRY(job_agree(in->trainer, loading_import_all(in)));
	return params_publish(in->trainer);
}

tutti_status tutti_import_safetensors(tutti_trainer *trainer, const char *file)
{
	struct importing in = {.trainer = trainer, .path = file, .fd = -1};

	TRY(trainer_check_closed(trainer, "tutti_import_safetensors"));
	TRY(jansson_needed());
	if (!file)
		return fail_invalid("tutti_import_safetensors needs a file's name, not NULL.");
	tutti_status status = loading_importing_import(&in);
	if (in.fd >= 0)
		close(in.fd);
	safetensors_finish(&in.file);
	return status;
}
