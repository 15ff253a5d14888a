/* The index of a checkpoint: which flat elements of which tensor lie in which rank's file, and
 * their sums. A rank's own index has only its file and its pieces; rank 0 merges the indexes of all
 * ranks. As JSON:
 *
 *     {"format": "tutti checkpoint", "version": 1, "step": 200, "world_size": 4,
 *      "files": [{"name": "part-00000-of-00004.safetensors", "bytes": 1234, "header_crc32c": 5},
 *                ...],
 *      "tensors": [{"kind": "param", "name": "h.0.w", "dtype": "F32", "shape": [2, 3],
 *                   "pieces": [{"file": "part-00000-of-00004.safetensors",
 *                               "key": "param/h.0.w@0", "begin": 0, "end": 6, "crc32c": 7},
 *                              ...]}, ...]}
 *
 * A tensor that was split over the ranks of a mesh has "split": {"dim": 1, "parts": 2} after its
 * shape: its elements are counted piece after piece. Then the version is 2.
 *
 * A piece is a tensor of one dimension, named key, in a safetensors file. A tensor of no elements
 * has no pieces. */
#ifndef TRAIN_CHECKPOINT_INDEX_H
#define TRAIN_CHECKPOINT_INDEX_H

#include "train/model/model.h"

enum {
	CHECKPOINT_KIND_BYTES = 32,
	CHECKPOINT_KEY_BYTES = CHECKPOINT_KIND_BYTES + MODEL_NAME_BYTES + 24,
	CHECKPOINT_FILE_BYTES = 48,
	CHECKPOINT_RANKS = 1 << 20, /* at most */
};

struct checkpoint_piece {
	uint64_t first, count; /* flat elements; never 0 of them */
	int rank;              /* whose file it is in */
	uint32_t crc32c;
	bool is_sound; /* its sum was right when it was read */
};

struct checkpoint_tensor {
	char kind[CHECKPOINT_KIND_BYTES], name[MODEL_NAME_BYTES];
	tutti_dtype dtype;
	int ndim;
	int64_t shape[MODEL_DIMS];
	struct tensor_order order;       /* in which elements are counted */
	uint64_t count;                  /* of the shape */
	struct checkpoint_piece *pieces; /* by first */
	size_t piece_count;
};

struct checkpoint_file {
	int rank;
	uint64_t bytes;
	uint32_t header_crc32c; /* of everything before the data */
};

struct checkpoint_index {
	int64_t step;
	int world_size;
	struct checkpoint_file *files; /* by rank */
	size_t file_count;
	struct checkpoint_tensor *tensors; /* by kind and name */
	size_t tensor_count;
};

void checkpoint_file_name(char name[CHECKPOINT_FILE_BYTES], int rank, int world_size);
void checkpoint_key(char key[CHECKPOINT_KEY_BYTES], const struct checkpoint_tensor *tensor,
		    uint64_t first);
/* By kind and name, for qsort. */
int checkpoint_tensor_compare(const void *a, const void *b);
/* Sets tensor->count. INVALID unless kind is 1 to 31 of a-z, 0-9, '_', '.' and '-', the name fits,
 * and the shape has a count. */
tutti_status checkpoint_tensor_check(struct checkpoint_tensor *tensor);

/* Appends a tensor. Call checkpoint_index_sort when all are there. NULL: no memory, with a message.
 */
struct checkpoint_tensor *checkpoint_index_grow(struct checkpoint_index *index,
						const struct checkpoint_tensor *like);
tutti_status checkpoint_piece_add(struct checkpoint_tensor *tensor, struct checkpoint_piece piece);
/* Sorts tensors by kind and name. INVALID: a tensor is there twice, or two pieces overlap. */
tutti_status checkpoint_index_sort(struct checkpoint_index *index);
/* Moves part to the end of all, which begins as zeros. MISMATCH: they are not of one checkpoint. */
tutti_status checkpoint_index_add(struct checkpoint_index *all, struct checkpoint_index *part);
/* When all parts are there: sorts them, and makes one tensor of those of a name. INVALID, MISMATCH:
 * they are not of one checkpoint. */
tutti_status checkpoint_index_join(struct checkpoint_index *all);
/* INVALID unless all ranks' files and all elements of every tensor are there. */
tutti_status checkpoint_index_check(const struct checkpoint_index *index);
void checkpoint_index_finish(struct checkpoint_index *index);
/* NULL if there is none. */
struct checkpoint_tensor *checkpoint_index_find(const struct checkpoint_index *index,
						const char *kind, const char *name);

/* The caller frees *text. */
tutti_status checkpoint_index_print(const struct checkpoint_index *index, char **text,
				    size_t *bytes);
/* Reads a sorted index from untrusted text. INVALID names path and the mistake. */
tutti_status checkpoint_index_parse(struct checkpoint_index *index, const char *path,
				    const char *text, size_t bytes);

#endif
