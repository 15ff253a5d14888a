/* Fills pieces with values from a file. Before that params_begin_write is called, and params_publish
 * after it. */
#ifndef TRAIN_LOADING_H
#define TRAIN_LOADING_H

#include "train/state/trainer_state.h"

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

#endif
