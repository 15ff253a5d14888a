/* tutti_import_safetensors: parameters, and the buffers that are there, from one file of any
 * origin. Each rank reads what it holds. Other tensors of the file are ignored. */
#include "train/base/base.h"
#include "train/checkpoint/loading.h"
#include "train/checkpoint/safetensors.h"
#include "train/strategies/strategies.h"

#include <unistd.h>

struct importing {
	tutti_trainer *trainer;
	const char *path;
	struct safetensors file;
	int fd;
};

static tutti_status importing_misfit(const struct importing *in, const char *what, const char *name,
				     const char *why)
{
	return restore_misfit("tutti_import_safetensors", in->path, what, name, why);
}

static tutti_status importing_check(const struct importing *in)
{
	const struct tutti_model *model = &in->trainer->model;

	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		const struct safetensor *tensor = safetensors_find(&in->file, param->name);
		const char *why = tensor ? restore_difference(param, tensor->ndim, tensor->shape,
							      tensor->type->dtype)
					 : "is not in it";
		if (why)
			return importing_misfit(in, "parameter", param->name, why);
	}
	return TUTTI_OK;
}

static tutti_status importing_read_tensor(void *file, const void *from, uint64_t first,
					  uint64_t count, void *values)
{
	const struct importing *in = file;
	const struct safetensor *tensor = from;
	uint64_t width = tensor->type->bits / 8;

	return disk_read(in->fd, in->path, values, (size_t)(count * width),
			 in->file.data_at + tensor->begin + first * width);
}

static tutti_status import_buffer(struct importing *in, const struct buffer *buffer)
{
	const struct safetensor *tensor = safetensors_find(&in->file, buffer->name);

	if (!tensor)
		return TUTTI_OK;
	if (tensor->type->dtype != (int)buffer->dtype ||
	    tensor->end - tensor->begin != buffer->count * dtype_bytes(buffer->dtype))
		return importing_misfit(in, "buffer", buffer->name,
					"has another size or type there");
	return importing_read_tensor(in, tensor, 0, buffer->count, buffer->data);
}

static tutti_status import_all(struct importing *in)
{
	tutti_trainer *trainer = in->trainer;

	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const char *name = trainer->model.params[piece->param].name;
		const struct safetensor *tensor = safetensors_find(&in->file, name);
		struct stored_tensor stored = {importing_read_tensor,
					       in,
					       tensor,
					       (tutti_dtype)tensor->type->dtype,
					       {0, 0}};
		TRY(restore_piece(trainer, piece, &stored));
	}
	for (int b = 0; b < trainer->model.buffer_count; b++)
		TRY(import_buffer(in, &trainer->model.buffers[b]));
	return TUTTI_OK;
}

static tutti_status importing_open_file(struct importing *in)
{
	uint64_t bytes = 0;

	TRY(disk_open(&in->fd, &bytes, in->path));
	TRY(safetensors_read(&in->file, in->fd, bytes, in->path));
	return importing_check(in);
}

static tutti_status importing_import(struct importing *in)
{
	TRY(job_agree(in->trainer, importing_open_file(in)));
	TRY(params_begin_write(in->trainer));
	TRY(job_agree(in->trainer, import_all(in)));
	return params_publish(in->trainer);
}

tutti_status tutti_import_safetensors(tutti_trainer *trainer, const char *file)
{
	struct importing in = {.trainer = trainer, .path = file, .fd = -1};

	TRY(trainer_check_closed(trainer, "tutti_import_safetensors"));
	TRY(jansson_needed());
	if (!file)
		return fail_invalid("tutti_import_safetensors needs a file's name, not NULL.");
	tutti_status status = importing_import(&in);
	if (in.fd >= 0)
		close(in.fd);
	safetensors_finish(&in.file);
	return status;
}
