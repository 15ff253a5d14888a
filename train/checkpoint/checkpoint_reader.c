/* Divides a range into the pieces in which it lies. Keeps the headers of files it has read from,
 * and one open file. */

#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORTION_BYTES = 1 << 20 };

struct checkpoint {
	char path[DISK_PATH_BYTES];
	struct checkpoint_index index;
	struct safetensors *headers; /* by rank; file_bytes 0: not read yet */
	int open_rank, fd;           /* the file that is open; -1: no file is */
	char open_path[DISK_PATH_BYTES];
	char *portion; /* PORTION_BYTES, for checksums */
};

static void checkpoint_reader_close_file(struct checkpoint *checkpoint)
{
	if (checkpoint->fd >= 0)
		close(checkpoint->fd);
	checkpoint->fd = checkpoint->open_rank = -1;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	checkpoint_reader_close_file(checkpoint);
	for (int rank = 0; checkpoint->headers && rank < checkpoint->index.world_size; rank++)
		safetensors_finish(&checkpoint->headers[rank]);
	free(checkpoint->headers);
	checkpoint_index_finish(&checkpoint->index);
	free(checkpoint->portion);
	free(checkpoint);
}

static tutti_status checkpoint_reader_prepare(struct checkpoint *checkpoint, const char *path)
{
	checkpoint->fd = checkpoint->open_rank = -1;
	TRY(disk_path(checkpoint->path, "%s", path));
	TRY(checkpoint_dir_read(&checkpoint->index, path));
	checkpoint->portion = malloc(PORTION_BYTES);
	checkpoint->headers =
		calloc((size_t)checkpoint->index.world_size, sizeof *checkpoint->headers);
	if (checkpoint->portion && checkpoint->headers)
		return TUTTI_OK;
	return fail_no_memory("reading '%s'", path_shown(path));
}

tutti_status checkpoint_open(struct checkpoint **checkpoint, const char *path)
{
	TRY(jansson_needed());
	struct checkpoint *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("reading '%s'", path_shown(path));
	tutti_status status = checkpoint_reader_prepare(made, path);
	if (status != TUTTI_OK) {
		checkpoint_close(made);
		return status;
	}
	*checkpoint = made;
	return TUTTI_OK;
}

const struct checkpoint_index *checkpoint_index_of(const struct checkpoint *checkpoint)
{
	return &checkpoint->index;
}

static tutti_status checkpoint_reader_read_header(struct checkpoint *checkpoint, int rank,
						  uint64_t bytes)
{
	const struct checkpoint_file *file = &checkpoint->index.files[rank];
	struct safetensors *header = &checkpoint->headers[rank];

	if (bytes != file->bytes)
		return fail_invalid("'%s' has %" PRIu64 " bytes, but had %" PRIu64
				    " when it was written.",
				    path_shown(checkpoint->open_path), bytes, file->bytes);
	if (header->file_bytes)
		return TUTTI_OK;
	TRY(safetensors_read(header, checkpoint->fd, bytes, checkpoint->open_path));
	uint32_t crc32c = tutti_crc32c(0, header->header, (size_t)header->data_at);
	free(header->header);
	header->header = NULL;
	if (crc32c == file->header_crc32c)
		return TUTTI_OK;
	safetensors_finish(header);
	return fail_invalid("The header of '%s' has CRC-32C %08" PRIx32 " instead of %08" PRIx32
			    ": the file of rank %d is damaged. Remove the folder to load the "
			    "checkpoint before it.",
			    path_shown(checkpoint->open_path), crc32c, file->header_crc32c, rank);
}

/* Opens the rank's file, if it is not the open one, and reads its header once. */
static tutti_status checkpoint_reader_open_file(struct checkpoint *checkpoint, int rank)
{
	char name[CHECKPOINT_FILE_BYTES];
	uint64_t bytes;

	if (checkpoint->open_rank == rank)
		return TUTTI_OK;
	checkpoint_reader_close_file(checkpoint);
	checkpoint_file_name(name, rank, checkpoint->index.world_size);
	TRY(disk_path(checkpoint->open_path, "%s/%s", checkpoint->path, name));
	TRY(disk_open(&checkpoint->fd, &bytes, checkpoint->open_path));
	TRY(checkpoint_reader_read_header(checkpoint, rank, bytes));
	checkpoint->open_rank = rank;
	return TUTTI_OK;
}

/* *at: where the piece lies in the open file. */
static tutti_status checkpoint_reader_place_of(const struct checkpoint *checkpoint, uint64_t *at,
					       const struct checkpoint_tensor *tensor,
					       const struct checkpoint_piece *piece)
{
	const struct safetensors *file = &checkpoint->headers[piece->rank];
	char key[CHECKPOINT_KEY_BYTES];

	checkpoint_key(key, tensor, piece->first);
	const struct safetensor *found = safetensors_find(file, key);
	if (!found || found->type->dtype != (int)tensor->dtype || found->ndim != 1 ||
	    (uint64_t)found->shape[0] != piece->count)
		return fail_invalid("'%s' has no '%s' of the type and size in the index.",
				    path_shown(checkpoint->open_path), key);
	*at = file->data_at + found->begin;
	return TUTTI_OK;
}

/* Bytes begin to end of a piece, and where they go. */
struct wanted {
	uint64_t begin, end;
	char *values;
};

/* Copies the wanted part of these bytes, which begin at at in the piece. */
static void checkpoint_reader_copy(const struct wanted *wanted, uint64_t at, const char *bytes,
				   size_t n)
{
	uint64_t begin = at > wanted->begin ? at : wanted->begin;
	uint64_t end = at + n < wanted->end ? at + n : wanted->end;

	if (begin < end)
		memcpy(wanted->values + (begin - wanted->begin), bytes + (begin - at),
		       (size_t)(end - begin));
}

/* Reads the whole piece in portions, from at on in the open file, and checks its sum. */
static tutti_status checkpoint_reader_read_and_sum(struct checkpoint *checkpoint, uint32_t *crc32c,
						   uint64_t at, uint64_t bytes,
						   const struct wanted *wanted)
{
	for (uint64_t done = 0; done < bytes;) {
		size_t n = bytes - done < PORTION_BYTES ? (size_t)(bytes - done) : PORTION_BYTES;
		TRY(disk_read(checkpoint->fd, checkpoint->open_path, checkpoint->portion, n,
			      at + done));
		*crc32c = tutti_crc32c(*crc32c, checkpoint->portion, n);
		checkpoint_reader_copy(wanted, done, checkpoint->portion, n);
		done += n;
	}
	return TUTTI_OK;
}

static tutti_status checkpoint_reader_read_piece(struct checkpoint *checkpoint,
						 const struct checkpoint_tensor *tensor,
						 struct checkpoint_piece *piece,
						 const struct wanted *wanted)
{
	uint64_t element_bytes = stored_type_of(tensor->dtype)->bits / 8, at = 0;
	uint32_t crc32c = 0;

	TRY(checkpoint_reader_open_file(checkpoint, piece->rank));
	TRY(checkpoint_reader_place_of(checkpoint, &at, tensor, piece));
	if (piece->is_sound)
		return disk_read(checkpoint->fd, checkpoint->open_path, wanted->values,
				 (size_t)(wanted->end - wanted->begin), at + wanted->begin);
	TRY(checkpoint_reader_read_and_sum(checkpoint, &crc32c, at, piece->count * element_bytes,
					   wanted));
	if (crc32c != piece->crc32c)
		return fail_invalid(
			"Elements %" PRIu64 " to %" PRIu64
			" of '%s' (%s), which rank %d wrote to '%s', have CRC-32C %08" PRIx32
			" instead of %08" PRIx32 ": the file is damaged. Remove its folder to load "
			"the checkpoint before it.",
			piece->first, piece->first + piece->count, tensor->name, tensor->kind,
			piece->rank, path_shown(checkpoint->open_path), crc32c, piece->crc32c);
	piece->is_sound = true;
	return TUTTI_OK;
}

/* The first piece that ends after first. */
static size_t checkpoint_reader_piece_at(const struct checkpoint_tensor *tensor, uint64_t first)
{
	size_t low = 0, high = tensor->piece_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (tensor->pieces[middle].first + tensor->pieces[middle].count > first)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

tutti_status checkpoint_read(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
			     uint64_t first, uint64_t count, void *values)
{
	uint64_t element_bytes = stored_type_of(tensor->dtype)->bits / 8;
	char *to = values;

	if (first > tensor->count || count > tensor->count - first)
		return fail_invalid("Elements %" PRIu64 " to %" PRIu64
				    " of '%s' (%s) cannot be read: it has %" PRIu64 " in '%s'.",
				    first, first + count, tensor->name, tensor->kind, tensor->count,
				    path_shown(checkpoint->path));
	for (size_t i = checkpoint_reader_piece_at(tensor, first); count > 0; i++) {
		struct checkpoint_piece *piece = &tensor->pieces[i];
		uint64_t skipped = first - piece->first;
		uint64_t n = piece->count - skipped < count ? piece->count - skipped : count;
		struct wanted wanted = {skipped * element_bytes, (skipped + n) * element_bytes, to};
		TRY(checkpoint_reader_read_piece(checkpoint, tensor, piece, &wanted));
		to += n * element_bytes;
		first += n;
		count -= n;
	}
	return TUTTI_OK;
}
