/* A rank that trains the toy in host memory, on a GPU, or on two, where gradients are added in the
 * streams of their units. */
#ifndef TESTS_TRAIN_DEVICE_RANK_H
#define TESTS_TRAIN_DEVICE_RANK_H

#include "tests/cuda/gpu.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdbool.h>

/* This thread's. stream is NULL in host memory. */
struct device_rank {
	CUstream stream, second; /* second: or NULL */
	bool is_spread;          /* second is of the units from TOY_UNITS / 2 on: of those that
				  * are registered, and add, from here on */
	int rank, unit;          /* unit: that adds gradients now */
	char *room; /* pinned, for what the stream is to add */
	size_t used;
	tutti_dtype grad_dtype;
};
extern _Thread_local struct device_rank device_rank;

/* Sets toy_memory, and on_device and stream of config. */
void device_rank_begin(tutti_comm *comm, tutti_train_config *config, bool on_device);
/* The same, on so many GPUs; 0: in host memory. On two toy_register gives the units their streams. */
void device_rank_begin_on(tutti_comm *comm, tutti_train_config *config, int gpus);
/* The stream in which the toy's unit computes. */
CUstream device_rank_stream(int unit);
/* A rank's first or second GPU, of those that are there. */
int device_rank_gpu(int rank, int i);
void device_rank_end(void);
/* The room is used again. Nothing may be in the stream. */
void device_rank_reuse(void);

#endif
