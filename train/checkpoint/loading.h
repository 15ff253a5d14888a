/* Between loading.c and load_check.c: a checkpoint that is being loaded. */
#ifndef TRAIN_LOADING_H
#define TRAIN_LOADING_H

#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/saved_items.h"

struct loading {
	tutti_trainer *trainer;
	struct checkpoint *checkpoint;
	const char *path;
	int32_t *optimizers; /* these numbers are read and checked before anything is changed */
	int64_t counts[COUNTS];
	double scales[SCALES];
};

/* Checks that the checkpoint fits the model, and reads its numbers. Does not change the trainer. */
tutti_status load_check(struct loading *in);
/* NULL: the checkpoint does not have it. */
const struct checkpoint_tensor *load_find(const struct loading *in, const char *kind,
					  const char *name);
/* Reads all values of a tensor that is there. */
tutti_status load_whole(const struct loading *in, const char *kind, const char *name, void *values);

/* restore.c: fills pieces with values from a file. Before that params_begin_write is called, and
 * params_publish after it. */

/* A tensor in a file, of any type of floats up to 64 bits. */
struct stored_tensor {
	/* Reads elements [first, first + count) of its order, in dtype. */
	tutti_status (*read)(void *file, const void *tensor, uint64_t first, uint64_t count,
			     void *values);
	void *file;
	const void *tensor; /* NULL: the file does not have it */
	tutti_dtype dtype;
	struct tensor_order order;
};

/* INVALID: "function: 'path' does not fit this model: what 'name' why." */
tutti_status restore_misfit(const char *function, const char *path, const char *what,
			    const char *name, const char *why);
/* Why values of this shape and type, a tutti_dtype or -1, are not those of the parameter, as
 * restore_misfit says it, or NULL. */
const char *restore_difference(const struct param *param, int ndim, const int64_t *shape,
			       int dtype);

/* Sets the piece and what is rounded from it. */
tutti_status restore_piece(tutti_trainer *trainer, const struct piece *piece,
			   const struct stored_tensor *stored);
/* Sets the rounded values alone. */
tutti_status restore_low(tutti_trainer *trainer, const struct piece *piece,
			 const struct stored_tensor *stored);
/* Sets STATE_M or STATE_V of the piece, if it has that; to zeros if the file does not. */
tutti_status restore_state(tutti_trainer *trainer, struct piece *piece, int which,
			   const struct stored_tensor *stored);

#endif
