/* tutti_load: rank 0 finds the checkpoint, all ranks check that it fits the model before anything
 * is changed (load_check.c), and each rank reads what it holds. */
#include "train/checkpoint/loading.h"

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/safetensors.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <stdlib.h>
#include <string.h>

static tutti_status loading_read_tensor(void *checkpoint, const void *tensor, uint64_t first,
					uint64_t count, void *values)
{
	return checkpoint_read(checkpoint, tensor, first, count, values);
}

static struct stored_tensor loading_stored(const struct loading *in, const char *kind,
					   const char *name)
{
	const struct checkpoint_tensor *tensor = load_find(in, kind, name);

	return (struct stored_tensor){loading_read_tensor, in->checkpoint, tensor,
				      tensor ? tensor->dtype : TUTTI_F32,
				      tensor ? tensor->order : (struct tensor_order){0, 0}};
}

static tutti_status load_piece(const struct loading *in, struct piece *piece)
{
	const tutti_train_config *config = &in->trainer->config;
	const char *name = in->trainer->model.params[piece->param].name;
	struct stored_tensor param = loading_stored(in, "param", name),
			     low = loading_stored(in, "low", name);
	struct stored_tensor m = loading_stored(in, "m", name), v = loading_stored(in, "v", name);

	TRY(restore_piece(in->trainer, piece, &param));
	/* Stochastic rounding is not repeated. */
	if (piece->low && config->stochastic_rounding && low.tensor &&
	    low.dtype == config->param_dtype)
		TRY(restore_low(in->trainer, piece, &low));
	if (!piece->sum)
		return TUTTI_OK;
	TRY(restore_state(in->trainer, piece, STATE_M, &m));
	return restore_state(in->trainer, piece, STATE_V, &v);
}

static void set_numbers(const struct loading *in)
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

static tutti_status load_callers(const struct loading *in)
{
	const struct tutti_model *model = &in->trainer->model;
	char kind[CHECKPOINT_KIND_BYTES];

	for (int b = 0; b < model->buffer_count; b++)
		TRY(load_whole(in, "buffer", model->buffers[b].name, model->buffers[b].data));
	for (int s = 0; s < model->state_count; s++) {
		saved_state_kind(kind, &model->states[s], in->trainer->job.rank);
		TRY(load_whole(in, kind, model->states[s].name, model->states[s].data));
	}
	return TUTTI_OK;
}

static tutti_status loading_load_all(const struct loading *in)
{
	for (int i = 0; i < in->trainer->piece_count; i++)
		TRY(load_piece(in, &in->trainer->pieces[i]));
	set_numbers(in);
	return load_callers(in);
}

static tutti_status load_open(struct loading *in)
{
	tutti_trainer *trainer = in->trainer;

	TRY(job_agree(trainer, load_check(in)));
	TRY(params_begin_write(trainer));
	TRY(job_agree(trainer, loading_load_all(in)));
	return params_publish(trainer);
}

static tutti_status loading_load(tutti_trainer *trainer, const char *path)
{
	struct loading in = {.trainer = trainer, .path = path};
	tutti_status status = job_agree(trainer, checkpoint_open(&in.checkpoint, path));

	if (status == TUTTI_OK)
		status = load_open(&in);
	checkpoint_close(in.checkpoint);
	free(in.optimizers);
	return status;
}

/* Rank 0 may know the folder by another name than this rank. */
static tutti_status load_found(tutti_trainer *trainer, const char *dir,
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
	TRY(load_found(trainer, dir, &found));
	*step = found.step;
	if (found.passed_over > 0) /* tutti_comm_error(NULL) has the reason */
		fail(TUTTI_OK, "%d newer checkpoints are damaged and were passed over. %s",
		     found.passed_over, found.message);
	return TUTTI_OK;
}
