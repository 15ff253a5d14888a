/* The index of a checkpoint: which flat elements of which tensor lie in which rank's file, and
 * their sums. One rank's own index has its file and its pieces only; rank 0 adds them up to the
 * checkpoint's.
 *
 * As JSON:
 *     {"format": "tutti checkpoint", "version": 1, "step": 200, "world_size": 4,
 *      "files": [{"name": "part-00000-of-00004.safetensors", "bytes": 1234, "header_crc32c": 5},
 * ...], "tensors": [{"kind": "param", "name": "h.0.w", "dtype": "F32", "shape": [2, 3], "pieces":
 * [{"file": "part-00000-of-00004.safetensors", "key": "param/h.0.w@0", "begin": 0, "end": 6,
 * "crc32c": 7}, ...]}, ...]} A piece is a tensor of one dimension, named key, in a safetensors
 * file. */
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
	bool is_sound; /* its sum was found right: load.c */
};

struct checkpoint_tensor {
	char kind[CHECKPOINT_KIND_BYTES], name[MODEL_NAME_BYTES];
	tutti_dtype dtype;
	int ndim;
	int64_t shape[MODEL_DIMS];
	uint64_t count;                  /* of the shape */
	struct checkpoint_piece *pieces; /* by first */
	size_t piece_count;
};

struct checkpoint_file {
	int rank;
	uint64_t bytes;
	uint32_t header_crc32c; /* of all that is before the data */
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
/* 'h.0.w' (param): how messages name a tensor. */
const char *checkpoint_tensor_words(char words[200], const struct checkpoint_tensor *tensor);
/* INVALID unless kind is 1 to 31 of a-z, 0-9, '_', '.' and '-', the name fits, and the shape has a
 * count, which is found here. */
tutti_status checkpoint_tensor_check(struct checkpoint_tensor *tensor);

/* A new tensor of the index, its last one; rank's indexes are sorted by checkpoint_index_sort when
 * all are there. NULL: no memory, explained. */
struct checkpoint_tensor *checkpoint_index_grow(struct checkpoint_index *index,
						const struct checkpoint_tensor *like);
tutti_status checkpoint_piece_add(struct checkpoint_tensor *tensor, struct checkpoint_piece piece);
/* By kind and name; INVALID: a tensor is there twice, or two pieces overlap. */
tutti_status checkpoint_index_sort(struct checkpoint_index *index);
/* All of part, which is sorted, goes into all, and part is empty afterwards. MISMATCH: the two are
 * not of one checkpoint, with a message; what all has then is of no use but to be finished. */
tutti_status checkpoint_index_add(struct checkpoint_index *all, struct checkpoint_index *part);
/* INVALID unless every rank's file and every element of every tensor is there. */
tutti_status checkpoint_index_check(const struct checkpoint_index *index);
void checkpoint_index_finish(struct checkpoint_index *index);
/* NULL: there is none. */
struct checkpoint_tensor *checkpoint_index_find(const struct checkpoint_index *index,
						const char *kind, const char *name);

/* *text is freed by the caller. */
tutti_status checkpoint_index_print(const struct checkpoint_index *index, char **text,
				    size_t *bytes);
/* A sorted index out of foreign text; INVALID names path and what is wrong. */
tutti_status checkpoint_index_parse(struct checkpoint_index *index, const char *path,
				    const char *text, size_t bytes);

#endif
