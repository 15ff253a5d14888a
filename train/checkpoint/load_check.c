/* The checks of tutti_load: does the checkpoint fit the model, and are its numbers possible? */
#include "train/checkpoint/loading.h"

#include "train/base/base.h"

#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static tutti_status load_check_misfit(const struct loading *in, const char *what, const char *name,
				      const char *why)
{
	return restore_misfit("tutti_load", in->path, what, name, why);
}

const struct checkpoint_tensor *load_find(const struct loading *in, const char *kind,
					  const char *name)
{
	return checkpoint_index_find(checkpoint_index_of(in->checkpoint), kind, name);
}

static tutti_status load_check_param(const struct loading *in, const struct param *param)
{
	static const char *const kinds[] = {"param", "m", "v"};

	for (int k = 0; k < 3; k++) {
		const struct checkpoint_tensor *tensor = load_find(in, kinds[k], param->name);
		if (!tensor && k == 0)
			return load_check_misfit(in, "parameter", param->name, "is not in it");
		if (!tensor)
			continue;
		const char *why =
			restore_difference(param, tensor->ndim, tensor->shape, (int)tensor->dtype);
		if (why)
			return load_check_misfit(in, "parameter", param->name, why);
	}
	return TUTTI_OK;
}

/* Finds parameters that the model does not have. */
static tutti_status load_check_names(const struct loading *in)
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

static tutti_status check_flat(const struct loading *in, const char *what, const char *kind,
			       const char *name, tutti_dtype dtype, size_t count)
{
	const struct checkpoint_tensor *tensor = load_find(in, kind, name);

	if (!tensor)
		return load_check_misfit(in, what, name, "is not in it");
	if (tensor->dtype != dtype || tensor->count != count)
		return load_check_misfit(in, what, name, "has another size or type there");
	return TUTTI_OK;
}

static tutti_status load_check_state(const struct loading *in, const struct state *state)
{
	int ranks = checkpoint_index_of(in->checkpoint)->world_size;
	char kind[CHECKPOINT_KIND_BYTES];

	if (state->per_rank && ranks != in->trainer->job.size)
		return fail_invalid("tutti_load: the state '%s' is per rank, and the checkpoint "
				    "'%s' is of %d ranks, not %d: use as many ranks.",
				    state->name, path_shown(in->path), ranks,
				    in->trainer->job.size);
	saved_state_kind(kind, state, in->trainer->job.rank);
	return check_flat(in, "state", kind, state->name, TUTTI_U8, state->bytes);
}

static tutti_status checkpoint_load_check(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++)
		TRY(load_check_param(in, &model->params[p]));
	TRY(load_check_names(in));
	for (int b = 0; b < model->buffer_count; b++)
		TRY(check_flat(in, "buffer", "buffer", model->buffers[b].name,
			       model->buffers[b].dtype, model->buffers[b].count));
	for (int s = 0; s < model->state_count; s++)
		TRY(load_check_state(in, &model->states[s]));
	TRY(check_flat(in, "the trainer's", "trainer", "counts", TUTTI_I64, COUNTS));
	return check_flat(in, "the trainer's", "trainer", "scale", TUTTI_F64, SCALES);
}

tutti_status load_whole(const struct loading *in, const char *kind, const char *name, void *values)
{
	const struct checkpoint_tensor *tensor = load_find(in, kind, name);
	return checkpoint_read(in->checkpoint, tensor, 0, tensor->count, values);
}

static tutti_status load_check_number(const struct loading *in, bool is_right, const char *kind,
				      const char *name, double value, const char *meaning)
{
	char file[CHECKPOINT_FILE_BYTES];

	if (is_right)
		return TUTTI_OK;
	checkpoint_file_name(file, load_find(in, kind, name)->pieces[0].rank,
			     checkpoint_index_of(in->checkpoint)->world_size);
	return fail_invalid("tutti_load: the checkpoint '%s' is damaged: '%s' (%s) in %s is "
			    "%.17g, not %s. Remove the folder to load the checkpoint before it.",
			    path_shown(in->path), name, kind, file, value, meaning);
}

static tutti_status read_optimizers(struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;

	in->optimizers = calloc((size_t)model->param_count + 1, sizeof *in->optimizers);
	if (!in->optimizers)
		return fail_no_memory("reading '%s'", path_shown(in->path));
	for (int p = 0; p < model->param_count; p++) {
		const char *name = model->params[p].name;
		int32_t *kind = &in->optimizers[p];
		TRY(check_flat(in, "the optimizer of", "optimizer", name, TUTTI_I32, 1));
		TRY(load_whole(in, "optimizer", name, kind));
		TRY(load_check_number(in, *kind == -1 || *kind == TUTTI_ADAMW || *kind == TUTTI_SGD,
				      "optimizer", name, *kind,
				      "a kind of optimizer, or -1 for none"));
	}
	return TUTTI_OK;
}

static tutti_status read_counts(struct loading *in)
{
	static const char *const meanings[COUNTS] = {"a number of steps", "a number of updates"};

	TRY(load_whole(in, "trainer", "counts", in->counts));
	for (int i = 0; i < COUNTS; i++)
		TRY(load_check_number(in, in->counts[i] >= 0, "trainer", "counts",
				      (double)in->counts[i], meanings[i]));
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

	TRY(load_whole(in, "trainer", "scale", in->scales));
	TRY(load_check_number(in, is_positive(scales[0]), "trainer", "scale", scales[0],
			      "a finite and positive loss scale"));
	TRY(load_check_number(in, scales[1] >= 0 && scales[1] <= INT_MAX, "trainer", "scale",
			      scales[1], "a number of good steps"));
	TRY(load_check_number(in, is_positive(scales[2]), "trainer", "scale", scales[2],
			      "a finite and positive divisor"));
	double both = scales[0] / scales[2];
	return load_check_number(in, is_positive(both), "trainer", "scale", both,
				 "a finite and positive loss scale over its divisor");
}

tutti_status load_check(struct loading *in)
{
	TRY(checkpoint_load_check(in));
	TRY(read_optimizers(in));
	TRY(read_counts(in));
	return read_scale(in);
}
