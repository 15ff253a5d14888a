/* tutti_save and tutti_save_wait. Values are copied to the staging of each rank's file. When all
 * files are written, rank 0 commits the checkpoint. Each function has the same result on all ranks.
 */
#include "train/checkpoint/checkpoint.h"

#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/saved_items.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* The temporary directory that rank 0 has made, and for which step. */
struct folder {
	int64_t step;
	char temporary[CHECKPOINT_NAME_BYTES];
};

static tutti_status make_folder(tutti_trainer *trainer, const char *dir, int64_t step,
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
static tutti_status stage_range(tutti_trainer *trainer, const struct saved_items *items, size_t i)
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

	TRY(saved_items_list(&items, trainer));
	tutti_status status =
		checkpoint_writer_create(&trainer->saving->save, &part, items.ranges, items.count);
	for (size_t i = 0; status == TUTTI_OK && i < items.count; i++)
		status = stage_range(trainer, &items, i);
	saved_items_free(&items);
	return status == TUTTI_OK ? trainer_check(trainer, "tutti_save") : status;
}

static tutti_status saving_begin(tutti_trainer *trainer, const char *dir, int64_t step)
{
	struct folder folder;

	trainer->saving = calloc(1, sizeof *trainer->saving);
	TRY(job_agree(trainer, trainer->saving ? checkpoint_keep_dir(trainer, dir)
					       : fail_no_memory("saving a checkpoint")));
	TRY(make_folder(trainer, dir, step, &folder));
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
