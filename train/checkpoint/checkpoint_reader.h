/* Reads any flat range of any tensor of a checkpoint, from the files of any ranks. */
#ifndef TRAIN_CHECKPOINT_READER_H
#define TRAIN_CHECKPOINT_READER_H

#include "train/checkpoint/checkpoint_index.h"

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
