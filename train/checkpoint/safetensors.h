/* One safetensors file: an 8-byte length, that much JSON, the tensors' bytes
 * (huggingface/safetensors defines the format). These functions handle the places of tensors. The
 * caller reads and writes the bytes, at file->data_at + tensor->begin, so that many ranks may write
 * one file.
 *
 *   safetensors.c       the types that the format names; the layout of a new file, and of an
 *                       existing one
 *   safetensors_json.c  the header as text; no_jansson.c in a build without jansson */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include "train/model/model.h"

/* UNSUPPORTED in a build without jansson. Called before anything is written. */
tutti_status jansson_needed(void);

/* Bits, since the format has types of 4 and 6. dtype -1: tutti has no such type. */
struct stored_type {
	char name[12];
	unsigned bits;
	int dtype;
};
const struct stored_type *stored_type_of(tutti_dtype dtype);
/* NULL if there is none. */
const struct stored_type *stored_type_named(const char *name);
/* The product of the shape. False: above 2^62, or a negative dimension. */
bool stored_count(uint64_t *count, int ndim, const int64_t *shape);

struct safetensor {
	char *name;
	const struct stored_type *type;
	int ndim;
	int64_t shape[MODEL_DIMS];
	uint64_t begin, end; /* bytes, from data_at */
};

enum { SAFETENSORS_HEADER_LIMIT = 100000000 }; /* bytes of JSON: the format's limit */

struct safetensors {
	struct safetensor *tensors; /* sorted by name */
	size_t count;
	uint64_t data_at, file_bytes;
	char *header; /* the first data_at bytes of the file */
};

/* Plans a file of these tensors, and sets their begin and end: without gaps, types of the largest
 * alignment first, then by name. The same arguments give the same bytes on every rank. format: the
 * value of "format" in "__metadata__" (some readers need "pt"), or NULL. path is for messages.
 * INVALID, MEMORY, UNSUPPORTED (no jansson) leave nothing to free. */
tutti_status safetensors_plan(struct safetensors *file, const char *path,
			      const struct safetensor *tensors, size_t count, const char *format);
/* Reads the header of an open file, which is not trusted. INVALID names the file and the tensor. */
tutti_status safetensors_read(struct safetensors *file, int fd, uint64_t file_bytes,
			      const char *path);
void safetensors_finish(struct safetensors *file);
/* NULL if there is none. */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);

/* Makes file->header. The tensors are in the order of their places. */
tutti_status safetensors_print(struct safetensors *file, const char *path, const char *format);
/* Reads tensors from JSON, in any order and with any places. */
tutti_status safetensors_parse(struct safetensors *file, const char *path, const char *json,
			       size_t bytes);
/* Checks the parsed tensors of a file with so many bytes of data: contiguous, without overlap, up
 * to the end, each of its shape's size. Sorts them by name. */
tutti_status safetensors_check(struct safetensors *file, const char *path, uint64_t data_bytes);

#endif
