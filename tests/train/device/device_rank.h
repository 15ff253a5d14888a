/* A rank that trains the toy in host memory or on a GPU, where gradients are added in its stream. */
#ifndef TESTS_TRAIN_DEVICE_RANK_H
#define TESTS_TRAIN_DEVICE_RANK_H

#include "tests/cuda/gpu.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

/* This thread's. stream is NULL in host memory. */
struct device_rank {
	CUstream stream;
	char *room; /* pinned, for what the stream is to add */
	size_t used;
	tutti_dtype grad_dtype;
};
extern _Thread_local struct device_rank device_rank;

/* Sets toy_memory, and on_device and stream of config. */
void device_rank_begin(tutti_comm *comm, tutti_train_config *config, bool on_device);
void device_rank_end(void);
/* The room is used again. Nothing may be in the stream. */
void device_rank_reuse(void);

#endif
