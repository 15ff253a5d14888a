/* The index of a checkpoint as JSON. */
#include "train/checkpoint/checkpoint_index.h"

#include "train/base/base.h"
#include "train/base/jansson_values.h"
#include "train/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT "tutti checkpoint"
enum { VERSION = 1, SPLIT_VERSION = 2 };

/* Appends value to array. If value is NULL, returns NULL and frees array. */
static json_t *checkpoint_json_append(json_t *array, json_t *value)
{
	if (array && json_array_append_new(array, value) == 0)
		return array;
	json_decref(array);
	return NULL;
}

static json_t *checkpoint_json_of_files(const struct checkpoint_index *index)
{
	json_t *files = json_array();
	char name[CHECKPOINT_FILE_BYTES];

	for (size_t i = 0; files && i < index->file_count; i++) {
		const struct checkpoint_file *file = &index->files[i];
		checkpoint_file_name(name, file->rank, index->world_size);
		files = checkpoint_json_append(files,
					       json_pack("{s:s, s:I, s:I}", "name", name, "bytes",
							 (json_int_t)file->bytes, "header_crc32c",
							 (json_int_t)file->header_crc32c));
	}
	return files;
}

static json_t *checkpoint_json_of_pieces(const struct checkpoint_tensor *tensor, int world_size)
{
	json_t *pieces = json_array();
	char name[CHECKPOINT_FILE_BYTES], key[CHECKPOINT_KEY_BYTES];

	for (size_t i = 0; pieces && i < tensor->piece_count; i++) {
		const struct checkpoint_piece *piece = &tensor->pieces[i];
		checkpoint_file_name(name, piece->rank, world_size);
		checkpoint_key(key, tensor, piece->first);
		pieces = checkpoint_json_append(
			pieces, json_pack("{s:s, s:s, s:I, s:I, s:I}", "file", name, "key", key,
					  "begin", (json_int_t)piece->first, "end",
					  (json_int_t)(piece->first + piece->count), "crc32c",
					  (json_int_t)piece->crc32c));
	}
	return pieces;
}

/* NULL: C order. */
static json_t *checkpoint_json_of_order(struct tensor_order order)
{
	return order.parts > 1 ? json_pack("{s:i, s:i}", "dim", order.dim, "parts", order.parts)
			       : NULL;
}

static int checkpoint_json_version_of(const struct checkpoint_index *index)
{
	for (size_t i = 0; i < index->tensor_count; i++)
		if (index->tensors[i].order.parts > 1)
			return SPLIT_VERSION;
	return VERSION;
}

static json_t *checkpoint_json_of_tensors(const struct checkpoint_index *index)
{
	json_t *tensors = json_array();

	for (size_t i = 0; tensors && i < index->tensor_count; i++) {
		const struct checkpoint_tensor *tensor = &index->tensors[i];
		tensors = checkpoint_json_append(
			tensors,
			json_pack("{s:s, s:s, s:s, s:o, s:o*, s:o}", "kind", tensor->kind, "name",
				  tensor->name, "dtype", stored_type_of(tensor->dtype)->name,
				  "shape", value_of_shape(tensor->ndim, tensor->shape), "split",
				  checkpoint_json_of_order(tensor->order), "pieces",
				  checkpoint_json_of_pieces(tensor, index->world_size)));
	}
	return tensors;
}

/* Finds names that JSON cannot express, so that a later failure can only be lack of memory. */
static tutti_status checkpoint_json_check_names(const struct checkpoint_index *index)
{
	for (size_t i = 0; i < index->tensor_count; i++) {
		json_t *name = json_string(index->tensors[i].name);
		if (!name)
			return fail_invalid("The name '%s' of a saved tensor is not UTF-8.",
					    index->tensors[i].name);
		json_decref(name);
	}
	return TUTTI_OK;
}

tutti_status checkpoint_index_print(const struct checkpoint_index *index, char **text,
				    size_t *bytes)
{
	TRY(checkpoint_json_check_names(index));
	json_t *whole =
		json_pack("{s:s, s:i, s:I, s:i, s:o, s:o}", "format", FORMAT, "version",
			  checkpoint_json_version_of(index), "step", (json_int_t)index->step,
			  "world_size", index->world_size, "files", checkpoint_json_of_files(index),
			  "tensors", checkpoint_json_of_tensors(index));
	char *printed = whole ? json_dumps(whole, JSON_INDENT(1)) : NULL;
	json_decref(whole);
	if (!printed)
		return fail_no_memory("the index of a checkpoint");
	*text = printed;
	*bytes = strlen(printed);
	return TUTTI_OK;
}

/* The text that is read, for messages. */
struct reading {
	struct checkpoint_index *index;
	const char *path;
};

static tutti_status checkpoint_json_wrong(const struct reading *in, const char *what,
					  const char *name)
{
	return fail_invalid("The index '%s' is damaged: %s%s%.128s%s.", path_shown(in->path), what,
			    *name ? " '" : "", name, *name ? "'" : "");
}

static bool checkpoint_json_number(uint64_t *to, const json_t *object, const char *key)
{
	return value_number(to, json_object_get(object, key));
}

/* "" if there is none. */
static const char *checkpoint_json_string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

/* The rank of a file's name. No other name than the one a save writes is accepted, so no other file
 * is ever opened. */
static bool checkpoint_json_rank_of(const struct reading *in, const char *name, int *rank)
{
	char expected[CHECKPOINT_FILE_BYTES];
	long found = strlen(name) > 5 ? strtol(name + 5, NULL, 10) : -1;

	if (found < 0 || found >= in->index->world_size)
		return false;
	checkpoint_file_name(expected, (int)found, in->index->world_size);
	*rank = (int)found;
	return strcmp(name, expected) == 0;
}

static tutti_status checkpoint_json_parse_files(const struct reading *in, const json_t *files)
{
	struct checkpoint_index *index = in->index;
	size_t n = json_array_size(files);

	if (!json_is_array(files) || n > (size_t)index->world_size)
		return checkpoint_json_wrong(in, "it has no list of files, or one that is too long",
					     "");
	index->files = calloc(n ? n : 1, sizeof *index->files);
	if (!index->files)
		return fail_no_memory("the index of a checkpoint");
	for (; index->file_count < n; index->file_count++) {
		const json_t *entry = json_array_get(files, index->file_count);
		struct checkpoint_file *file = &index->files[index->file_count];
		uint64_t crc;
		if (!checkpoint_json_rank_of(in, checkpoint_json_string(entry, "name"),
					     &file->rank))
			return checkpoint_json_wrong(in, "no rank has a file of this name:",
						     checkpoint_json_string(entry, "name"));
		if (!checkpoint_json_number(&file->bytes, entry, "bytes") ||
		    !checkpoint_json_number(&crc, entry, "header_crc32c") || crc > UINT32_MAX)
			return checkpoint_json_wrong(in, "it has no size or sum for",
						     checkpoint_json_string(entry, "name"));
		file->header_crc32c = (uint32_t)crc;
	}
	return TUTTI_OK;
}

static tutti_status checkpoint_json_parse_piece(const struct reading *in,
						struct checkpoint_tensor *tensor,
						const json_t *entry)
{
	struct checkpoint_piece piece = {0};
	char key[CHECKPOINT_KEY_BYTES];
	uint64_t end, crc;

	if (!checkpoint_json_number(&piece.first, entry, "begin") ||
	    !checkpoint_json_number(&end, entry, "end") || end <= piece.first ||
	    end > tensor->count || !checkpoint_json_number(&crc, entry, "crc32c") ||
	    crc > UINT32_MAX)
		return checkpoint_json_wrong(in, "a piece has an invalid begin, end or crc32c in",
					     tensor->name);
	piece.count = end - piece.first;
	piece.crc32c = (uint32_t)crc;
	checkpoint_key(key, tensor, piece.first);
	if (!checkpoint_json_rank_of(in, checkpoint_json_string(entry, "file"), &piece.rank) ||
	    strcmp(checkpoint_json_string(entry, "key"), key) != 0)
		return checkpoint_json_wrong(in, "a piece has an invalid file or key in",
					     tensor->name);
	return checkpoint_piece_add(tensor, piece);
}

static bool checkpoint_json_parse_order(struct checkpoint_tensor *tensor, const json_t *split)
{
	uint64_t dim, parts;

	if (!split)
		return true;
	if (!checkpoint_json_number(&dim, split, "dim") ||
	    !checkpoint_json_number(&parts, split, "parts") || dim >= (uint64_t)tensor->ndim ||
	    parts < 2 || parts > (uint64_t)tensor->shape[dim] || parts > CHECKPOINT_RANKS)
		return false;
	tensor->order = (struct tensor_order){(int)dim, (int)parts};
	return true;
}

static tutti_status checkpoint_json_parse_tensor(const struct reading *in, const json_t *entry)
{
	const char *kind = checkpoint_json_string(entry, "kind"),
		   *name = checkpoint_json_string(entry, "name");
	const struct stored_type *type = stored_type_named(checkpoint_json_string(entry, "dtype"));
	const json_t *pieces = json_object_get(entry, "pieces");
	struct checkpoint_tensor like = {0};

	if (strlen(kind) >= sizeof like.kind || strlen(name) >= sizeof like.name)
		return checkpoint_json_wrong(in, "this tensor name is too long:", name);
	if (!type || type->dtype < 0)
		return checkpoint_json_wrong(in, "it has an unknown type for", name);
	like.dtype = (tutti_dtype)type->dtype;
	strcpy(like.kind, kind);
	strcpy(like.name, name);
	if (!value_shape(&like.ndim, like.shape, MODEL_DIMS, json_object_get(entry, "shape")) ||
	    checkpoint_tensor_check(&like) != TUTTI_OK)
		return checkpoint_json_wrong(in, "it has an invalid kind, name or shape for", name);
	if (!checkpoint_json_parse_order(&like, json_object_get(entry, "split")))
		return checkpoint_json_wrong(in, "it has an invalid split of", name);
	struct checkpoint_tensor *tensor = checkpoint_index_grow(in->index, &like);
	if (!tensor)
		return TUTTI_ERR_MEMORY;
	if (!json_is_array(pieces))
		return checkpoint_json_wrong(in, "it has no pieces of", name);
	for (size_t i = 0; i < json_array_size(pieces); i++)
		TRY(checkpoint_json_parse_piece(in, tensor, json_array_get(pieces, i)));
	return TUTTI_OK;
}

static tutti_status checkpoint_json_parse_whole(const struct reading *in, const json_t *whole)
{
	const json_t *tensors = json_object_get(whole, "tensors");
	uint64_t version, step, world_size;

	if (strcmp(checkpoint_json_string(whole, "format"), FORMAT) != 0)
		return checkpoint_json_wrong(in, "its format is not '" FORMAT "'", "");
	if (!checkpoint_json_number(&version, whole, "version") || version < VERSION ||
	    version > SPLIT_VERSION)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "The index '%s' is of another version than %d and %d, which this "
			    "build reads.",
			    path_shown(in->path), VERSION, SPLIT_VERSION);
	if (!checkpoint_json_number(&step, whole, "step") ||
	    !checkpoint_json_number(&world_size, whole, "world_size") || world_size < 1 ||
	    world_size > CHECKPOINT_RANKS)
		return checkpoint_json_wrong(in, "it has no step, or no world_size", "");
	in->index->step = (int64_t)step;
	in->index->world_size = (int)world_size;
	TRY(checkpoint_json_parse_files(in, json_object_get(whole, "files")));
	if (!json_is_array(tensors))
		return checkpoint_json_wrong(in, "it has no list of tensors", "");
	for (size_t i = 0; i < json_array_size(tensors); i++)
		TRY(checkpoint_json_parse_tensor(in, json_array_get(tensors, i)));
	if (checkpoint_json_version_of(in->index) > (int)version)
		return checkpoint_json_wrong(
			in, "its version 1 has no splits, but a tensor has one", "");
	return checkpoint_index_sort(in->index);
}

tutti_status checkpoint_index_parse(struct checkpoint_index *index, const char *path,
				    const char *text, size_t bytes)
{
	struct checkpoint_index read = {0};
	struct reading in = {&read, path};
	char why[200];
	json_t *whole = json_text_read(text, bytes, why);

	if (!whole)
		return checkpoint_json_wrong(&in, why, "");
	tutti_status status = checkpoint_json_parse_whole(&in, whole);
	json_decref(whole);
	if (status != TUTTI_OK) {
		checkpoint_index_finish(&read);
		return status;
	}
	*index = read;
	return TUTTI_OK;
}
