/* The tables of an index: sorts them, merges those of all ranks, and checks that they are complete.
 */
#include "train/checkpoint/checkpoint_index.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void checkpoint_file_name(char name[CHECKPOINT_FILE_BYTES], int rank, int world_size)
{
	snprintf(name, CHECKPOINT_FILE_BYTES, "part-%05d-of-%05d.safetensors", rank, world_size);
}

void checkpoint_key(char key[CHECKPOINT_KEY_BYTES], const struct checkpoint_tensor *tensor,
		    uint64_t first)
{
	snprintf(key, CHECKPOINT_KEY_BYTES, "%s/%s@%" PRIu64, tensor->kind, tensor->name, first);
}

/* The text, with its end, has at most limit bytes. */
static bool checkpoint_index_fits(const char *text, size_t limit)
{
	size_t n = strnlen(text, limit);
	return n > 0 && n < limit;
}

tutti_status checkpoint_tensor_check(struct checkpoint_tensor *tensor)
{
	const char *allowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-";

	if (!checkpoint_index_fits(tensor->kind, CHECKPOINT_KIND_BYTES) ||
	    strspn(tensor->kind, allowed) != strlen(tensor->kind))
		return fail_invalid(
			"The kind '%.31s' of a saved tensor is not 1 to 31 characters of '%s'.",
			tensor->kind, allowed);
	if (!checkpoint_index_fits(tensor->name, MODEL_NAME_BYTES))
		return fail_invalid(
			"The name '%.40s...' of a saved tensor does not have 1 to %d bytes.",
			tensor->name, MODEL_NAME_BYTES - 1);
	if (tensor->ndim < 0 || tensor->ndim > MODEL_DIMS ||
	    !stored_count(&tensor->count, tensor->ndim, tensor->shape) ||
	    tensor->count > UINT64_C(1) << 59)
		return fail_invalid("The shape of '%s' (%s) cannot be saved.", tensor->name,
				    tensor->kind);
	return TUTTI_OK;
}

void checkpoint_index_finish(struct checkpoint_index *index)
{
	for (size_t i = 0; i < index->tensor_count; i++)
		free(index->tensors[i].pieces);
	free(index->tensors);
	free(index->files);
	memset(index, 0, sizeof *index);
}

static const char no_room[] = "the index of a checkpoint";

struct checkpoint_tensor *checkpoint_index_grow(struct checkpoint_index *index,
						const struct checkpoint_tensor *like)
{
	if (array_grow(&index->tensors, index->tensor_count, sizeof *index->tensors, no_room) !=
	    TUTTI_OK)
		return NULL;
	struct checkpoint_tensor *added = &index->tensors[index->tensor_count++];
	*added = *like;
	added->pieces = NULL;
	added->piece_count = 0;
	return added;
}

tutti_status checkpoint_piece_add(struct checkpoint_tensor *tensor, struct checkpoint_piece piece)
{
	TRY(array_grow(&tensor->pieces, tensor->piece_count, sizeof piece, no_room));
	tensor->pieces[tensor->piece_count++] = piece;
	return TUTTI_OK;
}

int checkpoint_tensor_compare(const void *a, const void *b)
{
	const struct checkpoint_tensor *x = a, *y = b;
	int kinds = strcmp(x->kind, y->kind);
	return kinds ? kinds : strcmp(x->name, y->name);
}

static int checkpoint_index_compare_pieces(const void *a, const void *b)
{
	const struct checkpoint_piece *x = a, *y = b;
	return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->rank - y->rank;
}

/* Sorts the pieces. INVALID: a piece is beyond the tensor's end, or saved twice. */
static tutti_status checkpoint_index_sort_pieces(struct checkpoint_tensor *tensor)
{
	if (tensor->piece_count > 1)
		qsort(tensor->pieces, tensor->piece_count, sizeof *tensor->pieces,
		      checkpoint_index_compare_pieces);
	for (size_t i = 0; i < tensor->piece_count; i++) {
		const struct checkpoint_piece *piece = &tensor->pieces[i];
		if (piece->count == 0 || piece->first > tensor->count ||
		    piece->count > tensor->count - piece->first)
			return fail_invalid("Rank %d has saved elements %" PRIu64 " to %" PRIu64
					    " of '%s' (%s), which has only %" PRIu64 ".",
					    piece->rank, piece->first, piece->first + piece->count,
					    tensor->name, tensor->kind, tensor->count);
		const struct checkpoint_piece *before = i ? piece - 1 : NULL;
		if (before && before->first + before->count > piece->first)
			return fail_invalid(
				"Element %" PRIu64
				" of '%s' (%s) is saved twice, by rank %d and by rank %d.",
				piece->first, tensor->name, tensor->kind, before->rank,
				piece->rank);
	}
	return TUTTI_OK;
}

tutti_status checkpoint_index_sort(struct checkpoint_index *index)
{
	if (index->tensor_count > 1)
		qsort(index->tensors, index->tensor_count, sizeof *index->tensors,
		      checkpoint_tensor_compare);
	for (size_t i = 0; i < index->tensor_count; i++) {
		struct checkpoint_tensor *tensor = &index->tensors[i];
		TRY(checkpoint_index_sort_pieces(tensor));
		if (i > 0 && checkpoint_tensor_compare(tensor - 1, tensor) == 0)
			return fail_invalid("'%s' (%s) is saved twice by one rank.", tensor->name,
					    tensor->kind);
	}
	return TUTTI_OK;
}

struct checkpoint_tensor *checkpoint_index_find(const struct checkpoint_index *index,
						const char *kind, const char *name)
{
	struct checkpoint_tensor key;

	if (strlen(kind) >= sizeof key.kind || strlen(name) >= sizeof key.name ||
	    index->tensor_count == 0)
		return NULL;
	strcpy(key.kind, kind);
	strcpy(key.name, name);
	return bsearch(&key, index->tensors, index->tensor_count, sizeof key,
		       checkpoint_tensor_compare);
}

static tutti_status checkpoint_index_append(struct checkpoint_index *all,
					    struct checkpoint_index *part)
{
	if (all->world_size && (all->step != part->step || all->world_size != part->world_size))
		return fail(TUTTI_ERR_MISMATCH,
			    "One rank saves step %" PRId64 " of %d ranks, another step %" PRId64
			    " of %d: all ranks save the same step.",
			    all->step, all->world_size, part->step, part->world_size);
	all->step = part->step;
	all->world_size = part->world_size;
	for (size_t i = 0; i < part->file_count; i++) {
		TRY(array_grow(&all->files, all->file_count, sizeof *all->files, no_room));
		all->files[all->file_count++] = part->files[i];
	}
	for (size_t i = 0; i < part->tensor_count; i++) {
		struct checkpoint_tensor *added = checkpoint_index_grow(all, &part->tensors[i]);
		if (!added)
			return TUTTI_ERR_MEMORY;
		added->pieces = part->tensors[i].pieces;
		added->piece_count = part->tensors[i].piece_count;
		part->tensors[i].pieces = NULL; /* all's from now on */
	}
	return TUTTI_OK;
}

tutti_status checkpoint_index_add(struct checkpoint_index *all, struct checkpoint_index *part)
{
	tutti_status status = checkpoint_index_append(all, part);

	checkpoint_index_finish(part);
	return status;
}

static int checkpoint_index_compare_files(const void *a, const void *b)
{
	return ((const struct checkpoint_file *)a)->rank -
	       ((const struct checkpoint_file *)b)->rank;
}

/* Copies the pieces of another rank's tensor of that name. */
static tutti_status checkpoint_index_add_pieces(struct checkpoint_tensor *into,
						const struct checkpoint_tensor *from)
{
	if (into->dtype != from->dtype || into->ndim != from->ndim ||
	    into->order.dim != from->order.dim || into->order.parts != from->order.parts ||
	    memcmp(into->shape, from->shape, (size_t)into->ndim * sizeof *into->shape) != 0)
		return fail(TUTTI_ERR_MISMATCH,
			    "'%s' (%s) does not have the same type and shape on all ranks "
			    "that save it.",
			    into->name, into->kind);
	for (size_t i = 0; i < from->piece_count; i++)
		TRY(checkpoint_piece_add(into, from->pieces[i]));
	return TUTTI_OK;
}

tutti_status checkpoint_index_join(struct checkpoint_index *all)
{
	struct checkpoint_tensor *last = NULL;

	if (all->file_count > 1)
		qsort(all->files, all->file_count, sizeof *all->files,
		      checkpoint_index_compare_files);
	if (all->tensor_count > 1)
		qsort(all->tensors, all->tensor_count, sizeof *all->tensors,
		      checkpoint_tensor_compare);
	for (size_t i = 0; i < all->tensor_count; i++) {
		struct checkpoint_tensor *next = &all->tensors[i];
		if (last && checkpoint_tensor_compare(last, next) == 0) {
			TRY(checkpoint_index_add_pieces(last, next));
			free(next->pieces);
			next->pieces = NULL;
			continue;
		}
		last = last ? last + 1 : next;
		if (last != next) {
			*last = *next;
			next->pieces = NULL;
		}
	}
	all->tensor_count = last ? (size_t)(last - all->tensors) + 1 : 0;
	for (size_t i = 0; i < all->tensor_count; i++)
		TRY(checkpoint_index_sort_pieces(&all->tensors[i]));
	return TUTTI_OK;
}

static tutti_status checkpoint_index_check_tensor(const struct checkpoint_tensor *tensor)
{
	uint64_t at = 0;

	for (size_t i = 0; i <= tensor->piece_count; i++) {
		const struct checkpoint_piece *next =
			i < tensor->piece_count ? &tensor->pieces[i] : NULL;
		uint64_t first = next ? next->first : tensor->count;
		if (first != at)
			return fail_invalid("No rank has saved elements %" PRIu64 " to %" PRIu64
					    " of '%s' (%s).",
					    at, first, tensor->name, tensor->kind);
		at = next ? next->first + next->count : at;
	}
	return TUTTI_OK;
}

tutti_status checkpoint_index_check(const struct checkpoint_index *index)
{
	for (int rank = 0; rank < index->world_size; rank++)
		if ((size_t)rank >= index->file_count || index->files[rank].rank != rank)
			return fail_invalid(
				"The index of step %" PRId64
				" has no file of rank %d, of %d ranks, or one of them twice.",
				index->step, rank, index->world_size);
	if (index->file_count != (size_t)index->world_size)
		return fail_invalid("The index of step %" PRId64 " has %zu files of %d ranks.",
				    index->step, index->file_count, index->world_size);
	for (size_t i = 0; i < index->tensor_count; i++)
		TRY(checkpoint_index_check_tensor(&index->tensors[i]));
	return TUTTI_OK;
}
