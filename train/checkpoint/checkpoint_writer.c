/* A rank's file: ranges are divided into pieces, pieces get places in a safetensors file, and
 * values are written through staging. */
#include "train/checkpoint/checkpoint_writer.h"

#include "train/base/train_error.h"
#include "train/checkpoint/disk.h"
#include "train/checkpoint/jansson_needed.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_MS = 300000, DEFAULT_BYTES = 64 << 20 };

/* A piece while it is written. */
struct piece_place {
	uint64_t first, count; /* elements */
	uint64_t at;           /* in the file */
	uint32_t crc32c;       /* written by the staging thread until it ends */
};

struct range_state {
	struct checkpoint_tensor tensor; /* without pieces */
	unsigned element_bytes;
	uint64_t bytes, done;       /* of the range; handed over so far */
	uint64_t piece_elements;    /* in each piece but the last */
	struct piece_place *pieces; /* in save->places */
	size_t piece_count;
};

struct checkpoint_writer {
	struct checkpoint_part part; /* dir and temporary are not used after create */
	char *path;
	struct range_state *ranges;
	size_t range_count;
	struct piece_place *places;
	size_t place_count;
	struct safetensors file;
	struct staging *staging;
	bool has_file, is_finished;
};

static tutti_status no_memory(void)
{
	return train_no_memory("the list of what is saved");
}

static tutti_status take_range(struct range_state *state, const struct checkpoint_range *range,
			       size_t piece_bytes)
{
	state->tensor = range->tensor;
	state->tensor.pieces = NULL;
	state->tensor.piece_count = 0;
	TRY(checkpoint_tensor_check(&state->tensor));
	if (range->first > state->tensor.count || range->count > state->tensor.count - range->first)
		return train_fail(TUTTI_ERR_INVALID,
				  "Elements %" PRIu64 " to %" PRIu64
				  " of '%s' (%s) cannot be saved: it has %" PRIu64 ".",
				  range->first, range->first + range->count, state->tensor.name,
				  state->tensor.kind, state->tensor.count);
	state->element_bytes = stored_type_of(state->tensor.dtype)->bits / 8;
	state->bytes = range->count * state->element_bytes;
	state->piece_elements = piece_bytes / state->element_bytes;
	if (state->piece_elements == 0)
		state->piece_elements = 1;
	state->piece_count =
		(size_t)((range->count + state->piece_elements - 1) / state->piece_elements);
	return TUTTI_OK;
}

/* The places of all ranges' pieces, in one array. */
static tutti_status cut(struct checkpoint_writer *save, const struct checkpoint_range *ranges)
{
	for (size_t i = 0; i < save->range_count; i++)
		save->place_count += save->ranges[i].piece_count;
	save->places = calloc(save->place_count ? save->place_count : 1, sizeof *save->places);
	if (!save->places)
		return no_memory();
	struct piece_place *next = save->places;
	for (size_t i = 0; i < save->range_count; i++) {
		struct range_state *state = &save->ranges[i];
		uint64_t left = ranges[i].count, first = ranges[i].first;
		state->pieces = next;
		for (; left > 0; next++) {
			next->first = first;
			next->count = left < state->piece_elements ? left : state->piece_elements;
			first += next->count;
			left -= next->count;
		}
	}
	return TUTTI_OK;
}

/* Each piece is a tensor of one dimension, named by its key. */
static tutti_status list_pieces(const struct checkpoint_writer *save, struct safetensor *list,
				char (*keys)[CHECKPOINT_KEY_BYTES])
{
	for (size_t i = 0; i < save->range_count; i++) {
		const struct range_state *state = &save->ranges[i];
		for (size_t p = 0; p < state->piece_count; p++) {
			size_t n = (size_t)(state->pieces - save->places) + p;
			checkpoint_key(keys[n], &state->tensor, state->pieces[p].first);
			list[n].name = keys[n];
			list[n].type = stored_type_of(state->tensor.dtype);
			list[n].ndim = 1;
			list[n].shape[0] = (int64_t)state->pieces[p].count;
		}
	}
	return TUTTI_OK;
}

static tutti_status lay_out(struct checkpoint_writer *save)
{
	size_t n = save->place_count ? save->place_count : 1;
	struct safetensor *list = calloc(n, sizeof *list);
	char(*keys)[CHECKPOINT_KEY_BYTES] = calloc(n, sizeof *keys);
	tutti_status status = list && keys ? TUTTI_OK : no_memory();

	if (status == TUTTI_OK)
		status = list_pieces(save, list, keys);
	if (status == TUTTI_OK)
		status = safetensors_plan(&save->file, save->path, list, save->place_count, NULL);
	for (size_t i = 0; status == TUTTI_OK && i < save->place_count; i++)
		save->places[i].at =
			save->file.data_at + safetensors_find(&save->file, keys[i])->begin;
	free(list);
	free(keys);
	return status;
}

/* This fails first if ranks do not share the folder. */
static tutti_status create_file(const struct checkpoint_writer *save, int *fd)
{
	tutti_status status = disk_create(fd, save->path);

	if (status == TUTTI_ERR_SYSTEM && errno == ENOENT && save->part.rank > 0)
		return train_fail(TUTTI_ERR_SYSTEM,
				  "Rank %d cannot find the folder of '%s', which rank 0 has made "
				  "(errno %d): it must be on a file system that all ranks share.",
				  save->part.rank, path_shown(save->path), ENOENT);
	return status;
}

static tutti_status start_file(struct checkpoint_writer *save)
{
	int fd = -1;

	TRY(create_file(save, &fd));
	save->has_file = true;
	tutti_status status =
		disk_write(fd, save->path, save->file.header, (size_t)save->file.data_at, 0);
	if (status == TUTTI_OK)
		status = disk_resize(fd, save->path, save->file.file_bytes);
	if (status == TUTTI_OK)
		status = staging_create(&save->staging, fd, save->path, save->part.staging_bytes,
					save->part.timeout_ms);
	if (status != TUTTI_OK)
		close(fd);
	return status;
}

static tutti_status name_file(struct checkpoint_writer *save)
{
	char name[CHECKPOINT_FILE_BYTES];
	char *folder = disk_join(save->part.dir, save->part.temporary);

	checkpoint_file_name(name, save->part.rank, save->part.world_size);
	if (folder)
		save->path = disk_join(folder, name);
	free(folder);
	return save->path ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status create(struct checkpoint_writer *save, const struct checkpoint_range *ranges,
			   size_t count)
{
	TRY(name_file(save));
	save->ranges = calloc(count ? count : 1, sizeof *save->ranges);
	if (!save->ranges)
		return no_memory();
	save->range_count = count;
	for (size_t i = 0; i < count; i++)
		TRY(take_range(&save->ranges[i], &ranges[i], save->part.piece_bytes));
	TRY(cut(save, ranges));
	TRY(lay_out(save));
	return start_file(save);
}

tutti_status checkpoint_writer_create(struct checkpoint_writer **save,
				      const struct checkpoint_part *part,
				      const struct checkpoint_range *ranges, size_t count)
{
	TRY(jansson_needed());
	struct checkpoint_writer *made = calloc(1, sizeof *made);
	if (!made)
		return no_memory();
	made->part = *part;
	if (!made->part.timeout_ms)
		made->part.timeout_ms = DEFAULT_TIMEOUT_MS;
	if (!made->part.staging_bytes)
		made->part.staging_bytes = DEFAULT_BYTES;
	if (!made->part.piece_bytes)
		made->part.piece_bytes = DEFAULT_BYTES;
	tutti_status status = create(made, ranges, count);
	if (status != TUTTI_OK) {
		struct train_failure kept = failure_of(status);
		checkpoint_writer_destroy(made);
		return failure_return(&kept);
	}
	*save = made;
	return TUTTI_OK;
}

tutti_status checkpoint_writer_values(struct checkpoint_writer *save, size_t range,
				      const void *values, size_t bytes)
{
	if (range >= save->range_count ||
	    bytes > save->ranges[range].bytes - save->ranges[range].done)
		return train_fail(
			TUTTI_ERR_INVALID,
			"Range %zu of %zu, or more than it has, is handed over to be saved.", range,
			save->range_count);
	struct range_state *state = &save->ranges[range];
	uint64_t piece_bytes = state->piece_elements * state->element_bytes;
	while (bytes > 0) {
		struct piece_place *piece = &state->pieces[state->done / piece_bytes];
		uint64_t inside = state->done % piece_bytes;
		size_t n = bytes < piece_bytes - inside ? bytes : (size_t)(piece_bytes - inside);
		TRY(staging_write(save->staging, piece->at + inside, &piece->crc32c, values, n));
		state->done += n;
		values = (const char *)values + n;
		bytes -= n;
	}
	return TUTTI_OK;
}

/* Adds the range to the index. Ranges of one tensor are neighbours after sorting, and are merged.
 */
static tutti_status index_range(struct checkpoint_index *index,
				const struct checkpoint_writer *save,
				const struct range_state *state)
{
	struct checkpoint_tensor *last =
		index->tensor_count ? &index->tensors[index->tensor_count - 1] : NULL;

	if (!last || strcmp(last->kind, state->tensor.kind) != 0 ||
	    strcmp(last->name, state->tensor.name) != 0)
		last = checkpoint_index_grow(index, &state->tensor);
	if (!last)
		return TUTTI_ERR_MEMORY;
	for (size_t i = 0; i < state->piece_count; i++) {
		const struct piece_place *place = &state->pieces[i];
		TRY(checkpoint_piece_add(last, (struct checkpoint_piece){
						       .first = place->first,
						       .count = place->count,
						       .rank = save->part.rank,
						       .crc32c = place->crc32c,
					       }));
	}
	return TUTTI_OK;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range_state *x = a, *y = b;
	int kinds = strcmp(x->tensor.kind, y->tensor.kind);
	return kinds ? kinds : strcmp(x->tensor.name, y->tensor.name);
}

static tutti_status make_index(struct checkpoint_index *index, struct checkpoint_writer *save)
{
	struct checkpoint_file file = {.rank = save->part.rank, .bytes = save->file.file_bytes};

	file.header_crc32c = tutti_crc32c(0, save->file.header, (size_t)save->file.data_at);
	index->step = save->part.step;
	index->world_size = save->part.world_size;
	index->files = malloc(sizeof *index->files);
	if (!index->files)
		return no_memory();
	index->files[index->file_count++] = file;
	if (save->range_count > 1)
		qsort(save->ranges, save->range_count, sizeof *save->ranges, compare_ranges);
	for (size_t i = 0; i < save->range_count; i++)
		TRY(index_range(index, save, &save->ranges[i]));
	return checkpoint_index_sort(index);
}

static tutti_status check_done(const struct checkpoint_writer *save)
{
	for (size_t i = 0; i < save->range_count; i++)
		if (save->ranges[i].done != save->ranges[i].bytes)
			return train_fail(TUTTI_ERR_INVALID,
					  "Only %" PRIu64 " of %" PRIu64
					  " bytes of '%s' (%s) were handed over to be saved.",
					  save->ranges[i].done, save->ranges[i].bytes,
					  save->ranges[i].tensor.name, save->ranges[i].tensor.kind);
	return TUTTI_OK;
}

/* Syncs the name of the file, on this rank's machine too. */
static tutti_status sync_folder(const struct checkpoint_writer *save)
{
	char *folder = strdup(save->path);

	if (!folder)
		return no_memory();
	*strrchr(folder, '/') = '\0';
	tutti_status status = disk_sync_folder(folder);
	free(folder);
	return status;
}

tutti_status checkpoint_writer_finish(struct checkpoint_writer *save, char **text, size_t *bytes)
{
	struct checkpoint_index index = {0};

	TRY(check_done(save));
	TRY(staging_finish(save->staging));
	TRY(sync_folder(save));
	tutti_status status = make_index(&index, save);
	if (status == TUTTI_OK)
		status = checkpoint_index_print(&index, text, bytes);
	checkpoint_index_finish(&index);
	save->is_finished |= status == TUTTI_OK;
	return status;
}

void checkpoint_writer_destroy(struct checkpoint_writer *save)
{
	if (!save)
		return;
	staging_destroy(save->staging);
	if (save->has_file && !save->is_finished)
		unlink(save->path);
	safetensors_finish(&save->file);
	free(save->places);
	free(save->ranges);
	free(save->path);
	free(save);
}
