/* tutti_import_safetensors: parameters, and the buffers that are there, from one file of any
 * origin. Each rank reads what it holds. Other tensors of the file are ignored. */
#include "train/base/train_error.h"
#include "train/checkpoint/disk.h"
#include "train/checkpoint/jansson_needed.h"
#include "train/checkpoint/restore.h"
#include "train/checkpoint/safetensors.h"
#include "train/state/pieces.h"
#include "train/state/trainer_collectives.h"

#include <string.h>
#include <unistd.h>

struct importing {
	tutti_trainer *trainer;
	const char *path;
	struct safetensors file;
	int fd;
};

static tutti_status misfit(const struct importing *in, const char *name, const char *why)
{
	return train_fail(TUTTI_ERR_INVALID,
			  "tutti_import_safetensors: the parameter '%s' %s '%s'.", name, why,
			  path_shown(in->path));
}

static tutti_status check(const struct importing *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		const struct safetensor *tensor = safetensors_find(&in->file, param->name);
		if (!tensor)
			return misfit(in, param->name, "is not in");
		if (tensor->ndim != param->ndim ||
		    memcmp(tensor->shape, param->shape,
			   (size_t)param->ndim * sizeof *param->shape) != 0)
			return misfit(in, param->name, "has another shape in");
		if (!restore_takes(tensor->type->dtype))
			return misfit(in, param->name, "is not of F32, F64, F16 or BF16 in");
	}
	return TUTTI_OK;
}

struct import_source {
	const struct importing *in;
	const struct safetensor *tensor;
};

static tutti_status read_one(void *from, uint64_t first, uint64_t count, void *values)
{
	const struct import_source *one = from;
	uint64_t width = one->tensor->type->bits / 8;

	return disk_read(one->in->fd, one->in->path, values, (size_t)(count * width),
			 one->in->file.data_at + one->tensor->begin + first * width);
}

static tutti_status import_buffer(const struct importing *in, const struct buffer *buffer)
{
	const struct safetensor *tensor = safetensors_find(&in->file, buffer->name);
	struct import_source one = {in, tensor};

	if (!tensor)
		return TUTTI_OK;
	if (tensor->type->dtype != (int)buffer->dtype ||
	    tensor->end - tensor->begin != buffer->count * dtype_bytes(buffer->dtype))
		return train_fail(
			TUTTI_ERR_INVALID,
			"tutti_import_safetensors: the buffer '%s' has another size or type in "
			"'%s'.",
			buffer->name, path_shown(in->path));
	return read_one(&one, 0, buffer->count, buffer->data);
}

static tutti_status import_all(const struct importing *in)
{
	tutti_trainer *trainer = in->trainer;

	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const char *name = trainer->model.params[piece->param].name;
		struct import_source one = {in, safetensors_find(&in->file, name)};
		struct stored_tensor stored = {read_one, &one,
					       (tutti_dtype)one.tensor->type->dtype};
		TRY(restore_piece(trainer, piece, &stored));
	}
	for (int b = 0; b < trainer->model.buffer_count; b++)
		TRY(import_buffer(in, &trainer->model.buffers[b]));
	return TUTTI_OK;
}

static tutti_status open_file(struct importing *in)
{
	uint64_t bytes = 0;

	TRY(disk_open(&in->fd, &bytes, in->path));
	TRY(safetensors_read(&in->file, in->fd, bytes, in->path));
	return check(in);
}

static tutti_status import(struct importing *in)
{
	TRY(trainer_agree(in->trainer, open_file(in)));
	TRY(restore_begin(in->trainer, "tutti_import_safetensors"));
	TRY(trainer_agree(in->trainer, import_all(in)));
	return restore_end(in->trainer);
}

tutti_status tutti_import_safetensors(tutti_trainer *trainer, const char *file)
{
	struct importing in = {.trainer = trainer, .path = file, .fd = -1};

	TRY(trainer_check_closed(trainer, "tutti_import_safetensors"));
	TRY(jansson_needed());
	if (!file)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_import_safetensors needs a file's name, not NULL.");
	tutti_status status = import(&in);
	if (in.fd >= 0)
		close(in.fd);
	safetensors_finish(&in.file);
	return status;
}
