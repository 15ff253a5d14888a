/* A rank's file: ranges are divided into pieces, pieces get places in a safetensors file, and
 * values are written through staging. */
#include "train/checkpoint/checkpoint_writer.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_MS = 300000, DEFAULT_BYTES = 64 << 20 };

struct range_state {
	struct checkpoint_tensor tensor; /* with the pieces of the range; ranges are sorted by it */
	unsigned element_bytes;
	uint64_t bytes, done;    /* of the range; handed over so far */
	uint64_t piece_elements; /* in each piece but the last */
};

struct checkpoint_writer {
	struct checkpoint_part part; /* dir and temporary are not used after create */
	char path[DISK_PATH_BYTES];
	struct range_state *ranges;
	size_t range_count, piece_count;
	struct safetensors file;
	struct staging *staging;
	bool has_file, is_finished;
	struct checkpoint_writer *next_left;
};

/* The staging thread writes the pieces' sums until it ends. */
static tutti_status checkpoint_writer_cut(struct range_state *state,
					  const struct checkpoint_range *range, int rank)
{
	for (uint64_t done = 0, n; done < range->count; done += n) {
		n = range->count - done;
		n = n < state->piece_elements ? n : state->piece_elements;
		TRY(checkpoint_piece_add(&state->tensor,
					 (struct checkpoint_piece){.first = range->first + done,
								   .count = n,
								   .rank = rank}));
	}
	return TUTTI_OK;
}

static tutti_status take_range(struct checkpoint_writer *save, struct range_state *state,
			       const struct checkpoint_range *range)
{
	state->tensor = range->tensor;
	state->tensor.pieces = NULL;
	state->tensor.piece_count = 0;
	TRY(checkpoint_tensor_check(&state->tensor));
	if (range->first > state->tensor.count || range->count > state->tensor.count - range->first)
		return fail_invalid("Elements %" PRIu64 " to %" PRIu64
				    " of '%s' (%s) cannot be saved: it has %" PRIu64 ".",
				    range->first, range->first + range->count, state->tensor.name,
				    state->tensor.kind, state->tensor.count);
	state->element_bytes = stored_type_of(state->tensor.dtype)->bits / 8;
	state->bytes = range->count * state->element_bytes;
	state->piece_elements = save->part.piece_bytes / state->element_bytes;
	if (state->piece_elements == 0)
		state->piece_elements = 1;
	TRY(checkpoint_writer_cut(state, range, save->part.rank));
	save->piece_count += state->tensor.piece_count;
	return TUTTI_OK;
}

/* Each piece is a tensor of one dimension, named by its key. */
static void list_pieces(const struct checkpoint_writer *save, struct safetensor *list,
			char (*keys)[CHECKPOINT_KEY_BYTES])
{
	for (size_t i = 0; i < save->range_count; i++) {
		const struct checkpoint_tensor *tensor = &save->ranges[i].tensor;
		for (size_t p = 0; p < tensor->piece_count; p++, list++, keys++) {
			checkpoint_key(*keys, tensor, tensor->pieces[p].first);
			*list = (struct safetensor){.name = *keys,
						    .type = stored_type_of(tensor->dtype),
						    .ndim = 1,
						    .shape = {(int64_t)tensor->pieces[p].count}};
		}
	}
}

static tutti_status checkpoint_writer_lay_out(struct checkpoint_writer *save)
{
	size_t n = save->piece_count ? save->piece_count : 1;
	struct safetensor *list = calloc(n, sizeof *list);
	char(*keys)[CHECKPOINT_KEY_BYTES] = calloc(n, sizeof *keys);
	tutti_status status = TUTTI_OK;

	if (list && keys) {
		list_pieces(save, list, keys);
		status = safetensors_plan(&save->file, save->path, list, save->piece_count, NULL);
	} else {
		status = fail_no_memory("the list of what is saved");
	}
	free(list);
	free(keys);
	return status;
}

/* This is the first call that fails if ranks do not share the folder. */
static tutti_status create_file(const struct checkpoint_writer *save, int *fd)
{
	tutti_status status = disk_create(fd, save->path);

	if (status == TUTTI_ERR_SYSTEM && errno == ENOENT && save->part.rank > 0)
		return fail(TUTTI_ERR_SYSTEM,
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
		status = disk_take_room(fd, save->path, save->file.file_bytes);
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

	checkpoint_file_name(name, save->part.rank, save->part.world_size);
	return disk_path(save->path, "%s/%s/%s", save->part.dir, save->part.temporary, name);
}

static tutti_status checkpoint_writer_init(struct checkpoint_writer *save,
					   const struct checkpoint_range *ranges, size_t count)
{
	TRY(name_file(save));
	save->ranges = calloc(count ? count : 1, sizeof *save->ranges);
	if (!save->ranges)
		return fail_no_memory("the list of what is saved");
	save->range_count = count;
	for (size_t i = 0; i < count; i++)
		TRY(take_range(save, &save->ranges[i], &ranges[i]));
	TRY(checkpoint_writer_lay_out(save));
	return start_file(save);
}

tutti_status checkpoint_writer_create(struct checkpoint_writer **save,
				      const struct checkpoint_part *part,
				      const struct checkpoint_range *ranges, size_t count)
{
	TRY(jansson_needed());
	struct checkpoint_writer *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("the list of what is saved");
	made->part = *part;
	if (!made->part.timeout_ms)
		made->part.timeout_ms = DEFAULT_TIMEOUT_MS;
	if (!made->part.staging_bytes)
		made->part.staging_bytes = DEFAULT_BYTES;
	if (!made->part.piece_bytes)
		made->part.piece_bytes = DEFAULT_BYTES;
	tutti_status status = checkpoint_writer_init(made, ranges, count);
	if (status != TUTTI_OK) {
		struct kept_error kept = kept_error_of(status);
		checkpoint_writer_destroy(made);
		return kept_error_return(&kept);
	}
	*save = made;
	return TUTTI_OK;
}

/* Where the piece begins in the file. */
static uint64_t checkpoint_writer_place_of(const struct checkpoint_writer *save,
					   const struct checkpoint_tensor *tensor,
					   const struct checkpoint_piece *piece)
{
	char key[CHECKPOINT_KEY_BYTES];

	checkpoint_key(key, tensor, piece->first);
	return save->file.data_at + safetensors_find(&save->file, key)->begin;
}

tutti_status checkpoint_writer_values(struct checkpoint_writer *save, size_t range,
				      const void *values, size_t bytes)
{
	if (range >= save->range_count ||
	    bytes > save->ranges[range].bytes - save->ranges[range].done)
		return fail_invalid("There is no range %zu of %zu with %zu more bytes to save.",
				    range, save->range_count, bytes);
	struct range_state *state = &save->ranges[range];
	uint64_t piece_bytes = state->piece_elements * state->element_bytes;
	while (bytes > 0) {
		struct checkpoint_piece *piece = &state->tensor.pieces[state->done / piece_bytes];
		uint64_t inside = state->done % piece_bytes;
		size_t n = bytes < piece_bytes - inside ? bytes : (size_t)(piece_bytes - inside);
		TRY(staging_write(save->staging,
				  checkpoint_writer_place_of(save, &state->tensor, piece) + inside,
				  &piece->crc32c, values, n));
		state->done += n;
		values = (const char *)values + n;
		bytes -= n;
	}
	return TUTTI_OK;
}

/* Adds the range to the index. Ranges of one tensor are neighbours after sorting, and are merged.
 */
static tutti_status index_range(struct checkpoint_index *index,
				const struct checkpoint_tensor *tensor)
{
	struct checkpoint_tensor *last =
		index->tensor_count ? &index->tensors[index->tensor_count - 1] : NULL;

	if (!last || checkpoint_tensor_compare(last, tensor) != 0)
		last = checkpoint_index_grow(index, tensor);
	if (!last)
		return TUTTI_ERR_MEMORY;
	for (size_t i = 0; i < tensor->piece_count; i++)
		TRY(checkpoint_piece_add(last, tensor->pieces[i]));
	return TUTTI_OK;
}

static tutti_status make_index(struct checkpoint_index *index, struct checkpoint_writer *save)
{
	struct checkpoint_file file = {.rank = save->part.rank, .bytes = save->file.file_bytes};

	file.header_crc32c = tutti_crc32c(0, save->file.header, (size_t)save->file.data_at);
	index->step = save->part.step;
	index->world_size = save->part.world_size;
	index->files = malloc(sizeof *index->files);
	if (!index->files)
		return fail_no_memory("the list of what is saved");
	index->files[index->file_count++] = file;
	if (save->range_count > 1)
		qsort(save->ranges, save->range_count, sizeof *save->ranges,
		      checkpoint_tensor_compare);
	for (size_t i = 0; i < save->range_count; i++)
		TRY(index_range(index, &save->ranges[i].tensor));
	return checkpoint_index_sort(index);
}

static tutti_status check_done(const struct checkpoint_writer *save)
{
	for (size_t i = 0; i < save->range_count; i++)
		if (save->ranges[i].done != save->ranges[i].bytes)
			return fail_invalid("Only %" PRIu64 " of %" PRIu64
					    " bytes of '%s' (%s) were handed over to be saved.",
					    save->ranges[i].done, save->ranges[i].bytes,
					    save->ranges[i].tensor.name,
					    save->ranges[i].tensor.kind);
	return TUTTI_OK;
}

tutti_status checkpoint_writer_finish(struct checkpoint_writer *save, char **text, size_t *bytes)
{
	struct checkpoint_index index = {0};

	TRY(check_done(save));
	TRY(staging_finish(save->staging));
	TRY(disk_sync_parent(save->path)); /* on this rank's machine too */
	tutti_status status = make_index(&index, save);
	if (status == TUTTI_OK)
		status = checkpoint_index_print(&index, text, bytes);
	checkpoint_index_finish(&index);
	save->is_finished |= status == TUTTI_OK;
	return status;
}

/* Keeps save, with the sums that the thread may still write, in a list, so that leak checkers find
 * it reachable. */
static void checkpoint_writer_leave_allocated(struct checkpoint_writer *save)
{
	static struct checkpoint_writer *left;

	save->next_left = __atomic_load_n(&left, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&left, &save->next_left, save, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		continue;
}

bool checkpoint_writer_destroy(struct checkpoint_writer *save)
{
	if (!save)
		return true;
	if (!staging_destroy(save->staging)) {
		checkpoint_writer_leave_allocated(save);
		return false;
	}
	if (save->has_file && !save->is_finished)
		unlink(save->path);
	safetensors_finish(&save->file);
	for (size_t i = 0; i < save->range_count; i++)
		free(save->ranges[i].tensor.pieces);
	free(save->ranges);
	free(save);
	return true;
}
