/* A rank's file: ranges are divided into pieces, pieces get places in a safetensors file, and
 * values are written through staging. */
#include "train/checkpoint/checkpoint_writer.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- staging: a file that is written in the background ---- */

/* A ring of slots between the caller, who fills the next free one, and the thread, which writes the
 * oldest full one. */

struct staging_slot {
	uint64_t at;
	size_t bytes;
	uint32_t *crc32c;
	char data[STAGING_SLOT_BYTES];
};

struct staging {
	int fd, timeout_ms;
	char path[DISK_PATH_BYTES];
	struct staging_slot *slots;
	size_t slot_count;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;      /* of all members below */
	pthread_cond_t changed;    /* any of them */
	size_t filled, written;    /* slots since the beginning: filled - written are full */
	bool is_ending, has_ended; /* nothing more comes; the thread is done */
	bool is_dropped;           /* full slots need not be written */
	struct kept_error failure; /* of the thread */
};

/* The oldest full slot, or NULL at the end. */
static struct staging_slot *checkpoint_writer_next_full(struct staging *staging)
{
	struct staging_slot *slot = NULL;

	pthread_mutex_lock(&staging->lock);
	while (staging->written == staging->filled && !staging->is_ending)
		pthread_cond_wait(&staging->changed, &staging->lock);
	if (staging->written != staging->filled && !staging->is_dropped)
		slot = &staging->slots[staging->written % staging->slot_count];
	pthread_mutex_unlock(&staging->lock);
	return slot;
}

static void checkpoint_writer_staging_slot_done(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	staging->written++;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
}

static bool checkpoint_writer_staging_is_wanted(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	bool is_dropped = staging->is_dropped;
	pthread_mutex_unlock(&staging->lock);
	return !is_dropped;
}

static tutti_status checkpoint_writer_write_slots(struct staging *staging)
{
	struct staging_slot *slot;

	while ((slot = checkpoint_writer_next_full(staging))) {
		*slot->crc32c = tutti_crc32c(*slot->crc32c, slot->data, slot->bytes);
		TRY(disk_write(staging->fd, staging->path, slot->data, slot->bytes, slot->at));
		checkpoint_writer_staging_slot_done(staging);
	}
	return checkpoint_writer_staging_is_wanted(staging) ? disk_sync(staging->fd, staging->path)
							    : TUTTI_OK;
}

static void *checkpoint_writer_staging_thread_main(void *arg)
{
	struct staging *staging = arg;
	tutti_status status = checkpoint_writer_write_slots(staging);

	pthread_mutex_lock(&staging->lock);
	staging->failure = kept_error_of(status);
	staging->has_ended = true;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
	return NULL;
}

static tutti_status checkpoint_writer_staging_start(struct staging *staging)
{
	int error = thread_start(&staging->thread, checkpoint_writer_staging_thread_main, staging);

	if (error) {
		errno = error;
		return disk_fail("Starting a thread that writes", staging->path);
	}
	pthread_setname_np(staging->thread, "tutti-save");
	staging->has_thread = true;
	return TUTTI_OK;
}

tutti_status staging_create(struct staging **staging, int fd, const char *path, size_t bytes,
			    int timeout_ms)
{
	size_t slots = bytes / STAGING_SLOT_BYTES < 2 ? 2 : bytes / STAGING_SLOT_BYTES;
	struct staging *made = calloc(1, sizeof *made);

	if (!made)
		return fail_no_memory("writing '%s'", path_shown(path));
	made->fd = -1;
	made->timeout_ms = timeout_ms;
	made->slot_count = slots;
	made->slots = malloc(slots * sizeof *made->slots);
	pthread_cond_init(&made->changed, NULL);
	pthread_mutex_init(&made->lock, NULL);
	tutti_status status = disk_path(made->path, "%s", path);
	if (!made->slots)
		status = fail_no_memory("%zu bytes of staging to write '%s'",
					slots * STAGING_SLOT_BYTES, path_shown(path));
	if (status == TUTTI_OK) {
		made->fd = fd; /* before the thread uses it */
		status = checkpoint_writer_staging_start(made);
	}
	if (status != TUTTI_OK) {
		made->fd = -1; /* the caller keeps it */
		staging_destroy(made);
		return status;
	}
	*staging = made;
	return TUTTI_OK;
}

/* Waits, with the lock, until fewer slots than most are full, or the thread has ended. Every slot
 * that is written restarts the deadline. */
static tutti_status checkpoint_writer_wait_for_thread(struct staging *staging, size_t most)
{
	struct timespec deadline = deadline_timespec(deadline_after_ms(staging->timeout_ms));
	size_t seen = staging->written;

	while (!staging->has_ended && staging->filled - staging->written >= most) {
		int error = pthread_cond_clockwait(&staging->changed, &staging->lock,
						   CLOCK_MONOTONIC, &deadline);
		if (staging->written != seen) {
			seen = staging->written;
			deadline = deadline_timespec(deadline_after_ms(staging->timeout_ms));
		} else if (error == ETIMEDOUT && !staging->has_ended) {
			return fail(TUTTI_ERR_TIMEOUT,
				    "No part of '%s' was written for %d ms: the disk or the "
				    "file system's server does not answer.",
				    path_shown(staging->path), staging->timeout_ms);
		}
	}
	return TUTTI_OK;
}

/* Waits until *slot is free. */
static tutti_status checkpoint_writer_next_free(struct staging *staging, struct staging_slot **slot)
{
	pthread_mutex_lock(&staging->lock);
	tutti_status status = checkpoint_writer_wait_for_thread(staging, staging->slot_count);
	if (status == TUTTI_OK)
		status = kept_error_return(&staging->failure);
	*slot = &staging->slots[staging->filled % staging->slot_count];
	pthread_mutex_unlock(&staging->lock);
	return status;
}

tutti_status staging_write(struct staging *staging, uint64_t at, uint32_t *crc32c, const void *data,
			   size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		struct staging_slot *slot;
		TRY(checkpoint_writer_next_free(staging, &slot));
		slot->at = at + done;
		slot->bytes = smaller(bytes - done, STAGING_SLOT_BYTES);
		slot->crc32c = crc32c;
		memcpy(slot->data, (const char *)data + done, slot->bytes);
		done += slot->bytes;
		pthread_mutex_lock(&staging->lock);
		staging->filled++;
		pthread_cond_broadcast(&staging->changed);
		pthread_mutex_unlock(&staging->lock);
	}
	return TUTTI_OK;
}

static void checkpoint_writer_staging_end(struct staging *staging, bool is_dropped)
{
	pthread_mutex_lock(&staging->lock);
	staging->is_ending = true;
	staging->is_dropped |= is_dropped;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
}

/* Waits for the writing thread. False: the disk, or its file server, does not answer in time. */
static bool checkpoint_writer_thread_ends(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	bool has_ended =
		!staging->has_thread || checkpoint_writer_wait_for_thread(staging, 0) == TUTTI_OK;
	pthread_mutex_unlock(&staging->lock);
	return has_ended;
}

static void checkpoint_writer_staging_join(struct staging *staging)
{
	if (!staging->has_thread)
		return;
	pthread_join(staging->thread, NULL);
	staging->has_thread = false;
}

tutti_status staging_finish(struct staging *staging)
{
	checkpoint_writer_staging_end(staging, false);
	pthread_mutex_lock(&staging->lock);
	tutti_status status = checkpoint_writer_wait_for_thread(staging, 0);
	pthread_mutex_unlock(&staging->lock);
	if (status != TUTTI_OK)
		return status;
	checkpoint_writer_staging_join(staging);
	status = kept_error_return(&staging->failure);
	int fd = staging->fd;
	staging->fd = -1;
	/* Some file systems report a failed write only here. */
	if (fd >= 0 && close(fd) != 0 && status == TUTTI_OK)
		status = disk_fail("Closing", staging->path);
	return status;
}

/* While the thread lives, its file is open and all of it allocated. */
static void checkpoint_writer_leave_thread(struct staging *staging)
{
	log_notice("%s Its file stays open and its memory allocated.", tutti_comm_error(NULL));
	pthread_detach(staging->thread);
}

bool staging_destroy(struct staging *staging)
{
	if (!staging)
		return true;
	struct kept_error before = kept_error_of(TUTTI_ERR_TIMEOUT);
	checkpoint_writer_staging_end(staging, true);
	if (!checkpoint_writer_thread_ends(staging)) {
		checkpoint_writer_leave_thread(staging);
		kept_error_return(&before);
		return false;
	}
	checkpoint_writer_staging_join(staging);
	if (staging->fd >= 0)
		close(staging->fd);
	pthread_mutex_destroy(&staging->lock);
	pthread_cond_destroy(&staging->changed);
	free(staging->slots);
	free(staging);
	return true;
}

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

/* ---- a rank's file ---- */

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

static tutti_status checkpoint_writer_take_range(struct checkpoint_writer *save,
						 struct range_state *state,
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
static void checkpoint_writer_list_pieces(const struct checkpoint_writer *save,
					  struct safetensor *list,
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
		checkpoint_writer_list_pieces(save, list, keys);
		status = safetensors_plan(&save->file, save->path, list, save->piece_count, NULL);
	} else {
		status = fail_no_memory("the list of what is saved");
	}
	free(list);
	free(keys);
	return status;
}

/* This is the first call that fails if ranks do not share the folder. */
static tutti_status checkpoint_writer_create_file(const struct checkpoint_writer *save, int *fd)
{
	tutti_status status = disk_create(fd, save->path);

	if (status == TUTTI_ERR_SYSTEM && errno == ENOENT && save->part.rank > 0)
		return fail(TUTTI_ERR_SYSTEM,
			    "Rank %d cannot find the folder of '%s', which rank 0 has made "
			    "(errno %d): it must be on a file system that all ranks share.",
			    save->part.rank, path_shown(save->path), ENOENT);
	return status;
}

static tutti_status checkpoint_writer_start_file(struct checkpoint_writer *save)
{
	int fd = -1;

	TRY(checkpoint_writer_create_file(save, &fd));
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

static tutti_status checkpoint_writer_name_file(struct checkpoint_writer *save)
{
	char name[CHECKPOINT_FILE_BYTES];

	checkpoint_file_name(name, save->part.rank, save->part.world_size);
	return disk_path(save->path, "%s/%s/%s", save->part.dir, save->part.temporary, name);
}

static tutti_status checkpoint_writer_init(struct checkpoint_writer *save,
					   const struct checkpoint_range *ranges, size_t count)
{
	TRY(checkpoint_writer_name_file(save));
	save->ranges = calloc(count ? count : 1, sizeof *save->ranges);
	if (!save->ranges)
		return fail_no_memory("the list of what is saved");
	save->range_count = count;
	for (size_t i = 0; i < count; i++)
		TRY(checkpoint_writer_take_range(save, &save->ranges[i], &ranges[i]));
	TRY(checkpoint_writer_lay_out(save));
	return checkpoint_writer_start_file(save);
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
static tutti_status checkpoint_writer_index_range(struct checkpoint_index *index,
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

static tutti_status checkpoint_writer_make_index(struct checkpoint_index *index,
						 struct checkpoint_writer *save)
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
		TRY(checkpoint_writer_index_range(index, &save->ranges[i].tensor));
	return checkpoint_index_sort(index);
}

static tutti_status checkpoint_writer_check_done(const struct checkpoint_writer *save)
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

	TRY(checkpoint_writer_check_done(save));
	TRY(staging_finish(save->staging));
	TRY(disk_sync_parent(save->path)); /* on this rank's machine too */
	tutti_status status = checkpoint_writer_make_index(&index, save);
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
