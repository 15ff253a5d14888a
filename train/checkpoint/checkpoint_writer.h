/* One rank's part of a checkpoint: a safetensors file of the flat ranges that it holds, written in
 * the background. */
#ifndef TRAIN_CHECKPOINT_SAVE_H
#define TRAIN_CHECKPOINT_SAVE_H

#include "train/checkpoint/checkpoint_index.h"

/* What this rank saves of one tensor. Over all ranks every element is saved once. A range of no
 * elements says only that the tensor is there. */
struct checkpoint_range {
	struct checkpoint_tensor tensor; /* kind, name, dtype, ndim and shape */
	uint64_t first, count;
};

struct checkpoint_part {
	const char *dir, *temporary; /* dir/temporary is there: rank 0's checkpoint_dir */
	int64_t step;
	int rank, world_size;
	int timeout_ms;       /* of a disk that takes nothing; 0: 300000 */
	size_t staging_bytes; /* 0: 64 MiB */
	size_t piece_bytes;   /* a larger range becomes several pieces, each with a sum of its own:
			       * who loads some of a piece reads all of it. 0: 64 MiB */
};

struct checkpoint_writer;

/* Makes the file and starts the thread that writes. The strings of part are copied. A tensor's
 * ranges do not overlap. SYSTEM, MEMORY, INVALID, UNSUPPORTED. */
tutti_status checkpoint_writer_create(struct checkpoint_writer **save,
				    const struct checkpoint_part *part,
				    const struct checkpoint_range *ranges, size_t count);
/* The next bytes of a range: each range's are handed over from its first to its last, in any
 * portions, and ranges in any order. They are copied; waits only while the staging is full. SYSTEM,
 * TIMEOUT. */
tutti_status checkpoint_writer_values(struct checkpoint_writer *save, size_t range,
				      const void *values, size_t bytes);
/* All is written and synced. *text, which is the caller's to free, is what rank 0's
 * checkpoint_dir_commit wants of this rank. INVALID: a range has not had all of its values; SYSTEM,
 * TIMEOUT, MEMORY. */
tutti_status checkpoint_writer_finish(struct checkpoint_writer *save, char **text, size_t *bytes);
/* The thread has ended. Unless it was finished the file is removed. */
void checkpoint_writer_destroy(struct checkpoint_writer *save);

#endif
