/* The folder of checkpoints, which rank 0 keeps. dir/step_00000200 is a checkpoint, and whole from
 * the moment it has that name. If the step is saved again, the new checkpoint is step_00000200.1,
 * and so on, and older ones are removed.
 *
 * While it is written it is dir/.step_00000200.tmp-0123456789abcdef. Beside it rank 0's process has
 * locked the file .step_00000200.tmp-0123456789abcdef.lock (flock). The kernel unlocks it when the
 * process ends in any way; then the next save removes both. */
#ifndef TRAIN_CHECKPOINT_DIR_H
#define TRAIN_CHECKPOINT_DIR_H

#include "train/base/base.h"
#include "train/checkpoint/checkpoint_index.h"

enum { CHECKPOINT_NAME_BYTES = 64 };

struct checkpoint_dir {
	char dir[DISK_PATH_BYTES];
	char path[DISK_PATH_BYTES];            /* of the temporary folder */
	char temporary[CHECKPOINT_NAME_BYTES]; /* its name below dir, for all ranks, or "" */
	int64_t step;
	int lock;
};

/* Rank 0, before the others write: removes what dead jobs have left below dir, and makes the
 * temporary folder, and dir if only its last part is missing. SYSTEM, INVALID (negative step) leave
 * nothing. */
tutti_status checkpoint_dir_make(struct checkpoint_dir *made, const char *dir, int64_t step);
/* Rank 0, after all ranks' files are written and synced. texts: what checkpoint_writer_finish gave
 * the ranks, one after the other, with so many bytes. Merges the indexes and gives the checkpoint
 * its name. An error leaves older checkpoints as they were. INVALID, MISMATCH: the parts are not
 * one whole checkpoint; SYSTEM, MEMORY. */
tutti_status checkpoint_dir_commit(struct checkpoint_dir *made, const char *texts,
				   const size_t *bytes, int ranks);
/* Removes what was not committed. Allowed on all zeros, and twice. */
void checkpoint_dir_finish(struct checkpoint_dir *made);

struct checkpoint_found {
	char path[DISK_PATH_BYTES]; /* of the newest whole checkpoint, or "" */
	bool is_dir;                /* dir is itself that checkpoint */
	int64_t step;               /* -1: there is none */
	int passed_over;            /* damaged newer ones */
	char message[512];          /* what is wrong with the newest of them */
};
/* dir may also be a checkpoint's own folder: then that one. INVALID: all checkpoints below dir are
 * damaged, or that one is. SYSTEM: dir cannot be read; a missing dir is OK.
 */
tutti_status checkpoint_dir_find(struct checkpoint_found *found, const char *dir);
/* Reads the index of the checkpoint at path, if COMMIT and index are undamaged and all files have
 * the right sizes. INVALID, SYSTEM, MEMORY. */
tutti_status checkpoint_dir_read(struct checkpoint_index *index, const char *path);

/* A name below dir: the step, and how many times it was saved before. */
struct checkpoint_name {
	int64_t step;
	unsigned again;
};
void checkpoint_name_print(char text[CHECKPOINT_NAME_BYTES], struct checkpoint_name name);
/* Lists the names below dir, newest first. The caller frees them. SYSTEM, MEMORY. */
tutti_status checkpoint_names(struct checkpoint_name **names, size_t *count, const char *dir);
/* The text of COMMIT for an index of these bytes. */
void checkpoint_commit_text(char text[128], const char *index, size_t bytes);
/* Removes what dead jobs have left below dir, as far as that is possible. */
void checkpoint_sweep(const char *dir);
/* Removes the files in path that a save has written, and path if it is empty then. A link is
 * removed, not followed. */
void checkpoint_remove(const char *path);

/* checkpoint_reader.c: any flat range of any tensor of a checkpoint, from the files of any ranks.
 */

struct checkpoint;

/* path: the checkpoint's own folder, from checkpoint_dir_find. INVALID: it is not whole; SYSTEM,
 * MEMORY, UNSUPPORTED. One thread at a time. */
tutti_status checkpoint_open(struct checkpoint **checkpoint, const char *path);
/* The index. The checkpoint owns it. */
const struct checkpoint_index *checkpoint_index_of(const struct checkpoint *checkpoint);
/* Reads elements [first, first + count) in the tensor's own dtype. Checks the sum of the whole
 * piece when it is first read. INVALID: the range is not in the tensor, or a file is damaged; the
 * message names the tensor, the file and its rank, and values may have been written. SYSTEM,
 * MEMORY. */
tutti_status checkpoint_read(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
			     uint64_t first, uint64_t count, void *values);
void checkpoint_close(struct checkpoint *checkpoint);

#endif
