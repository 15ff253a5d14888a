/* Reading a checkpoint: any flat range of any tensor, out of whichever ranks' files it lies in. */
#ifndef TRAIN_CHECKPOINT_LOAD_H
#define TRAIN_CHECKPOINT_LOAD_H

#include "train/checkpoint/checkpoint_index.h"

struct checkpoint;

/* path is a checkpoint's own folder, such as checkpoint_dir_find gives. INVALID: it is not whole;
 * SYSTEM, MEMORY, UNSUPPORTED. One thread at a time. */
tutti_status checkpoint_open(struct checkpoint **checkpoint, const char *path);
/* What is in it; the checkpoint's. */
const struct checkpoint_index *checkpoint_index_of(const struct checkpoint *checkpoint);
/* NULL: there is none. The checkpoint's. */
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
						const char *kind, const char *name);
/* Elements first to first + count of the tensor, in its own dtype. Of every piece that is read
 * from, all of it is summed the first time. INVALID: the range is not in the tensor, or a file is
 * damaged: the tensor, the file and the rank that wrote it are named, and values may have been
 * written. SYSTEM, MEMORY. */
tutti_status checkpoint_read(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
			     uint64_t first, uint64_t count, void *values);
void checkpoint_close(struct checkpoint *checkpoint);

#endif
