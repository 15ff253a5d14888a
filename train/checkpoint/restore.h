/* Fills this rank's pieces with values from a file. */
#ifndef TRAIN_RESTORE_H
#define TRAIN_RESTORE_H

#include "train/state/trainer_state.h"

/* A tensor in a file, of any type of floats up to 64 bits. */
struct stored_tensor {
	/* Elements [first, first + count), in dtype. */
	tutti_status (*read)(void *from, uint64_t first, uint64_t count, void *values);
	void *from;
	tutti_dtype dtype;
};
bool restore_takes(int dtype);

/* Drops all copies of values. Until restore_end all ranks may set them. INVALID in the middle of a
 * step. */
tutti_status restore_begin(tutti_trainer *trainer, const char *function);
/* Sets the piece and what is rounded from it. */
tutti_status restore_piece(tutti_trainer *trainer, const struct piece *piece,
			const struct stored_tensor *stored);
/* Sets STATE_M or STATE_V of the piece. stored NULL: sets zeros if the piece has that state. */
tutti_status restore_state(tutti_trainer *trainer, struct piece *piece, int which,
			const struct stored_tensor *stored);
/* Collective: all ranks see the values. */
tutti_status restore_end(tutti_trainer *trainer);

#endif
