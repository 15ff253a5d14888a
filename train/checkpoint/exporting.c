/* tutti_export_safetensors: all parameters and buffers in one file. Rank 0 makes the file, and all
 * ranks write their own elements. The file gets its name when it is whole; before that it is
 * file.tmp-0123456789abcdef, a new name. */
#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"
#include "train/state/trainer_state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct exporting {
	tutti_trainer *trainer;
	struct safetensors plan;
	uint64_t token; /* rank 0's */
	char temporary[DISK_PATH_BYTES];
	int fd;
};

static tutti_status exporting_plan(struct exporting *out, const char *file)
{
	const struct tutti_model *model = trainer_whole(out->trainer);
	size_t count = (size_t)model->param_count + (size_t)model->buffer_count;
	struct safetensor *list = calloc(count ? count : 1, sizeof *list), *next = list;

	if (!list)
		return fail_no_memory("exporting '%s'", path_shown(file));
	for (int p = 0; p < model->param_count; p++, next++) {
		next->name = (char *)model->params[p].name;
		next->type = stored_type_of(out->trainer->config.param_dtype);
		next->ndim = model->params[p].ndim;
		memcpy(next->shape, model->params[p].shape, sizeof next->shape);
	}
	for (int b = 0; b < model->buffer_count; b++, next++) {
		next->name = (char *)model->buffers[b].name;
		next->type = stored_type_of(model->buffers[b].dtype);
		next->ndim = 1;
		next->shape[0] = (int64_t)model->buffers[b].count;
	}
	tutti_status status = safetensors_plan(&out->plan, file, list, count, "pt");
	free(list);
	return status;
}

/* Rank 0: an existing name must be a regular file. A rename replaces anything: as root even
 * /dev/null, and links such as /dev/stdout. */
static tutti_status exporting_check_name(const char *file)
{
	struct stat about;

	if (lstat(file, &about) != 0 || S_ISREG(about.st_mode))
		return TUTTI_OK;
	return fail_invalid("tutti_export_safetensors: '%s' exists and is not a regular file%s: "
			    "choose another name.",
			    path_shown(file), S_ISLNK(about.st_mode) ? " but a link" : "");
}

static tutti_status exporting_prepare(struct exporting *out, const char *file)
{
	TRY(exporting_plan(out, file));
	if (out->trainer->job.rank > 0)
		return TUTTI_OK;
	TRY(exporting_check_name(file));
	if (getrandom(&out->token, sizeof out->token, 0) != sizeof out->token)
		return disk_fail("Asking for random bytes for", file);
	return TUTTI_OK;
}

/* Rank 0 makes the file; then the others open it. */
static tutti_status exporting_open_file(struct exporting *out, const char *file)
{
	const struct safetensors *plan = &out->plan;
	bool is_maker = out->trainer->job.rank == 0;

	TRY(disk_path(out->temporary, "%s.tmp-%016" PRIx64, file, out->token));
	out->fd =
		open(out->temporary, O_RDWR | O_CLOEXEC | (is_maker ? O_CREAT | O_EXCL : 0), 0666);
	if (out->fd < 0)
		return disk_fail(is_maker ? "Creating" : "Opening", out->temporary);
	if (!is_maker)
		return TUTTI_OK;
	TRY(disk_write(out->fd, out->temporary, plan->header, (size_t)plan->data_at, 0));
	return disk_take_room(out->fd, out->temporary, plan->file_bytes);
}

static uint64_t exporting_place_of(const struct exporting *out, const char *name)
{
	return out->plan.data_at + safetensors_find(&out->plan, name)->begin;
}

static tutti_status exporting_write_piece(const struct exporting *out, const struct piece *piece)
{
	const struct param *param = &out->trainer->model.params[piece->param];
	size_t width = dtype_bytes(out->trainer->config.param_dtype);
	const char *values = piece->low ? piece->low : (const char *)piece->value;
	uint64_t at = exporting_place_of(out, param->name);
	size_t count = param->part.is_counted ? piece->save_count : 0;

	for (size_t done = 0, n; done < count; done += n) {
		size_t i = piece->save_first + done, own = param->part.first + piece->first + i;
		size_t place = order_map(param->part.order, (struct tensor_order){0, 0},
					 param->ndim, param->shape, own, &n);
		n = smaller(smaller(n, count - done), VALUES_VIEW_BYTES / width);
		const void *part = values_view(piece->home, values + i * width, n * width);
		TRY(disk_write(out->fd, out->temporary, part, n * width, at + place * width));
	}
	return trainer_check(out->trainer, "tutti_export_safetensors");
}

static tutti_status exporting_write_all(const struct exporting *out)
{
	const struct tutti_model *model = &out->trainer->model;

	for (int i = 0; i < out->trainer->piece_count; i++)
		TRY(exporting_write_piece(out, &out->trainer->pieces[i]));
	for (int b = 0; b < model->buffer_count && out->trainer->job.rank == 0; b++) {
		const struct buffer *buffer = &model->buffers[b];
		TRY(disk_write(out->fd, out->temporary, buffer->data,
			       buffer->count * dtype_bytes(buffer->dtype),
			       exporting_place_of(out, buffer->name)));
	}
	return disk_sync(out->fd, out->temporary);
}

static tutti_status exporting_give_name(const struct exporting *out, const char *file)
{
	if (out->trainer->job.rank > 0)
		return TUTTI_OK;
	if (rename(out->temporary, file) != 0)
		return disk_fail("Renaming to", file);
	return disk_sync_parent(file);
}

static tutti_status exporting_export(struct exporting *out, const char *file)
{
	tutti_trainer *trainer = out->trainer;

	TRY(job_agree(trainer, exporting_prepare(out, file)));
	TRY(job_broadcast(trainer, &out->token, sizeof out->token, TUTTI_U8, 0));
	TRY(job_agree(trainer, trainer->job.rank == 0 ? exporting_open_file(out, file) : TUTTI_OK));
	TRY(job_agree(trainer, trainer->job.rank == 0 ? TUTTI_OK : exporting_open_file(out, file)));
	TRY(job_agree(trainer, exporting_write_all(out)));
	return job_agree(trainer, exporting_give_name(out, file));
}

tutti_status tutti_export_safetensors(tutti_trainer *trainer, const char *file)
{
	struct exporting out = {.trainer = trainer, .fd = -1};

	TRY(trainer_check_closed(trainer, "tutti_export_safetensors"));
	TRY(jansson_needed());
	if (!file)
		return fail_invalid("tutti_export_safetensors needs a file's name, not NULL.");
	TRY(trainer_check_averaged(trainer, "tutti_export_safetensors"));
	tutti_status status = exporting_export(&out, file);
	struct kept_error why = kept_error_of(status);
	if (out.fd >= 0 && status != TUTTI_OK && trainer->job.rank == 0)
		unlink(out.temporary);
	if (out.fd >= 0)
		close(out.fd);
	safetensors_finish(&out.plan);
	return kept_error_return(&why);
}
