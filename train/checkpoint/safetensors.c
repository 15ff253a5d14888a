/* Tensors in a safetensors file: their types, and their places, which are planned for a new file
 * and checked for an existing one. */
#include "train/checkpoint/safetensors.h"

#include "train/base/base.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

/* The element types that the safetensors format names. */

static const struct stored_type types[] = {
	{"F32", 32, TUTTI_F32},
	{"F64", 64, TUTTI_F64},
	{"F16", 16, TUTTI_F16},
	{"BF16", 16, TUTTI_BF16},
	{"F8_E4M3", 8, TUTTI_F8_E4M3},
	{"F8_E5M2", 8, TUTTI_F8_E5M2},
	{"I8", 8, TUTTI_I8},
	{"U8", 8, TUTTI_U8},
	{"I16", 16, TUTTI_I16},
	{"U16", 16, TUTTI_U16},
	{"I32", 32, TUTTI_I32},
	{"U32", 32, TUTTI_U32},
	{"I64", 64, TUTTI_I64},
	{"U64", 64, TUTTI_U64},
	{"BOOL", 8, -1},
	{"C64", 64, -1},
	{"F8_E8M0", 8, -1},
	{"F6_E2M3", 6, -1},
	{"F6_E3M2", 6, -1},
	{"F4", 4, -1},
};

enum { TYPES = sizeof types / sizeof *types };

const struct stored_type *stored_type_of(tutti_dtype dtype)
{
	for (int i = 0; i < TYPES; i++)
		if (types[i].dtype == (int)dtype)
			return &types[i];
	assert(!"a dtype that the format does not have");
	return NULL;
}

const struct stored_type *stored_type_named(const char *name)
{
	for (int i = 0; i < TYPES; i++)
		if (strcmp(types[i].name, name) == 0)
			return &types[i];
	return NULL;
}

bool stored_count(uint64_t *count, int ndim, const int64_t *shape)
{
	const uint64_t most = UINT64_C(1) << 62;
	uint64_t product = 1;

	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return false;
		if (shape[i] > 0 && product > most / (uint64_t)shape[i])
			return false;
		product *= (uint64_t)shape[i];
	}
	*count = product;
	return true;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "values are written as they lie in memory");

static int safetensors_compare_names(const void *a, const void *b)
{
	return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

/* ---- places ---- */

/* The order of the reference writer: every tensor is aligned to its own type. */
static int safetensors_compare_alignments(const void *a, const void *b)
{
	unsigned x = ((const struct safetensor *)a)->type->bits;
	unsigned y = ((const struct safetensor *)b)->type->bits;
	return x != y ? (x < y ? 1 : -1) : safetensors_compare_names(a, b);
}

static int safetensors_compare_places(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return safetensors_compare_names(a, b);
}

static void safetensors_sort(struct safetensors *file, int (*compare)(const void *, const void *))
{
	if (file->count > 1)
		qsort(file->tensors, file->count, sizeof *file->tensors, compare);
}

void safetensors_finish(struct safetensors *file)
{
	for (size_t i = 0; i < file->count; i++)
		free(file->tensors[i].name);
	free(file->tensors);
	free(file->header);
	memset(file, 0, sizeof *file);
}

const struct safetensor *safetensors_find(const struct safetensors *file, const char *name)
{
	const struct safetensor key = {.name = (char *)name};

	if (file->count == 0)
		return NULL;
	return bsearch(&key, file->tensors, file->count, sizeof key, safetensors_compare_names);
}

/* The bytes of a tensor of that shape. */
static tutti_status safetensors_size_of(uint64_t *bytes, const struct safetensor *tensor,
					const char *path)
{
	uint64_t count;

	if (!stored_count(&count, tensor->ndim, tensor->shape) ||
	    count > (UINT64_C(1) << 62) / tensor->type->bits)
		return fail_invalid(
			"'%s': the shape of '%.128s' has more elements than a file can hold.",
			path_shown(path), tensor->name);
	if (count * tensor->type->bits % 8)
		return fail_invalid("'%s': '%.128s' ends in the middle of a byte.",
				    path_shown(path), tensor->name);
	*bytes = count * tensor->type->bits / 8;
	return TUTTI_OK;
}

static tutti_status safetensors_copy_tensors(struct safetensors *file,
					     const struct safetensor *tensors, size_t count)
{
	file->tensors = calloc(count ? count : 1, sizeof *file->tensors);
	for (; file->tensors && file->count < count; file->count++) {
		struct safetensor *tensor = &file->tensors[file->count];
		*tensor = tensors[file->count];
		tensor->name = strdup(tensors[file->count].name);
		if (!tensor->name)
			break;
	}
	return file->count == count && file->tensors
		       ? TUTTI_OK
		       : fail_no_memory("a list of %zu tensors", count);
}

static tutti_status safetensors_place(struct safetensors *file, const char *path)
{
	uint64_t at = 0;

	for (size_t i = 0; i < file->count; i++) {
		struct safetensor *tensor = &file->tensors[i];
		uint64_t bytes = 0;
		TRY(safetensors_size_of(&bytes, tensor, path));
		if (bytes > (UINT64_C(1) << 62) - at)
			return fail_invalid("'%s' would have more than 2^62 bytes.",
					    path_shown(path));
		tensor->begin = at;
		tensor->end = at += bytes;
	}
	file->file_bytes = at; /* the header is added when it is made */
	return TUTTI_OK;
}

static tutti_status safetensors_plan_one(struct safetensors *file, const char *path,
					 const char *format)
{
	safetensors_sort(file, safetensors_compare_names);
	for (size_t i = 0; i < file->count; i++) {
		const char *name = file->tensors[i].name;
		if (strcmp(name, "__metadata__") == 0)
			return fail_invalid(
				"A tensor of '%s' is named '%s', which the format reserves.",
				path_shown(path), name);
		if (i > 0 && strcmp(file->tensors[i - 1].name, name) == 0)
			return fail_invalid("'%s' would have two tensors '%.128s'.",
					    path_shown(path), name);
	}
	safetensors_sort(file, safetensors_compare_alignments);
	TRY(safetensors_place(file, path));
	TRY(safetensors_print(file, path, format));
	file->file_bytes += file->data_at;
	safetensors_sort(file, safetensors_compare_names);
	return TUTTI_OK;
}

tutti_status safetensors_plan(struct safetensors *file, const char *path,
			      const struct safetensor *tensors, size_t count, const char *format)
{
	struct safetensors made = {0};
	tutti_status status = safetensors_copy_tensors(&made, tensors, count);

	if (status == TUTTI_OK)
		status = safetensors_plan_one(&made, path, format);
	if (status != TUTTI_OK) {
		safetensors_finish(&made);
		return status;
	}
	*file = made;
	return TUTTI_OK;
}

tutti_status safetensors_check(struct safetensors *file, const char *path, uint64_t data_bytes)
{
	uint64_t at = 0;

	safetensors_sort(file, safetensors_compare_places);
	for (size_t i = 0; i < file->count; i++) {
		const struct safetensor *tensor = &file->tensors[i];
		const char *what = tensor->begin < at   ? "overlaps the one before it"
				   : tensor->begin > at ? "leaves a gap behind the one before it"
				   : tensor->end < tensor->begin || tensor->end > data_bytes
					   ? "ends outside of the file"
					   : NULL;
		uint64_t bytes = 0;
		if (what)
			return fail_invalid("'%s': '%.128s', bytes %llu to %llu of %llu, %s: the "
					    "file is damaged.",
					    path_shown(path), tensor->name,
					    (unsigned long long)tensor->begin,
					    (unsigned long long)tensor->end,
					    (unsigned long long)data_bytes, what);
		TRY(safetensors_size_of(&bytes, tensor, path));
		if (bytes != tensor->end - tensor->begin)
			return fail_invalid(
				"'%s': '%.128s' has %llu bytes, but its shape in %s has %llu.",
				path_shown(path), tensor->name,
				(unsigned long long)(tensor->end - tensor->begin),
				tensor->type->name, (unsigned long long)bytes);
		at = tensor->end;
	}
	if (at != data_bytes)
		return fail_invalid("'%s' has %llu bytes of data, but its tensors have %llu: it "
				    "was truncated or extended.",
				    path_shown(path), (unsigned long long)data_bytes,
				    (unsigned long long)at);
	safetensors_sort(file, safetensors_compare_names);
	return TUTTI_OK;
}

/* Reads the length of the header and the header. */
static tutti_status safetensors_read_header(struct safetensors *file, int fd, uint64_t file_bytes,
					    const char *path)
{
	uint64_t bytes; /* of the text; the file begins with it */

	TRY(disk_read(fd, path, &bytes, sizeof bytes, 0));
	if (file_bytes < sizeof bytes || bytes > SAFETENSORS_HEADER_LIMIT ||
	    bytes > file_bytes - sizeof bytes)
		return fail_invalid(
			"The header of '%s' has %llu bytes, of a file of %llu; at most %d are "
			"allowed. The file is damaged, or not a safetensors file.",
			path_shown(path), (unsigned long long)bytes, (unsigned long long)file_bytes,
			SAFETENSORS_HEADER_LIMIT);
	file->data_at = sizeof bytes + bytes;
	file->file_bytes = file_bytes;
	file->header = malloc((size_t)file->data_at);
	if (!file->header)
		return fail_no_memory("the header of '%s'", path_shown(path));
	return disk_read(fd, path, file->header, (size_t)file->data_at, 0);
}

tutti_status safetensors_read(struct safetensors *file, int fd, uint64_t file_bytes,
			      const char *path)
{
	struct safetensors read = {0};
	tutti_status status = safetensors_read_header(&read, fd, file_bytes, path);

	if (status == TUTTI_OK)
		status = safetensors_parse(&read, path, read.header + 8, (size_t)read.data_at - 8);
	if (status == TUTTI_OK)
		status = safetensors_check(&read, path, file_bytes - read.data_at);
	if (status != TUTTI_OK) {
		safetensors_finish(&read);
		return status;
	}
	*file = read;
	return TUTTI_OK;
}
