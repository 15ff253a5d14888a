/* Between loading.c and load_check.c: a checkpoint that is being loaded. */
#ifndef TRAIN_LOADING_H
#define TRAIN_LOADING_H

#include "train/checkpoint/checkpoint_reader.h"
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

#endif
