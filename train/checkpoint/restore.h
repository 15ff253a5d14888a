/* This rank's pieces, filled with values that a file has. */
#ifndef TRAIN_FILL_H
#define TRAIN_FILL_H

#include "train/state/trainer_state.h"

/* A tensor that is stored somewhere, of any type of floats up to 64 bits. */
struct stored_tensor {
	/* Elements [first, first + count), in dtype. */
	tutti_status (*read)(void *from, uint64_t first, uint64_t count, void *values);
	void *from;
	tutti_dtype dtype;
};
bool restore_takes(int dtype);

/* The trainer's copies of values are gone; until restore_end they may be set, on all ranks. INVALID
 * in the middle of a step. */
tutti_status restore_begin(tutti_trainer *trainer, const char *function);
/* The piece, and what is rounded from it. */
tutti_status restore_piece(tutti_trainer *trainer, const struct piece *piece,
			const struct stored_tensor *stored);
/* STATE_M or STATE_V of it; stored NULL: zeros, where it has some. */
tutti_status restore_state(tutti_trainer *trainer, struct piece *piece, int which,
			const struct stored_tensor *stored);
/* Collective: all ranks see the values. */
tutti_status restore_end(tutti_trainer *trainer);

#endif
