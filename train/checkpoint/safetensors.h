/* One safetensors file: an 8-byte length, that much JSON, the tensors' bytes. Which tensors lie
 * where; the bytes themselves are read and written by the caller, at file->data_at + tensor->begin,
 * so that many ranks may write one file. (huggingface/safetensors, README: the format.)
 *
 *   safetensors.c       the layout of a file to be written, and of one that is there
 *   safetensors_type.c  the types that the format names
 *   safetensors_json.c  the header as text (no_jansson.c: there is no jansson in this build) */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include "train/model/model.h"

/* Bits, since the format has types of 4 and 6. dtype -1: none of ours. */
struct stored_type {
	char name[12];
	unsigned bits;
	int dtype;
};
const struct stored_type *stored_type_of(tutti_dtype dtype);
/* NULL: there is none of that name. */
const struct stored_type *stored_type_named(const char *name);
/* The product of the shape. false: more than 2^62 on the way to it, or a negative dimension. */
bool stored_count(uint64_t *count, int ndim, const int64_t *shape);

struct safetensor {
	char *name;
	const struct stored_type *type;
	int ndim;
	int64_t shape[MODEL_DIMS];
	uint64_t begin, end; /* bytes, from data_at */
};

enum { SAFETENSORS_HEADER_LIMIT = 100000000 }; /* bytes of JSON, as the format has it */

struct safetensors {
	struct safetensor *tensors; /* sorted by name */
	size_t count;
	uint64_t data_at, file_bytes;
	char *header; /* the first data_at bytes of the file */
};

/* The layout of a file with these tensors, whose begin and end are found here: no gaps, types of
 * the largest alignment first, then by name. The same arguments give the same bytes on every rank.
 * format: what "__metadata__" has under that word ("pt" is asked for by some readers), or NULL.
 * INVALID, MEMORY, UNSUPPORTED (a build without jansson) leave nothing to free. path is for
 * messages. */
tutti_status safetensors_plan(struct safetensors *file, const char *path,
			      const struct safetensor *tensors, size_t count, const char *format);
/* What the open file has. Trusts nothing: INVALID names the file and the tensor that is wrong. */
tutti_status safetensors_read(struct safetensors *file, int fd, uint64_t file_bytes,
			      const char *path);
void safetensors_finish(struct safetensors *file);
/* NULL: there is none. */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);

/* ---- between the files above ---- */
/* tensors are in the order of their places: file->header is made. */
tutti_status safetensors_print(struct safetensors *file, const char *path, const char *format);
/* Tensors as the bytes of JSON have them, of any order and with any places. */
tutti_status safetensors_parse(struct safetensors *file, const char *path, const char *json,
			       size_t bytes);
/* The tensors, as parsed, of a file with so many bytes of data: one behind the other without gap or
 * overlap, to the end, each of its shape's size. Sorts them by name. */
tutti_status safetensors_check(struct safetensors *file, const char *path, uint64_t data_bytes);

#endif
