/* One rank's part of a checkpoint: a safetensors file of the flat ranges that it saves, written in
 * the background. */
#ifndef TRAIN_CHECKPOINT_WRITER_H
#define TRAIN_CHECKPOINT_WRITER_H

#include "train/checkpoint/checkpoint_index.h"

#include <tutti/tutti.h>

#include <stdbool.h>

/* A range of one tensor that this rank saves. Over all ranks every element is saved once. An empty
 * range only declares the tensor. */
struct checkpoint_range {
	struct checkpoint_tensor tensor; /* kind, name, dtype, ndim and shape */
	uint64_t first, count;
};

struct checkpoint_part {
	const char *dir, *temporary; /* dir/temporary exists: rank 0's checkpoint_dir */
	int64_t step;
	int rank, world_size;
	int timeout_ms;       /* while the disk accepts nothing; 0: 300000 */
	size_t staging_bytes; /* 0: 64 MiB */
	size_t piece_bytes;   /* a larger range becomes several pieces with a sum each; a reader
			       * reads whole pieces. 0: 64 MiB */
};

struct checkpoint_writer;

/* Makes the file and starts the thread that writes. Copies part's strings. A tensor's ranges do not
 * overlap. SYSTEM, MEMORY, INVALID, UNSUPPORTED. */
tutti_status checkpoint_writer_create(struct checkpoint_writer **save,
				    const struct checkpoint_part *part,
				    const struct checkpoint_range *ranges, size_t count);
/* Copies the next bytes of a range. A range's bytes come in order, in any portions; ranges in any
 * order. Waits only while the staging is full. SYSTEM, TIMEOUT. */
tutti_status checkpoint_writer_values(struct checkpoint_writer *save, size_t range,
				      const void *values, size_t bytes);
/* Returns when all is written and synced. *text, which the caller frees, is for rank 0's
 * checkpoint_dir_commit. INVALID: a range lacks values; SYSTEM, TIMEOUT, MEMORY. */
tutti_status checkpoint_writer_finish(struct checkpoint_writer *save, char **text, size_t *bytes);
/* Ends the thread. Removes the file unless it was finished. False: gave up waiting for the thread,
 * and the file and what the thread uses stay; the file system may not answer. */
bool checkpoint_writer_destroy(struct checkpoint_writer *save);

/* Staging: a file that is written in the background. Values are copied into a bounded number of
 * slots; a thread sums and writes them, and syncs the file. For one calling thread. */

enum { STAGING_SLOT_BYTES = 1 << 20 };

struct staging;

/* On OK staging owns fd. path, for messages, is copied. bytes: of memory, at least two slots.
 * timeout_ms: the longest wait while the disk accepts nothing. SYSTEM, MEMORY. */
tutti_status staging_create(struct staging **staging, int fd, const char *path, size_t bytes,
			    int timeout_ms);
/* Copies data. Waits only while all slots are full. *crc32c is continued over data, and is valid
 * after staging_finish; it must exist until then. SYSTEM: a write failed, now or earlier; TIMEOUT:
 * the disk accepts nothing. */
tutti_status staging_write(struct staging *staging, uint64_t at, uint32_t *crc32c, const void *data,
			   size_t bytes);
/* Waits until all is written and synced. Errors as of staging_write. The thread has ended and the
 * file is closed, except after TIMEOUT. */
tutti_status staging_finish(struct staging *staging);
/* Drops what is not written yet. Waits for the write or sync in progress. False: gave up after the
 * timeout, and the thread may still use the file and the sums. Keeps this thread's last error. */
bool staging_destroy(struct staging *staging);

#endif
